package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/policies/decisionlog"
)

func fileLines(t testing.TB, path string) decisionlog.Lines {
	data, err := os.ReadFile(path)
	check(t, err)
	return linesOf(data)
}

const plainPolicy = "policy: {gate: none, router: sticky}\n"

// TestAnswersPassByteForByte sends the bytes of an engine's answer in odd pieces.
func TestAnswersPassByteForByte(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, nil)
		for path := range apis {
			for _, stream := range []bool{false, true} {
				want := "event: message_stop\r\ndata: {\"type\":\"message_stop\"}\r\n\r\n: comment\n\ndata: {\"choices\":[{\"text\":\"\u00e9\"}]}\n\ndata: [DONE]\n\n"
				kind := "text/event-stream"
				if !stream {
					want, kind = `{ "id" : "x" , "usage" : {"prompt_tokens":3}  , "unknown": [1,  2] }`+"\n", "application/json"
				}
				r.stubs[0].set(func() {
					r.stubs[0].serve = func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", kind)
						w.Header().Set("X-Engine", "y")
						w.WriteHeader(http.StatusOK)
						for i := 0; i < len(want); i += 7 {
							_, _ = io.WriteString(w, want[i:min(i+7, len(want))])
							w.(http.Flusher).Flush()
						}
					}
				})
				body := fmt.Sprintf(`{"model":"m" , "prompt":"p", "input":"p", "messages":[{"role":"user","content":"x"}],"stream":%v,"stream_options":{"include_usage":true}}`, stream)
				x := r.sendOK(request{path: path, body: body, session: "s"})
				if x.body != want || x.header.Get("X-Engine") != "y" || x.header.Get("Content-Type") != kind {
					t.Errorf("%s stream %v: %q\nexpected %q\n%v", path, stream, x.body, want, x.header)
				}
				if sent := string(<-r.stubs[0].bodies); sent != body {
					t.Errorf("%s: the engine got %s", path, sent)
				}
				for _, h := range []string{"X-Sluice-Replica", "X-Sluice-Queue-Ms", "X-Sluice-Decision"} {
					if x.header.Get(h) == "" {
						t.Errorf("%s: no header %s", path, h)
					}
				}
			}
		}
	})
}

// TestUsageIsAskedForAndTakenOut: the engine is asked for usage, the core hears of it, the client sees what it would have
// seen.
func TestUsageIsAskedForAndTakenOut(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, nil)
		x := r.sendOK(request{session: "s", stream: true})
		if strings.Contains(x.body, "usage") || !strings.HasSuffix(x.body, "data: [DONE]\n\n") || strings.Count(x.body, "data:") != 6 {
			t.Errorf("the client got %q", x.body)
		}
		if sent := string(<-r.stubs[0].bodies); !strings.HasPrefix(sent, `{"stream_options":{"include_usage":true},"model"`) || !json.Valid([]byte(sent)) {
			t.Errorf("the engine got %s", sent)
		}
		x = r.sendOK(request{session: "s", body: `{"model":"m","messages":[],"prompt":"y","stream":true,"stream_options":{"include_usage":true}}`})
		if !strings.Contains(x.body, usageText) {
			t.Errorf("a client that asks for usage got %q", x.body)
		}
		<-r.stubs[0].bodies
		for _, options := range []string{`null`, `{}`, `{"include_usage":false}`} { // a second member of that name would be no JSON that everybody reads
			body := `{"model":"m","messages":[],"prompt":"y","stream":true,"stream_options":` + options + `}`
			r.sendOK(request{session: "s", body: body})
			if sent := string(<-r.stubs[0].bodies); sent != body {
				t.Errorf("stream_options %s: the engine got %s", options, sent)
			}
		}
		r.settled()
		log := string(r.g.file.Last(100))
		if n := strings.Count(log, `"fact":"finished","attempt":1,"replica":0,"prompt_tokens":7,"output_tokens":5,"hit_tokens":3`); n != 1 {
			t.Errorf("the core was told of the usage %d times:\n%s", n, log)
		}
		if askUsage([]byte(" { } ")) == nil || string(askUsage([]byte(" { }"))) != ` {"stream_options":{"include_usage":true} }` {
			t.Error("an empty object")
		}
	})
}

