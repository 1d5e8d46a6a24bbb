package fakevllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/gateway/memnet"
)

// reply is what the tests read of an answer of chat and completions.
type reply struct {
	ID      string
	Choices []struct {
		Message struct{ Role, Content string }
		Text    string
		Finish  string `json:"finish_reason"`
	}
	Usage usage
}

func chatOf(messages []map[string]string, maxTokens int, more map[string]any) string {
	body := map[string]any{"model": "test", "messages": messages, "max_tokens": maxTokens}
	for k, v := range more {
		body[k] = v
	}
	return jsonOf(body)
}

// figures scrapes /metrics. Labels but reason, source and finished_reason are left out.
func (r *rig) figures() map[string]float64 {
	r.t.Helper()
	status, data := r.do("/metrics", "")
	if status != http.StatusOK {
		r.t.Fatalf("/metrics: status %d", status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			key := name
			for _, l := range m.Label {
				switch l.GetName() {
				case "reason", "source", "finished_reason":
					key += "/" + l.GetValue()
				case "engine":
					if l.GetValue() != "0" {
						r.t.Errorf("%s: engine %q", name, l.GetValue())
					}
				}
			}
			all[key] = valueOf(m)
		}
	}
	return all
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

// A second turn finds the whole blocks of the first prompt and answer, but for the token that was sampled last.
func TestSecondTurnIsCached(t *testing.T) {
	for _, async := range []bool{false, true} {
		memnet.Bubble(t, func(t *testing.T) {
			cfg := small(t)
			cfg.Engine.Async = async
			r := newRig(t, cfg)
			defer r.close()
			talk := []map[string]string{{"role": "system", "content": strings.Repeat("You are brief. ", 50)}, {"role": "user", "content": "Go."}}
			first := get[reply](r, "/v1/chat/completions", chatOf(talk, 100, map[string]any{"ignore_eos": true}))
			if first.Usage.CompletionTokens != 100 || first.Choices[0].Finish != "length" || first.Usage.Details.CachedTokens != 0 {
				t.Fatalf("first answer: %+v", first)
			}
			talk = append(talk, map[string]string{"role": "assistant", "content": first.Choices[0].Message.Content}, map[string]string{"role": "user", "content": "And?"})
			second := get[reply](r, "/v1/chat/completions", chatOf(talk, 10, nil))
			want := (first.Usage.PromptTokens + 100 - 1) / 16 * 16
			if got := second.Usage.Details.CachedTokens; got != want {
				t.Errorf("async %v: %d tokens cached, want %d of %d", async, got, want, second.Usage.PromptTokens)
			}
			again := get[reply](r, "/v1/chat/completions", chatOf(talk, 10, nil))
			if got, want := again.Usage.Details.CachedTokens, (second.Usage.PromptTokens-1)/16*16; got != want {
				t.Errorf("async %v: repeated, %d tokens cached, want %d", async, got, want)
			}
			if again.Choices[0].Message.Content != second.Choices[0].Message.Content {
				t.Error("the same request has another answer")
			}
			if f := r.figures(); f["vllm:prefix_cache_hits_total"] != float64(want+again.Usage.Details.CachedTokens) ||
				f["vllm:prompt_tokens_by_source_total/local_cache_hit"] != f["vllm:prompt_tokens_cached_total"] ||
				f["vllm:prefix_cache_queries_total"] != float64(first.Usage.PromptTokens+second.Usage.PromptTokens+again.Usage.PromptTokens) {
				t.Errorf("metrics: %v", f)
			}
			tokens := get[struct{ Tokens []uint32 }](r, "/tokenize", jsonOf(map[string]any{"model": "test", "messages": talk}))
			res := get[struct {
				Tokens int32 `json:"resident_tokens"`
			}](r, "/sluice/resident", jsonOf(map[string]any{"tokens": tokens.Tokens}))
			if res.Tokens != again.Usage.Details.CachedTokens {
				t.Errorf("the probe says %d tokens are resident, want %d", res.Tokens, again.Usage.Details.CachedTokens)
			}
			rendered := get[struct {
				IDs []uint32 `json:"token_ids"`
			}](r, "/v1/chat/completions/render", chatOf(talk, 10, nil))
			if fmt.Sprint(rendered.IDs) != fmt.Sprint(tokens.Tokens) {
				t.Error("render and tokenize disagree")
			}
		})
	}
}

// A client that goes away takes its request along: blocks are free at the end of the step, and the stream of another goes on.
func TestAbortFreesBlocks(t *testing.T) {
	for _, stream := range []bool{false, true} {
		memnet.Bubble(t, func(t *testing.T) {
			r := newRig(t, small(t))
			defer r.close()
			ctx, cancel := context.WithCancel(context.Background())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://engine/v1/completions", strings.NewReader(completionOf(tokenList(1, 5000), 5000, stream)))
				if resp, err := r.client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			time.Sleep(2 * time.Second)
			if f := r.figures(); f["vllm:num_requests_running"] != 1 || f["vllm:kv_cache_usage_perc"] < 0.3 {
				t.Fatalf("stream %v: not running: %v", stream, f)
			}
			cancel()
			<-gone
			time.Sleep(100 * time.Millisecond)
			f := r.figures()
			if f["vllm:num_requests_running"] != 0 || f["vllm:kv_cache_usage_perc"] != 0 || f["vllm:request_success_total/abort"] != 1 {
				t.Errorf("stream %v: after the client has gone: %v", stream, f)
			}
			if n := get[map[string]int](r, "/load", "")["server_load"]; n != 0 {
				t.Errorf("load is %d", n)
			}
			c := r.server.engine()
			if len(c.live)+len(c.inbox) != 0 {
				t.Errorf("%d live requests, %d not taken in", len(c.live), len(c.inbox))
			}
		})
	}
}

// Two contexts that do not fit together: one is preempted, both get all their tokens, and nothing is left over.
func TestPreemption(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		cfg := small(t)
		cfg.Blocks = 100
		r := newRig(t, cfg)
		defer r.close()
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				if list := r.stream("/v1/completions", completionOf(tokenList(i, 700), 400, true)); len(list) != 403 {
					t.Errorf("request %d: %d events, want 403", i, len(list))
				}
			})
		}
		all.Wait()
		if f := r.figures(); f["vllm:num_preemptions_total"] < 1 || f["vllm:request_success_total/length"] != 2 || f["vllm:generation_tokens_total"] != 800 {
			t.Errorf("metrics: %v", f)
		}
	})
}

