package sim

import (
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// TestLongPrefillFreezesOthers is acceptance case AC14, from issue 110 of MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks: one
// engine with 2,048 tokens a step prefills at about 727 tokens/s. Session A, warm with 325,000 tokens, sends a follow-up
// 25 s after each answer (short ones in the report; here 1,200 tokens, for 10 of output); 60 s after A is warm, B sends
// 325,000 tokens that nobody has. Without a long_prefill_token_threshold the chunks of B take the whole budget of every
// step, and A is frozen for at least 0.95 of B's prefill. With a threshold of 1,024 the longest follow-up takes at most
// 0.08 of it, B pays 5 to 15 %, and alone it pays nothing. KV is ample: it is the budget that freezes A.
func TestLongPrefillFreezesOthers(t *testing.T) {
	// Llama 3.1 8B on an H100, slowed down to a pair of GB10: their two memories have together a sixth of its bandwidth,
	// and prefill is brought to the measured rate.
	law := lawOf(t, "llama-3.1-8b", latency.Calibration{KDec: 6.1, KPf: 9.45})
	off, on := longPrefill(t, law, 0), longPrefill(t, law, 1024)
	if r := 325_000 / off.alone; r < 700 || r > 755 {
		t.Errorf("prefill alone runs at %.0f tokens/s, the case wants about 727", r)
	}
	if off.freeze < 0.95*off.prefill {
		t.Errorf("without a threshold A freezes for %.1f s of B's %.1f s, expected at least 0.95 of it", off.freeze, off.prefill)
	}
	if on.freeze > 0.08*on.prefill {
		t.Errorf("with a threshold A's longest follow-up takes %.1f s of B's %.1f s, expected at most 0.08 of it", on.freeze, on.prefill)
	}
	if off.followUps != 1 || on.followUps < 5 {
		t.Errorf("%d and %d follow-ups during B's prefill, expected 1 and at least 5", off.followUps, on.followUps)
	}
	if x := on.prefill / off.prefill; x < 1.05 || x > 1.15 {
		t.Errorf("the threshold makes B %.3f times as slow, expected 1.05 to 1.15", x)
	}
	if x := on.alone / off.alone; x < 0.99 || x > 1.03 {
		t.Errorf("alone, the threshold makes a prefill %.3f times as slow, expected no difference", x)
	}
}

// lawOf is the law of a model on one H100.
func lawOf(t *testing.T, model string, calibration latency.Calibration) *latency.Law {
	t.Helper()
	m, err := latency.FindModel(model)
	if err != nil {
		t.Fatal(err)
	}
	g, err := latency.FindGPU("h100")
	if err != nil {
		t.Fatal(err)
	}
	law, err := latency.New(latency.Setup{Model: m, GPU: g, TensorParallel: 1, Calibration: calibration})
	if err != nil {
		t.Fatal(err)
	}
	return law
}

// freeze is what happened in one arm, in seconds.
type freeze struct {
	alone     float64 // B's prefill on an idle engine
	prefill   float64 // B's prefill beside A
	freeze    float64 // the longest follow-up of A that overlaps it
	followUps int
}

func longPrefill(t *testing.T, law *latency.Law, threshold int32) (f freeze) {
	t.Helper()
	long := func(sessions ...[]call) *rows {
		c := world(t, chain(sessions...), "none", "round-robin")
		c.Law, c.Engine.MaxBatchedTokens, c.Engine.LongPrefillTokens = law, 2048, threshold
		out, totals := simulate(t, c)
		if totals.Preemptions > 0 {
			t.Fatalf("%d preemptions; KV was to be ample", totals.Preemptions)
		}
		return out
	}
	const tokens, output, added = 325_000, 10, 1200
	alone := long([]call{{prompt: tokens, output: 1}}).find(t, 0, 0, 1).DonePS
	f.alone = float64(alone) / 1e12
	a := []call{{prompt: tokens, output: 1}}
	for p := int32(tokens); len(a) < 50; {
		p += added + output
		a = append(a, call{prompt: p, output: output, gapS: 25})
	}
	out := long(a, []call{{prompt: tokens, output: 1, gapS: f.alone + 60}})
	b := out.find(t, 1, 0, 1)
	f.prefill = float64(b.FirstTokenPS-b.ArrivalPS) / 1e12
	for _, x := range out.turns {
		if x.Session != 0 || x.Number == 1 || x.DonePS < b.ArrivalPS || x.ArrivalPS > b.FirstTokenPS {
			continue
		}
		if x.HitGPU < tokens-16 {
			t.Fatalf("follow-up %d found %d tokens; A was to be warm", x.Number, x.HitGPU)
		}
		f.followUps++
		f.freeze = max(f.freeze, float64(x.DonePS-x.ArrivalPS)/1e12)
	}
	return f
}

// TestBlockedHeadIsPassedOver is acceptance case AC15, from a comment of 2026-08-04 on pull request 33499 of
// vllm-project/vllm: one request of 8K prompt and 512 output tokens runs; B, of 16K, waits at the head of the queue for KV;
// eight younger ones of 1K and 512 output tokens, which would fit, wait behind it, until an engine passes over what does not
// fit. They then have their first token 45 times earlier at the median; B has it 10 % later, for they hold KV when it
// could have gone, and all is done 20 % earlier. The comment does not say what B produces, nor when they come, nor the size of
// the KV cache: here B produces 512 tokens too, they come 0.2 s after the first request, and B just does not fit beside it.
func TestBlockedHeadIsPassedOver(t *testing.T) {
	type outcome struct{ head, median, makespan float64 }
	run := func(skip bool) outcome {
		const late = 0.2
		sessions := [][]call{{{prompt: 8192, output: 512}}, {{prompt: 16384, output: 512, gapS: late}}}
		for range 8 {
			sessions = append(sessions, []call{{prompt: 1024, output: 512, gapS: late + 0.001}})
		}
		c := world(t, chain(sessions...), "none", "round-robin")
		c.Engine.MaxBatchedTokens, c.Engine.SkipBlocked, c.KVBlocks = 2048, skip, 1530
		out, totals := simulate(t, c)
		ttft := func(session int32) float64 {
			x := out.find(t, session, 0, 1)
			return float64(x.FirstTokenPS-x.ArrivalPS) / 1e12
		}
		var young []float64
		for k := int32(2); k < 10; k++ {
			young = append(young, ttft(k))
		}
		slices.Sort(young)
		return outcome{ttft(1), (young[3] + young[4]) / 2, float64(totals.EndPS) / 1e12}
	}
	strict, skip := run(false), run(true)
	t.Logf("strict: head %.3f s, others %.3f s at the median, all %.3f s; passing over: %.3f, %.3f, %.3f", strict.head, strict.median, strict.makespan, skip.head, skip.median, skip.makespan)
	if strict.median < 20*skip.median {
		t.Errorf("the younger requests have their first token after %.3f s instead of %.3f s; expected 20 times earlier", skip.median, strict.median)
	}
	if x := skip.head/strict.head - 1; x < 0.05 || x > 0.15 {
		t.Errorf("the head has its first token %.1f %% later, expected 5 to 15 %%", 100*x)
	}
	if x := 1 - skip.makespan/strict.makespan; x < 0.10 || x > 0.30 {
		t.Errorf("all is done %.1f %% earlier, expected 10 to 30 %%", 100*x)
	}
}

// TestHitRateIgnoresPreemption is acceptance case AC17, from issue 25780 of vllm-project/vllm: 1,000 random prompts of 1,024
// tokens with 1,024 output tokens share nothing, and yet vLLM showed a hit rate of 32.2 %. Preempted requests find what is
// left of themselves when they come back; where these hits count, the rate is at least 15 %, and where only the first
// scheduling counts, below 1 %.
//
// vLLM 0.10 counted every lookup, so a preempted request that waits at the head of the queue counted in every step: that
// is what the report shows, on a pool of this size (an 8B model on 80 GB). Counted once for each admission, which vLLM does
// today, the error needs a pool of a few requests to come to as much.
func TestHitRateIgnoresPreemption(t *testing.T) {
	for _, x := range []struct {
		blocks int32
		naive  func(c hitCount) float64
	}{
		{25_000, func(c hitCount) float64 { return c.lookups }},
		{400, func(c hitCount) float64 { return c.admissions }},
	} {
		c := world(t, independent(1000, 1024, 1024), "none", "round-robin")
		c.KVBlocks, c.Check = x.blocks, false
		count := countHits(c)
		out, totals := simulate(t, c)
		hit, prompt := int64(0), int64(0)
		for i := range out.turns {
			hit += int64(out.turns[i].HitGPU)
			prompt += int64(out.turns[i].PromptTokens)
		}
		if totals.Preemptions < 300 || totals.Preemptions != count.preemptions {
			t.Errorf("%d blocks: %d preemptions, and %d in the engine alone; expected the same and at least 300", x.blocks, totals.Preemptions, count.preemptions)
		}
		if naive := x.naive(count); naive < 0.15 {
			t.Errorf("%d blocks: with preempted requests the hit rate is %.3f, expected at least 0.15", x.blocks, naive)
		}
		if ours := float64(hit) / float64(prompt); ours >= 0.01 {
			t.Errorf("%d blocks: the hit rate is %.3f, expected less than 0.01", x.blocks, ours)
		}
	}
}

// independent makes n sessions of one turn that share nothing.
func independent(n int, prompt, output int32) *traces.Trace {
	sessions := make([][]call, n)
	for i := range sessions {
		sessions[i] = []call{{prompt: prompt, output: output}}
	}
	return chain(sessions...)
}

// hitCount is the hit rate of a run as others would count it.
type hitCount struct {
	admissions  float64 // resumed requests included
	lookups     float64 // and each lookup for a preempted request that then does not fit
	preemptions int64
}

// countHits puts the turns of a trace, all at once, through the engine of c without a clock.
func countHits(c *Config) (count hitCount) {
	l := engine.NewLoop(engine.New(&c.Engine, kv.NewExtent(c.KVBlocks, true)))
	tree := c.Trace.Tree
	var requests []engine.Request // by slot
	var tokens []int32
	for i := range c.Trace.Sessions {
		x := &c.Trace.Sessions[i].Turns[0]
		all := prefix.Prefix{Stream: x.Prompt.Stream, Tokens: x.Prompt.Tokens + x.OutputTokens}
		q := engine.Request{ID: int64(i), Arrival: int64(i), Prompt: x.Prompt, MaxTokens: x.OutputTokens, Path: tree.Segments(all, c.Engine.BlockTokens, nil)}
		l.Add(q)
		requests, tokens = append(requests, q), append(tokens, x.Prompt.Tokens)
	}
	var s engine.PrefixStats
	var queries, hits int64     // of lookups that did not lead to an admission
	var preempted []engine.Slot // at the head of the queue, the first one last
	for l.HasRequests() || l.InFlight() > 0 {
		outcome, step, _ := l.Advance()
		if step != nil {
			count.preemptions += int64(len(l.Preempted))
			preempted = append(preempted, l.Preempted...)
			preempted = preempted[:len(preempted)-min(len(preempted), len(l.Admitted))]
			if n := len(preempted); n > 0 && len(l.Preempted) == 0 && step.Tokens < c.Engine.MaxBatchedTokens {
				head := preempted[n-1]
				queries += int64(tokens[head])
				hits += int64(l.Hit(requests[head].Path, tokens[head]))
			}
		}
		if outcome == engine.Blocked {
			l.Complete()
			for _, x := range l.Sampled {
				tokens[x]++
			}
		}
		x := l.TakePrefixStats()
		s.Queries += x.Queries + x.PreemptedQueries
		s.Hits += x.Hits + x.PreemptedHits
		l.Pool().ClearEvents()
	}
	count.admissions = float64(s.Hits) / float64(s.Queries)
	count.lookups = float64(s.Hits+hits) / float64(s.Queries+queries)
	return count
}

// TestProgressUnderBursts is acceptance case AC18, from issue 963 of inference-sim/inference-sim, where a burst of requests on
// a small KV cache made preempted requests cycle and a replay of a minute took a quarter of an hour: 19,800 requests with
// heavy-tailed lengths come in bursts to a replica that preempts all the time. All of them finish, none is preempted more
// than ten times, and events and engine steps stay below 20 a request.
func TestProgressUnderBursts(t *testing.T) {
	const n = 19_800
	tr := bursts(n)
	c := world(t, tr, "none", "round-robin")
	c.Check = false
	c.Law = lawOf(t, "qwen3-32b", latency.Calibration{})
	c.KVBlocks, c.Engine.MaxNumSeqs, c.Engine.MaxBatchedTokens = 1300, 128, 2048 // what its weights leave of 80 GB
	c.Arrivals = Arrivals{Process: Recorded, Speedup: 1}
	out, totals := simulate(t, c)
	most, times, waited := int32(0), 0, 0
	for i := range out.turns {
		x := &out.turns[i]
		if x.Outcome != results.Finished || x.OutputTokens != tr.Sessions[x.Session].Turns[0].OutputTokens {
			t.Fatalf("request %d ended as %+v", x.Session, x)
		}
		most = max(most, x.Preemptions)
		if x.Preemptions > 1 {
			times++
		}
		if x.ScheduledPS-x.SentPS > 1e13 {
			waited++
		}
	}
	if len(out.turns) != n {
		t.Errorf("%d rows of %d requests", len(out.turns), n)
	}
	if most > 10 {
		t.Errorf("a request was preempted %d times, expected at most 10", most)
	}
	if work := totals.Events + totals.Steps; work > 20*n {
		t.Errorf("%d events and steps for %d requests", work, n)
	}
	if totals.Preemptions < 1000 || times < 50 || waited < n/20 {
		t.Errorf("%d preemptions, %d requests preempted more than once, %d waited over 10 s: not the regime of the case", totals.Preemptions, times, waited)
	}
}

// bursts makes n requests in bursts with pauses between them: two rates of Poisson arrivals, the gaps' coefficient of
// variation is about 8, and lengths of a bounded Pareto law with shape 1.2.
func bursts(n int) *traces.Trace {
	sessions := make([][]call, n)
	pareto := func(purpose, i uint64, least, most float64) int32 {
		return int32(min(most, least*exact.Pow(exact.Uniform(exact.Hash2(1, purpose, i)), -1/1.2)))
	}
	at := 0.0
	for i := range sessions {
		u := uint64(i)
		mean := 0.01
		if exact.Uniform(exact.Hash2(1, 1, u)) < 0.03 {
			mean = 8
		}
		at += -mean * exact.Log(exact.Uniform(exact.Hash2(1, 2, u)))
		sessions[i] = []call{{prompt: pareto(3, u, 100, 12_000), output: pareto(4, u, 40, 2_000), gapS: at}}
	}
	tr := chain(sessions...)
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		s.StartNS, s.Turns[0].StartNS = s.Turns[0].StartNS, 0
	}
	return tr
}