// TestStreamsAreFlushed: the client has the first token while the engine still computes.
func TestStreamsAreFlushed(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		for _, options := range []string{"", `,"stream_options":{"include_usage":true}`} {
			r := newRig(t, 1, plainPolicy, nil)
			go_on := make(chan struct{})
			r.stubs[0].set(func() {
				r.stubs[0].serve = func(w http.ResponseWriter, q *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"t\"}}]}\n\n")
					w.(http.Flusher).Flush()
					<-go_on
					_, _ = io.WriteString(w, "data: [DONE]\n\n")
				}
			})
			resp, err := r.do(t.Context(), request{body: `{"messages":[{"role":"user","content":"x"}],"stream":true` + options + `}`})
			check(t, err)
			first := make([]byte, 5)
			_, err = io.ReadFull(resp.Body, first)
			check(t, err)
			if a := r.audit(); a.Live != 1 {
				t.Errorf("accounts mid-stream: %+v", a)
			}
			close(go_on)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			r.close()
		}
	})
}

// TestTheNextTurnFindsTheLastOneOver: a client that sends its next turn as soon as it has seen the end of an answer is never
// taken for two at a time.
func TestTheNextTurnFindsTheLastOneOver(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, plainPolicy, nil)
		for i := range 50 {
			for _, stream := range []bool{true, false} {
				resp, err := r.do(t.Context(), request{session: "s", stream: stream})
				check(t, err)
				end := []byte("[DONE]\n\n")
				if !stream {
					end = []byte("}}}")
				}
				var seen []byte
				for buf := make([]byte, 1); !bytes.HasSuffix(seen, end); {
					n, err := resp.Body.Read(buf)
					if seen = append(seen, buf[:n]...); err != nil {
						break
					}
				}
				if a := r.audit(); a.Live != 0 {
					t.Fatalf("turn %d, stream %v: the client has seen the end and a lease lives", i, stream)
				}
				resp.Body.Close()
			}
		}
		if a := r.settled(); a.ThreadNumbers != 1 || a.Finished != 100 {
			t.Errorf("accounts %+v", a)
		}
	})
}

func TestModelsHealthAndMetrics(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, plainPolicy, nil)
		get := func(path string) got {
			resp, err := r.client.Get(r.url + path)
			check(t, err)
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return got{status: resp.StatusCode, body: string(b)}
		}
		r.sendOK(request{session: "s"})
		if x := get("/v1/models"); x.status != 200 || !strings.Contains(x.body, `"id":"m"`) {
			t.Errorf("/v1/models: %+v", x)
		}
		if x := get("/health"); x.status != 200 || !strings.Contains(x.body, `"replicas_up":2`) {
			t.Errorf("/health: %+v", x)
		}
		x := get("/metrics")
		for _, want := range []string{"sluice_lease_imbalance 0", `sluice_attempts_total{outcome="finished"} 1`, `sluice_replica_state{replica="r1"} 1`, `sluice_requests_total{path="/v1/chat/completions",status="200"} 1`} {
			if !strings.Contains(x.body, want+"\n") {
				t.Errorf("/metrics has no %s", want)
			}
		}
		if x := get("/debug/state"); x.status != 200 || !json.Valid([]byte(x.body)) || !strings.Contains(x.body, `"imbalance":0`) {
			t.Errorf("/debug/state: %+v", x)
		}
		if x := get("/decisions?n=2"); x.status != 200 || strings.Count(x.body, "\n") != 2 {
			t.Errorf("/decisions: %+v", x)
		}
		if x := get("/v1/embeddings"); x.status != 404 {
			t.Errorf("another path: %+v", x)
		}
		r.stubs[0].set(func() { r.stubs[0].unwell = true })
		r.stubs[1].set(func() { r.stubs[1].unwell = true })
		until(t, "no replica", func() bool { return get("/health").status == 503 })
	})
}

