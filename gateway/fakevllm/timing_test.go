package fakevllm

import (
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/model/latency"
)

// tokenList is n token ids that are the same for the same first.
func tokenList(first, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = word(uint64(first), int32(i))
	}
	return ids
}

func completionOf(prompt []uint32, maxTokens int, stream bool) string {
	return jsonOf(map[string]any{"model": "test", "prompt": prompt, "max_tokens": maxTokens, "ignore_eos": true, "stream": stream,
		"stream_options": map[string]any{"include_usage": stream}})
}

// expected is when a request alone on a server has its tokens, by the law.
func expected(cfg Config, law *latency.Law, prompt, output int) []time.Duration {
	t := int64(0)
	for past := 0; past < prompt; {
		n := min(prompt-past, int(cfg.Engine.MaxBatchedTokens))
		t += law.Picoseconds(&latency.Batch{Prefill: []latency.Chunk{{Tokens: int32(n), Past: int32(past)}}, Sampled: 1})
		past += n
	}
	times := []time.Duration{time.Duration(t / 1000)}
	for i := 1; i < output; i++ {
		t += law.Picoseconds(&latency.Batch{DecodeRows: 1, DecodeContext: int64(prompt + i), Sampled: 1})
		times = append(times, time.Duration(t/1000))
	}
	return times
}

// Every token comes when the law says, with synchronous and asynchronous scheduling, chunked prefill included.
func TestTokensComeWhenTheLawSays(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, speed := range []float64{1, 20} {
			memnet.Bubble(t, func(t *testing.T) {
				cfg := small(t)
				cfg.Engine.Async, cfg.Speed, cfg.Engine.MaxBatchedTokens = async, speed, 1024
				r := newRig(t, cfg)
				defer r.close()
				time.Sleep(time.Second)
				start := time.Now()
				list := r.stream("/v1/completions", completionOf(tokenList(1, 3000), 20, true))
				want := expected(cfg, r.server.law, 3000, 20)
				if len(list) != 20+3 { // finish, usage and [DONE]
					t.Fatalf("async %v speed %v: %d events, want 23", async, speed, len(list))
				}
				for i, d := range want {
					got := list[i].at.Sub(start)
					if diff := got - time.Duration(float64(d)/speed); diff < -2 || diff > 2 { // nanoseconds
						t.Errorf("async %v speed %v: token %d after %v, want %v", async, speed, i, got, time.Duration(float64(d)/speed))
					}
				}
			})
		}
	}
}

// Outside the bubble, at a speed of 10, no token comes before the law says, and in one attempt of as many as a minute has (the
// machine may be busy) none of three comes over 15 ms late.
func TestTokensComeInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("sleeps for real")
	}
	cfg := small(t)
	cfg.Speed = 10
	r := newRig(t, cfg)
	defer r.close()
	want := expected(r.server.cfg, r.server.law, 1500, 200)
	const late = 15 * time.Millisecond
	best := time.Hour
	for attempt, begun := 0, time.Now(); time.Since(begun) < time.Minute; attempt++ {
		start := time.Now()
		list := r.stream("/v1/completions", completionOf(tokenList(attempt, 1500), 200, true))
		worst := time.Duration(0)
		for _, i := range []int{0, 100, 199} {
			over := list[i].at.Sub(start) - want[i]/10
			if over < -time.Millisecond {
				t.Fatalf("token %d came %v before the law says", i, -over)
			}
			worst = max(worst, over)
		}
		if best = min(best, worst); best <= late {
			return
		}
	}
	t.Errorf("the latest of three tokens came %v late at best, expected at most %v", best, late)
}