// Whoever follows the KV events, counting copies, knows what the pool holds; and names are kept of that and of nothing else.
func TestKVEventsFollowThePool(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		cfg := small(t)
		cfg.Blocks = 200
		copies := map[kvevents.Hash]int{}
		parents := map[kvevents.Hash]kvevents.Hash{}
		cfg.publish = func(events []kvevents.Event) {
			for _, e := range events {
				switch e.Kind {
				case kvevents.BlockStored:
					if len(e.Tokens) != 16*len(e.Hashes) {
						t.Errorf("%d tokens for %d blocks", len(e.Tokens), len(e.Hashes))
					}
					at, has := e.Parent, e.HasParent
					for _, h := range e.Hashes {
						copies[h]++
						if has {
							parents[h] = at
						}
						at, has = h, true
					}
				case kvevents.BlockRemoved:
					if copies[e.Hashes[0]]--; copies[e.Hashes[0]] == 0 {
						delete(copies, e.Hashes[0])
					} else if copies[e.Hashes[0]] < 0 {
						t.Error("a block was evicted that had not been stored")
					}
				case kvevents.AllBlocksCleared:
					clear(copies)
				}
			}
		}
		r := newRig(t, cfg)
		defer r.close()
		agree := func() {
			t.Helper()
			c := r.server.engine()
			if int64(len(copies)) != c.loop.Pool().Cached() || len(copies) != len(c.names.known) {
				t.Fatalf("%d blocks by the events, %d in the pool, %d named", len(copies), c.loop.Pool().Cached(), len(c.names.known))
			}
			for h := range copies {
				if _, ok := c.names.known[uint64(h)]; !ok {
					t.Fatal("a block of the events has no name")
				}
			}
		}
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 130 * time.Millisecond)
				prompt := append(tokenList(i%3, 300), tokenList(100+i%7, 100+i*10)...)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if i%5 == 4 { // a client that leaves
					time.AfterFunc(400*time.Millisecond, cancel)
				}
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://engine/v1/completions", strings.NewReader(completionOf(prompt, 50+i*7, true)))
				if resp, err := r.client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		agree()
		if len(copies) == 0 || len(parents) == 0 {
			t.Fatal("no events")
		}
		hashes := blockHashes(tokenList(0, 300), 16, "")
		for i := 1; i < len(hashes); i++ {
			if p, ok := parents[kvevents.Hash(hashes[i])]; !ok || uint64(p) != hashes[i-1] {
				t.Fatalf("block %d: parent %x, want %x", i, p, hashes[i-1])
			}
		}
		if got := get[map[string]bool](r, "/reset_prefix_cache", "{}"); !got["reset"] {
			t.Fatal("not reset")
		}
		agree()
		if c := r.server.engine(); len(copies) != 0 || len(c.names.spare) != len(c.names.streams) {
			t.Errorf("%d blocks after the reset, %d of %d streams spare", len(copies), len(c.names.spare), len(c.names.streams))
		}
	})
}