func (r *rig) post(path, body string) got {
	r.t.Helper()
	resp, err := r.client.Post(r.url+path, "application/json", strings.NewReader(body))
	check(r.t, err)
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return got{status: resp.StatusCode, body: string(b), reason: resp.Header.Get("X-Sluice-Reason")}
}

// TestDecisionsWithoutTheDataPath: the lease of /decide counts like any other, and is released once.
func TestDecisionsWithoutTheDataPath(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, "policy: {gate: {name: max-requests, max_requests: 1}, router: sticky}\n", func(c *Config) { c.Limits.WaitS = 5 })
		var d decision
		x := r.post("/decide", `{"session":"s","token_ids":[1,2,3,4],"max_tokens":5}`)
		if x.status != 200 || json.Unmarshal([]byte(x.body), &d) != nil || d.Lease != 1 || d.URL != r.stubs[0].URL || d.Reason != "slot_free" {
			t.Fatalf("/decide: %+v", x)
		}
		if x := r.post("/decide", `{"session":"t","prompt":"x","wait_s":0.05}`); x.status != 503 || x.reason != "wait_exceeded" {
			t.Errorf("a second turn while there is one slot: %+v", x)
		}
		released := func(body, want string) {
			t.Helper()
			if x := r.post("/release", body); x.status != 200 || x.body != `{"released":`+want+"}\n" {
				t.Errorf("/release %s: %+v", body, x)
			}
		}
		released(`{"lease":1,"outcome":"finished","output_tokens":5}`, "true")
		released(`{"lease":1,"outcome":"failed"}`, "false")
		released(`{"lease":77,"outcome":"cancelled"}`, "false")
		for _, bad := range []string{`{"lease":1}`, `[`, `{"lease":1,"outcome":"x"}`} {
			if x := r.post("/release", bad); x.status != 400 {
				t.Errorf("/release %s: %+v", bad, x)
			}
		}
		if x := r.post("/decide", `{"session":"s"}`); x.status != 400 || x.reason != "invalid_prompt" {
			t.Errorf("a turn without a prompt: %+v", x)
		}
		if x := r.post("/finish_session?session_id=s", ""); x.body != "{\"known\":true}\n" {
			t.Errorf("/finish_session: %+v", x)
		}
		if x := r.post("/finish_session", `{"session_id":"s"}`); x.body != "{\"known\":false}\n" {
			t.Errorf("/finish_session again: %+v", x)
		}
		if a := r.settled(); a.Finished != 1 || a.GaveUp != 1 {
			t.Errorf("accounts %+v", a)
		}
	})
}

// TestALeaseOfDecideThatNobodyReleases is taken back.
func TestALeaseOfDecideThatNobodyReleases(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "policy: {gate: {name: max-requests, max_requests: 1}, router: sticky}\n", func(c *Config) { c.Limits.LeaseS = 0.1 })
		r.post("/decide", `{"session":"s","prompt":"x"}`)
		r.sendOK(request{session: "t"})
		if a := r.settled(); a.Expired != 1 || a.Failed != 1 || a.Finished != 1 {
			t.Errorf("accounts %+v", a)
		}
	})
}

// TestALeaseOfDecideWhenTheGatewayStops ends with the gateway: nobody could give it back any more.
func TestALeaseOfDecideWhenTheGatewayStops(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, nil)
		r.post("/decide", `{"session":"s","prompt":"x"}`)
		r.close()
		if a := r.audit(); a.Live != 0 || a.Failed != 1 {
			t.Errorf("accounts %+v", a)
		}
	})
}

