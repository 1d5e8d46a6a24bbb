package fakevllm

import (
	"bytes"
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/gateway/vllmmetrics"
)

// What a gateway reads of /metrics is all there.
func TestAGatewayReadsTheMetrics(t *testing.T) {
	cfg := small(t)
	cfg.Speed = 1000
	r := newRig(t, cfg)
	defer r.close()
	get[reply](r, "/v1/completions", completionOf(tokenList(1, 100), 10, false))
	get[reply](r, "/v1/completions", completionOf(tokenList(1, 100), 10, false))
	_, data := r.do("/metrics", "")
	scrape, err := vllmmetrics.Parse(bytes.NewReader(data))
	if err != nil || scrape.Engine("0") == nil {
		t.Fatalf("%v, no engine 0", err)
	}
	for f, want := range map[vllmmetrics.Figure]float64{
		vllmmetrics.Running: 0, vllmmetrics.Waiting: 0, vllmmetrics.WaitingForCapacity: 0, vllmmetrics.WaitingDeferred: 0, vllmmetrics.Usage: 0,
		vllmmetrics.QueryTokens: 200, vllmmetrics.HitTokens: 96, vllmmetrics.PromptLocalCompute: 104, vllmmetrics.PromptLocalHit: 96,
		vllmmetrics.PromptExternal: 0, vllmmetrics.PromptTokens: 200, vllmmetrics.GenerationTokens: 20, vllmmetrics.Preemptions: 0,
		vllmmetrics.Blocks: 1001, vllmmetrics.BlockTokens: 16, vllmmetrics.TTFTCount: 2, vllmmetrics.InterTokenCount: 18,
		vllmmetrics.QueueCount: 2, vllmmetrics.PrefillCount: 2, vllmmetrics.DecodeCount: 2, vllmmetrics.E2ECount: 2,
	} {
		if v, ok := scrape.Engine("0").Value(f); !ok || v != want {
			t.Errorf("figure %d is %v (known: %v), want %v", f, v, ok, want)
		}
	}
}

// A subscriber over ZMQ knows which blocks a server holds, after batches that were lost and after a restart.
func TestASubscriberFollowsTheServer(t *testing.T) {
	cfg := small(t)
	cfg.Speed, cfg.KVEvents = 1000, &kvevents.PublisherConfig{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0", Topic: "kv", Maps: true}
	r := newRig(t, cfg)
	defer r.close()
	at, replay := r.server.KVEventAddrs()
	sub, err := kvevents.NewSubscriber(kvevents.SubscriberConfig{Endpoint: at, Replay: replay, Topic: "kv", Retry: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	blocks := make(chan int, 1000)
	go func() {
		defer close(ended)
		known := map[kvevents.Hash]bool{}
		sub.Run(ctx, func(u kvevents.Update) {
			if u.Reset {
				clear(known)
			} else {
				for _, e := range u.Batch.Events {
					for _, h := range e.Hashes {
						known[h] = e.Kind == kvevents.BlockStored
					}
				}
			}
			blocks <- len(known)
		})
	}()
	defer func() { cancel(); <-ended }()
	waitFor := func(what string, ok func() bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("not within a minute: %s; %+v", what, sub.Stats())
			}
		}
	}
	waitFor("subscribed", func() bool { return r.server.publisher.Subscribers() == 1 })
	holds := func(n int) {
		t.Helper()
		last := -1
		waitFor("the blocks of the server", func() bool {
			for {
				select {
				case last = <-blocks:
				default:
					return last == n
				}
			}
		})
	}
	ask := func(first, prompt, output int) {
		t.Helper()
		get[reply](r, "/v1/completions", completionOf(tokenList(first, prompt), output, false))
	}
	ask(1, 160, 33)
	holds(12) // of 193 tokens the last is not computed
	get[Faults](r, "/fault", `{"lose_kv_batches":1}`)
	ask(2, 160, 1)
	ask(3, 160, 1)
	holds(32)
	if s := sub.Stats(); s.Replayed == 0 {
		t.Errorf("nothing was replayed: %+v", s)
	}
	get[Faults](r, "/fault", `{"restart":true}`)
	ask(4, 80, 1)
	holds(5)
}

// The handler works behind a real listener, and closing the server there leaves nothing (the package's TestMain looks).
func TestBehindAListener(t *testing.T) {
	cfg := small(t)
	cfg.Speed = 100
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s)
	resp, err := ts.Client().Post(ts.URL+"/v1/completions", "application/json", bytes.NewBufferString(completionOf(tokenList(1, 100), 50, true)))
	if err != nil {
		t.Fatal(err)
	}
	list, err := eventsOf(resp.Body)
	resp.Body.Close()
	if len(list) != 53 || err != nil {
		t.Errorf("%d events, %v", len(list), err)
	}
	ts.Close()
	s.Close()
	s.Close() // again does nothing
}

// The engine's clock starts again before it ends, when nothing runs.
func TestClockStartsAgain(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		cfg := small(t)
		cfg.Speed = 1000
		r := newRig(t, cfg)
		defer r.close()
		ask := func() time.Duration {
			start := time.Now()
			get[reply](r, "/v1/completions", completionOf(tokenList(1, 100), 10, false))
			return time.Since(start)
		}
		ask()
		warm := ask()
		time.Sleep(20 * time.Minute) // 13 days of the engine
		ask()
		time.Sleep(time.Second)
		if now := r.server.engine().now; now > 1e15 {
			t.Errorf("the clock stands at %d", now)
		}
		for range 3 {
			if d := ask(); d != warm {
				t.Errorf("a request takes %v, before it took %v", d, warm)
			}
		}
	})
}

func TestContentOfMessages(t *testing.T) {
	for raw, want := range map[string]string{
		`null`: "", `"a"`: "a", `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`: "ab",
		`[{"type":"thinking","thinking":"x"},{"type":"image_url"},{"type":"tool_use","name":"ls","input":{"a" : 1}}]`: `<image_url><tool ls>{"a":1}`,
		`[{"type":"tool_result","content":"r"},{"type":"tool_result","content":[{"type":"text","text":"s"}]}]`:        "<result>r<result>s",
		`[{"type":"tool_result","content":[{"type":"tool_result","content":[{"type":"text","text":"deep"}]}]}]`:       "<result><result>",
	} {
		var got text
		if err := got.UnmarshalJSON([]byte(raw)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", raw, got, err, want)
		}
	}
	for raw, want := range map[string]string{`"ab"`: "<|begin|>ab", `[24930]`: "ab", `[[24930]]`: "ab", `["ab"]`: "<|begin|>ab", `[[[24930]]]`: "", `{}`: ""} {
		var got promptTokens
		err := got.UnmarshalJSON([]byte(raw))
		if textOf(got) != want || (err != nil) != (want == "") {
			t.Errorf("prompt %s: %q, %v; want %q", raw, textOf(got), err, want)
		}
	}
}