func TestErrors(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		cfg := small(t)
		cfg.MaxBodyBytes = 100_000
		r := newRig(t, cfg)
		defer r.close()
		defer time.Sleep(time.Second) // a connection that was sent too much is closed after half a second
		long := strings.Repeat("word ", 16_000)
		for _, c := range []struct {
			path, body string
			status     int
			message    string
		}{
			{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"model":"gpt"}`, 404, `no model "gpt"`},
			{"/v1/chat/completions", `{"messages":`, 400, "not the JSON"},
			{"/v1/chat/completions", `{"messages":[]}`, 400, "messages is empty"},
			{"/v1/chat/completions", `{"messages":[{"content":"x"}]}`, 400, "no role"},
			{"/v1/chat/completions", `{"messages":[{"role":"user","content":3}]}`, 400, "not the JSON"},
			{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"n":2}`, 400, "n is 2"},
			{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":0}`, 400, "at least 1"},
			{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_completion_tokens":20000}`, 400, "max_completion_tokens is 20000"},
			{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":5,"min_tokens":6}`, 400, "min_tokens is 6"},
			{"/v1/chat/completions", jsonOf(map[string]any{"messages": []any{map[string]any{"role": "user", "content": long}}}), 400, "maximum context length is 16000"},
			{"/v1/completions", `{"prompt":[]}`, 400, "no tokens"},
			{"/v1/completions", `{"prompt":["a","b"]}`, 400, "prompt must be"},
			{"/v1/completions", jsonOf(map[string]any{"prompt": long + long}), 413, "longer than 100000"},
			{"/v1/responses", `{"input":5}`, 400, "input must be"},
			{"/v1/responses", `{"input":"x","previous_response_id":"resp_none"}`, 404, "no response resp_none"},
			{"/v1/messages", `{"messages":[{"role":"user","content":"x"}]}`, 400, "max_tokens is missing"},
			{"/fault", `{"fail_status":99}`, 400, "fail_status is 99"},
			{"/nothing", `{}`, 404, ""},
		} {
			status, body := r.do(c.path, c.body)
			if status != c.status || !strings.Contains(string(body), strings.ReplaceAll(c.message, `"`, `\"`)) {
				t.Errorf("%s: status %d, %s; want %d and %q", c.path, status, body, c.status, c.message)
			}
			var shape struct {
				Type  string
				Error struct {
					Message, Type string
					Code          int
				}
			}
			if c.message == "" {
				continue
			}
			if err := json.Unmarshal(body, &shape); err != nil || shape.Error.Message == "" || (c.path == "/v1/messages") != (shape.Type == "error") ||
				(c.path != "/v1/messages" && shape.Error.Code != c.status) {
				t.Errorf("%s: not an error of the API: %s", c.path, body)
			}
		}
	})
}

func TestFaults(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, small(t))
		defer r.close()
		ask := completionOf(tokenList(1, 100), 10, false)
		set := func(f string) { t.Helper(); get[Faults](r, "/fault", f) }
		set(`{"fail_next":2,"fail_status":503}`)
		for i, want := range []int{503, 503, 200} {
			if status, _ := r.do("/v1/completions", ask); status != want {
				t.Errorf("request %d: status %d, want %d", i, status, want)
			}
		}
		set(`{"die_next":1,"die_after_tokens":4}`)
		resp := r.send(context.Background(), "/v1/completions", completionOf(tokenList(1, 100), 10, true))
		list, err := eventsOf(resp.Body)
		resp.Body.Close()
		if len(list) != 4 || err == nil {
			t.Errorf("a stream that dies has %d events and error %v, want 4 and one", len(list), err)
		}
		set(`{"metrics_status":500,"health_status":503,"resident_status":404}`)
		for _, c := range [][2]string{{"/metrics", ""}, {"/health", ""}, {"/sluice/resident", `{"tokens":[1]}`}} {
			if status, _ := r.do(c[0], c[1]); status < 400 {
				t.Errorf("%s: status %d", c[0], status)
			}
		}
		set(`{"metrics_status":0,"metrics_hang":true,"resident_status":0,"resident_hang":true,"tokenize_hang":true}`)
		for _, c := range [][2]string{{"/metrics", ""}, {"/sluice/resident", `{"tokens":[1]}`}, {"/tokenize", `{"prompt":"x"}`}} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			method := map[bool]string{true: "GET", false: "POST"}[c[1] == ""]
			req, _ := http.NewRequestWithContext(ctx, method, "http://engine"+c[0], strings.NewReader(c[1]))
			if _, err := r.client.Do(req); err == nil {
				t.Errorf("%s answers", c[0])
			}
			cancel()
		}
		set(`{"metrics_hang":false,"latency_factor":10}`)
		start := time.Now()
		r.do("/v1/completions", ask)
		slow := time.Since(start)
		set(`{"latency_factor":1}`)
		start = time.Now()
		r.do("/v1/completions", ask)
		if fast := time.Since(start); slow < 9*fast {
			t.Errorf("ten times slower is %v against %v", slow, fast)
		}
		go func() { time.Sleep(50 * time.Millisecond); set(`{"restart":true,"restart_after_s":5}`) }()
		resp = r.send(context.Background(), "/v1/completions", completionOf(tokenList(2, 100), 1000, true))
		if list, err := eventsOf(resp.Body); err == nil || len(list) > 20 {
			t.Errorf("a stream survives a restart: %d events, %v", len(list), err)
		}
		resp.Body.Close()
		if resp, err := r.client.Get("http://engine/health"); err == nil {
			resp.Body.Close()
			t.Error("a server that is down answers")
		}
		time.Sleep(6 * time.Second)
		if f := r.figures(); f["vllm:prompt_tokens_total"] != 0 {
			t.Errorf("counters go on after a restart: %v", f["vllm:prompt_tokens_total"])
		}
		if a := get[reply](r, "/v1/completions", ask); a.Usage.Details.CachedTokens != 0 {
			t.Errorf("%d tokens are cached after a restart", a.Usage.Details.CachedTokens)
		}
	})
}

// Asleep, a server forgets its cache, aborts what is under way and lets what comes wait.
func TestSleep(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, small(t))
		defer r.close()
		var all sync.WaitGroup
		all.Go(func() {
			a := get[reply](r, "/v1/completions", completionOf(tokenList(1, 100), 1000, false))
			if a.Choices[0].Finish != "abort" {
				t.Errorf("finish reason %q", a.Choices[0].Finish)
			}
		})
		time.Sleep(time.Second)
		if status, _ := r.do("/sleep?level=1", "{}"); status != 200 {
			t.Errorf("sleep: status %d", status)
		}
		all.Wait()
		if !get[map[string]bool](r, "/is_sleeping", "")["is_sleeping"] || r.server.engine().loop.Pool().Cached() != 0 {
			t.Error("not asleep, or not empty")
		}
		start := time.Now()
		all.Go(func() { get[reply](r, "/v1/completions", completionOf(tokenList(1, 100), 10, false)) })
		time.Sleep(10 * time.Second)
		r.do("/wake_up", "{}")
		all.Wait()
		if d := time.Since(start); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("a request that met a sleeping server took %v", d)
		}
	})
}