func TestNothingThatClientsSendIsShown(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, "policy: {gate: session, router: lmetric}\n", func(c *Config) { c.Retries.Reroutes = 1 })
		secrets := []string{"hunter2", "sk-key", "session-name", "request-name"}
		for range 3 {
			r.send(request{session: "session-name", id: "request-name", body: `{"model":"m","messages":[{"role":"user","content":"hunter2"}],"user":"hunter2"}`, header: http.Header{"Authorization": {"Bearer sk-key"}}})
		}
		r.send(request{body: `{"messages":[{"role":"user","content":"hunter2"`})
		r.send(request{session: strings.Repeat("session-name", 100)})
		for _, s := range r.stubs {
			s.die()
		}
		x := r.send(request{session: "session-name", body: `{"messages":[{"role":"user","content":"hunter2"}]}`})
		shown := r.log.String() + x.body
		for _, path := range []string{"/debug/state", "/decisions", "/metrics"} {
			resp, err := r.client.Get(r.url + path)
			check(t, err)
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			shown += string(b)
		}
		log, err := os.ReadFile(r.g.cfg.Log.Path)
		check(t, err)
		shown += string(log)
		for _, s := range secrets {
			if strings.Contains(shown, s) {
				t.Errorf("%s is shown", s)
			}
		}
		if len(shown) < 10000 {
			t.Errorf("only %d bytes were looked through", len(shown))
		}
	})
}

func TestLimits(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "policy: {gate: {name: max-requests, max_requests: 1}, router: sticky}\n", func(c *Config) {
			c.Limits.BodyBytes, c.Limits.HeaderBytes, c.Limits.Waiting, c.Limits.Running, c.Limits.WaitS, c.Limits.BodyS = 2000, 4096, 1, 3, 0.3, 0.5
		})
		long := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 3000) + `"}]}`
		if x := r.send(request{body: long}); x.status != 413 || x.reason != "body_too_large" {
			t.Errorf("a long body: %+v", x)
		}
		if x := r.send(request{header: http.Header{"X-Long": {strings.Repeat("x", 20000)}}}); x.status != 431 {
			t.Errorf("a long header: %+v", x)
		}
		for body, reason := range map[string]string{
			`{"messages":`: "invalid_body", `[]`: "invalid_body", `{"a":1,"a":2}`: "invalid_body", `{}`: "invalid_prompt",
			strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200): "body_too_large",
		} {
			if x := r.send(request{body: body}); x.status/100 != 4 || x.reason != reason || !strings.Contains(x.body, `"code":"`+reason) {
				t.Errorf("%.30s: %+v", body, x)
			}
		}
		if x := r.send(request{session: strings.Repeat("x", 300)}); x.status != 400 || x.reason != "invalid_session_id" {
			t.Errorf("a long session id: %+v", x)
		}
		r.stubs[0].set(func() { r.stubs[0].serve = hang })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		running := make(chan got, 3)
		go func() { running <- r.sendUntil(ctx, request{session: "a"}) }()
		until(t, "one runs", func() bool { return r.audit().Live == 1 })
		go func() { running <- r.send(request{session: "b"}) }()
		until(t, "one waits", func() bool { return r.audit().Waiting == 1 })
		x := r.send(request{session: "c"})
		if x.status != 429 || x.reason != "queue_full" || x.header.Get("Retry-After") != "1" {
			t.Errorf("a full queue: %+v", x)
		}
		if x := <-running; x.status != 503 || x.reason != "wait_exceeded" || x.header.Get("Retry-After") == "" {
			t.Errorf("a long wait: %+v", x)
		}
		x = r.send(request{path: "/v1/messages", session: "c"})
		var problem struct{ Type string }
		if json.Unmarshal([]byte(x.body), &problem) != nil || problem.Type != "error" || x.status != 503 {
			t.Errorf("the messages API has errors of its own form: %+v", x)
		}
		cancel()
		<-running
		r.settled()
	})
}

func TestASlowBodyIsNotWaitedFor(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, func(c *Config) { c.Limits.BodyS = 0.1 })
		body, w := io.Pipe()
		defer w.Close()
		req, err := http.NewRequest(http.MethodPost, r.url+"/v1/chat/completions", body)
		check(t, err)
		go func() { _, _ = w.Write([]byte(`{"messages":`)) }()
		start := time.Now()
		resp, err := r.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		if time.Since(start) > 3*time.Second || err == nil && resp.StatusCode != 400 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestTokensOfPrompts(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, func(c *Config) { c.Prompt.Basis = "tokens" })
		if got, err := tokenIDs([]byte(`{"count":2,"tokens":[5,6]}`)); err != nil || len(got) != 2 {
			t.Errorf("/tokenize: %v %v", got, err)
		}
		if got, err := tokenIDs([]byte(`[{"token_ids":[5,6]}]`)); err != nil || len(got) != 2 {
			t.Errorf("render: %v %v", got, err)
		}
		if _, err := tokenIDs([]byte(`{}`)); err == nil {
			t.Error("an answer without tokens was taken")
		}
		r.sendOK(request{session: "s"}) // stubs have no /tokenize
		if !strings.Contains(r.log.String(), "identified by their bytes") {
			t.Error("the fall back to bytes is not said")
		}
		r.sendOK(request{path: "/v1/completions", session: "s", body: `{"prompt":[1,2,3,4,5]}`})
		if log := string(r.g.file.Last(100)); !strings.Contains(log, `"prompt_tokens":5`) {
			t.Error("token ids that the client gives are not used")
		}
	})
}

// TestTheDecisionLogEndsAtItsSize: serving goes on, what is written replays (newRig sees to that), and it is said.
func TestTheDecisionLogEndsAtItsSize(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, func(c *Config) { c.Log.MaxBytes = 20_000 })
		for i := range 100 {
			r.sendOK(request{session: fmt.Sprint(i)})
		}
		a := r.settled()
		if a.LogErrors == 0 || a.Finished != 100 || r.g.file.Err() == nil {
			t.Errorf("accounts %+v, the log ended with %v", a, r.g.file.Err())
		}
		until(t, "it is written", func() bool { return r.g.file.written.Load() > 15_000 })
		if info, err := os.Stat(r.g.cfg.Log.Path); err != nil || info.Size() > 20_000 {
			t.Errorf("%v %v", info, err)
		}
		r.g.file.why = nil // closing it is no fault of the test
	})
}

// TestALogThatIsThereIsKept under a name with a number.
func TestALogThatIsThereIsKept(t *testing.T) {
	path := t.TempDir() + "/d.jsonl"
	for i := range 3 {
		d, err := newDecisionFile(path, 1000, 4)
		check(t, err)
		_, err = fmt.Fprintf(d, "line of %d\n", i)
		check(t, err)
		check(t, d.Close())
	}
	for name, want := range map[string]string{path + ".1": "line of 0\n", path + ".2": "line of 1\n", path: "line of 2\n"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

// TestBodiesHaveABudget: bodies that come at the same time take no more memory together than they may, and give it back.
func TestBodiesHaveABudget(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, func(c *Config) { c.Limits.BodyBytes, c.Limits.Bodies = 40_000, 100_000 })
		r.stubs[0].set(func() { r.stubs[0].serve = hang })
		body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 35_000) + `"}]}`
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		left := make(chan got, 2)
		for range 2 {
			go func() { left <- r.sendUntil(ctx, request{session: "s", body: body}) }()
		}
		until(t, "two run", func() bool { return r.audit().Live == 2 })
		for _, path := range []string{"", "/decide", "/release"} {
			x := r.send(request{session: "s", path: path, body: body})
			if x.status != http.StatusServiceUnavailable || x.reason != "bodies_full" || x.header.Get("Retry-After") == "" {
				t.Errorf("%q: status %d, reason %q", path, x.status, x.reason)
			}
		}
		if x := r.send(request{session: "s", body: strings.Repeat(" ", 50_000)}); x.status != http.StatusRequestEntityTooLarge {
			t.Errorf("a body that is too large in any case: status %d", x.status)
		}
		cancel()
		<-left
		<-left
		r.settled()
		until(t, "everything given back", func() bool { return r.g.bodies.Load() == 0 })
		r.stubs[0].set(func() { r.stubs[0].serve = nil })
		r.sendOK(request{session: "s", body: body})
	})
}
