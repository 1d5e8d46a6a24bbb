package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/policies"
)

// One test for each row of the table of failures (spec: gateway 4.5). Those that clients bring about have a file of their own.

// Replica down before the first byte: release the lease, mark the replica, one re-route, the session is unpinned.
func TestFailureReplicaDownBeforeFirstByte(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, plainPolicy, func(c *Config) { c.Health.PeriodS = 3600 })
		first := r.sendOK(request{session: "s"})
		home, other := r.stubs[0], r.stubs[1]
		if first.replica != "r0" {
			t.Fatalf("the first turn went to %s", first.replica)
		}
		home.die()
		synctest.Wait() // no connection to it idles any more
		if x := r.sendOK(request{session: "s", stream: true}); x.replica != "r1" || !strings.Contains(x.body, "[DONE]") {
			t.Errorf("the next turn: %+v", x)
		}
		if s := r.state("r0"); s.State != "down" {
			t.Errorf("the replica that refused is %s", s.State)
		}
		a := r.settled()
		if a.Admitted != 3 || a.Failed != 1 || a.Finished != 2 {
			t.Errorf("accounts %+v", a)
		}
		if x := r.sendOK(request{session: "s"}); x.replica != "r1" || other.requests.Load() != 2 || r.audit().Admitted != 4 {
			t.Errorf("the session still belongs to the replica that is down: %+v", x)
		}
	})
}

// With every engine down there is one re-route and then an answer, not a search without end.
func TestFailureAllReplicasDown(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 3, plainPolicy, func(c *Config) { c.Health.PeriodS, c.Limits.WaitS = 3600, 0.3 })
		for _, s := range r.stubs {
			s.die()
		}
		x := r.send(request{session: "s"})
		if x.status != 502 || x.reason != "upstream_failed" || x.header.Get("Retry-After") == "" {
			t.Errorf("%+v", x)
		}
		if a := r.settled(); a.Admitted != 2 || a.Failed != 2 {
			t.Errorf("accounts %+v", a)
		}
		r.send(request{session: "s"})
		if x := r.send(request{session: "s"}); x.status != 503 || x.reason != "wait_exceeded" {
			t.Errorf("once all are known to be down: %+v", x)
		}
		r.settled()
	})
}

// Dies mid-stream: error to the client, no silent retry, lease released, cache view cleared.
func TestFailureReplicaDiesMidStream(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, plainPolicy, func(c *Config) { c.Health.PeriodS = 3600 })
		home := r.stubs[0]
		home.set(func() { home.serve = oneTokenThenHang })
		r.g.driver.Do(func(b *Batch) {
			s := r.g.table
			p, err := s.Place(chainOf(t, r.g, 64))
			check(t, err)
			b.Stored(0, p.Stream, 0, 4, 16)
		})
		if hit := r.knows(0); hit != 64 {
			t.Fatalf("the cache view has %d tokens", hit)
		}
		answer := make(chan got, 1)
		go func() { answer <- r.send(request{session: "s", stream: true}) }()
		until(t, "mid-stream", func() bool { return strings.Contains(string(r.g.file.Last(5)), "first_token") })
		home.die()
		x := <-answer
		if x.err == nil || !strings.Contains(x.body, `"t"`) || strings.Contains(x.body, "[DONE]") {
			t.Errorf("the client got %+v", x)
		}
		r.untilState("r0", "down")
		if a := r.settled(); a.Admitted != 1 || a.Failed != 1 || r.stubs[1].requests.Load() != 0 {
			t.Errorf("a silent retry, or a lease that lives: %+v", a)
		}
		if hit := r.knows(0); hit != 0 {
			t.Errorf("the cache view still has %d tokens", hit)
		}
	})
}

// A stream that ends without its end, though the connection is in order.
func TestFailureStreamIsCutOff(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, nil)
		r.stubs[0].set(func() {
			r.stubs[0].serve = func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"t\"}}]}\n\n")
			}
		})
		if x := r.send(request{session: "s", stream: true}); x.err == nil {
			t.Errorf("the client takes half an answer for a whole one: %+v", x)
		}
		if a := r.settled(); a.Failed != 1 {
			t.Errorf("accounts %+v", a)
		}
	})
}

// Restart: counters are reset, residency is void, leases end, and nobody rushes to the newcomer.
func TestFailureReplicaRestarts(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, "policy: {gate: none, router: least-requests}\n", nil)
		r.stubs[1].set(func() { r.stubs[1].metrics = metricsOf(0, 0, 0, 5000) })
		until(t, "a scrape", func() bool { return r.state("r1").Sample["prefix_query_tokens"] == int64(5000) })
		r.g.driver.Do(func(b *Batch) {
			p, err := r.g.table.Place(chainOf(t, r.g, 64))
			check(t, err)
			b.Stored(1, p.Stream, 0, 4, 16)
		})
		let := make(chan struct{})
		r.stubs[0].set(func() {
			r.stubs[0].serve = func(http.ResponseWriter, *http.Request) { <-let; panic(http.ErrAbortHandler) }
		})
		r.stubs[1].set(func() { r.stubs[1].serve = hang })
		answers := make(chan got, 8)
		for i := range 8 {
			go func() { answers <- r.send(request{session: fmt.Sprint(i)}) }()
		}
		until(t, "all run", func() bool { return r.audit().Live == 8 && r.stubs[0].requests.Load()+r.stubs[1].requests.Load() == 8 })
		time.Sleep(20 * time.Millisecond)
		if hit := r.knows(1); hit != 64 {
			t.Fatalf("the cache view has %d tokens", hit)
		}
		r.stubs[1].set(func() { r.stubs[1].metrics, r.stubs[1].serve = metricsOf(0, 0, 0, 10), nil })
		until(t, "the restart noticed", func() bool { return r.audit().Live == 4 })
		for range 4 {
			if x := <-answers; x.status != 504 || x.reason != "lease_expired" {
				t.Errorf("a turn on the old process: %+v", x)
			}
		}
		if a := balanced(t, r.g.driver); a.Failed != 4 || a.Abandoned != 4 {
			t.Errorf("accounts %+v", a)
		}
		if hit := r.knows(1); hit != 0 {
			t.Errorf("%d tokens of what the old process held are still known", hit)
		}
		r.stubs[0].set(func() { r.stubs[0].serve = nil })
		close(let)
		for range 4 {
			<-answers
		}
		r.settled()
		r.untilState("r0", "up")
		went := map[string]int{}
		var all sync.WaitGroup
		var mu sync.Mutex
		for i := range 40 {
			all.Go(func() {
				x := r.sendOK(request{session: fmt.Sprint("new", i)})
				mu.Lock()
				went[x.replica]++
				mu.Unlock()
			})
		}
		all.Wait()
		if went["r1"] > 30 {
			t.Errorf("of 40 new sessions went %v", went)
		}
	})
}

// Slow or wedged replica: an outlier by the age of its leases, although its health check answers.
func TestFailureWedgedReplica(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, "policy: {gate: none, router: least-requests}\n", func(c *Config) { c.Health.WedgedS = 0.2 })
		r.stubs[0].set(func() { r.stubs[0].serve = hang })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answer := make(chan got, 1)
		go func() { answer <- r.sendUntil(ctx, request{session: "s"}) }()
		r.untilState("r0", "draining")
		if why := r.state("r0").Why; len(why) != 1 || why[0] != "wedged" {
			t.Errorf("why: %v", why)
		}
		for i := range 5 {
			if x := r.sendOK(request{session: fmt.Sprint(i)}); x.replica != "r1" {
				t.Errorf("a new turn went to the wedged replica: %+v", x)
			}
		}
		cancel()
		<-answer
		r.untilState("r0", "up")
	})
}

// A client that does not read its answer says nothing of the engine, which waits for it. In real
// time: the proxy's copying waits for a mutex then, which no bubble takes for waiting.
func TestFailureSlowReader(t *testing.T) {
	r := newRig(t, 1, "policy: {gate: none, router: least-requests}\n", func(c *Config) { c.Health.WedgedS, c.Health.TimeoutS = 0.2, 10 })
	var written atomic.Int64
	event := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("t", 64<<10) + "\"}}]}\n\n")
	r.stubs[0].set(func() {
		r.stubs[0].serve = func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for q.Context().Err() == nil {
				n, err := w.Write(event)
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
		}
	})
	conn, err := network.Dial(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	check(t, err)
	defer conn.Close()
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	check(t, err)
	stalled := func() bool {
		before := written.Load()
		time.Sleep(100 * time.Millisecond)
		return before > 0 && written.Load() == before
	}
	until(t, "the answer is held up by its client", stalled)
	for range 50 {
		if s := r.state("r0"); s.State != "up" {
			t.Fatalf("the replica of a slow client is %s: %v", s.State, s.Why)
		}
		time.Sleep(10 * time.Millisecond)
	}
	conn.Close()
	r.settled()
}

// Scrape stale or missing: the age is known, and what is seen then is chosen; it is never silently zero.
func TestFailureStaleScrapes(t *testing.T) {
	for _, stale := range []string{"hold-last", "ignore", "saturated"} {
		t.Run(stale, func(t *testing.T) {
			memnet.Bubble(t, func(t *testing.T) {
				r := newRig(t, 2, "policy: {gate: none, router: lmetric}\n", func(c *Config) {
					c.Signals.Stale, c.Signals.HoldS, c.Signals.StaleAfterS = stale, 0.3, 0.2
				})
				r.stubs[0].set(func() { r.stubs[0].metrics = metricsOf(3, 1, .4, 100) })
				sample := func() (s policies.Sample) {
					r.g.driver.Do(func(b *Batch) { s = b.View().Sample(0) })
					return s
				}
				until(t, "a sample", func() bool { return sample().Running == 3 })
				r.stubs[0].set(func() { r.stubs[0].metrics = http.NotFound })
				start := time.Now()
				until(t, "stale", func() bool { return sample().Running != 3 })
				took := time.Since(start)
				s := sample()
				switch stale {
				case "saturated":
					if s.Usage != 1 || s.Waiting < 1000 || took < 150*time.Millisecond {
						t.Errorf("after %v: %+v", took, s)
					}
				case "ignore":
					if s.Has != 0 || took < 150*time.Millisecond {
						t.Errorf("after %v: %+v", took, s)
					}
				default:
					if s.Has != 0 || took < 450*time.Millisecond {
						t.Errorf("after %v: %+v", took, s)
					}
				}
				if age := r.state("r0").SampleAge; age == nil || *age < .15 {
					t.Errorf("the sample's age is %v", age)
				}
				r.stubs[0].set(func() { r.stubs[0].metrics = metricsOf(5, 0, .1, 200) })
				until(t, "fresh again", func() bool { return sample().Running == 5 })
				r.sendOK(request{session: "s"})
			})
		})
	}
}

// Probe unavailable or late: the decision path is the same but for the term.
func TestFailureProbeUnavailable(t *testing.T) {
	for name, probe := range map[string]http.HandlerFunc{
		"404": nil, "hangs": hang, "500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"nonsense": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kv_cache_usage":7}`) },
		"out of range": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kv_cache_usage":-1,"resident_tokens":-3}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			memnet.Bubble(t, func(t *testing.T) {
				r := newRig(t, 2, "policy: {gate: session, router: sticky}\n", func(c *Config) { c.Signals.Probe.Path, c.Signals.Probe.TimeoutS = "/probe", 0.1 })
				for _, s := range r.stubs {
					s.set(func() { s.probe = probe })
				}
				for range 3 {
					start := time.Now()
					if x := r.sendOK(request{session: "s"}); time.Since(start) > time.Second || x.replica != "r0" {
						t.Errorf("after %v at %s", time.Since(start), x.replica)
					}
				}
				log := string(r.g.file.Last(100))
				if strings.Count(log, `"reason":"probe_unavailable"`) != 3 || name == "hangs" && !strings.Contains(log, `"outcome":"timeout"`) {
					t.Errorf("decisions:\n%s", log)
				}
			})
		})
	}
	t.Run("answers", func(t *testing.T) {
		memnet.Bubble(t, func(t *testing.T) {
			r := newRig(t, 1, "policy: {gate: session, router: sticky}\n", func(c *Config) { c.Signals.Probe.Path = "/probe" })
			r.stubs[0].set(func() {
				r.stubs[0].probe = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kv_cache_usage":0.25}`) }
			})
			r.sendOK(request{session: "s"})
			if log := string(r.g.file.Last(100)); !strings.Contains(log, `"outcome":"value","usage":0.25`) || !strings.Contains(log, `"reason":"open"`) {
				t.Errorf("decisions:\n%s", log)
			}
		})
	})
}

// Weight sync, drain, sleep: the replica takes nothing new and what it held is void.
func TestFailureReplicaSleeps(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, plainPolicy, nil)
		r.sendOK(request{session: "s"})
		r.stubs[0].set(func() { r.stubs[0].sleeping = true })
		r.untilState("r0", "draining")
		if x := r.sendOK(request{session: "s"}); x.replica != "r1" {
			t.Errorf("a turn went to a sleeping replica: %+v", x)
		}
		r.stubs[0].set(func() { r.stubs[0].sleeping = false })
		r.untilState("r0", "up")
		if x := r.post("/replicas/r1/drain", ""); x.status != 200 {
			t.Errorf("%+v", x)
		}
		if s := r.state("r1"); s.State != "draining" || s.Why[0] != "drained" {
			t.Errorf("%+v", s)
		}
		time.Sleep(100 * time.Millisecond) // health checks do not end what an operator began
		if x := r.sendOK(request{session: "s"}); x.replica != "r0" {
			t.Errorf("a turn went to a draining replica: %+v", x)
		}
		if x := r.post("/replicas/r1/resume", ""); x.status != 200 || r.state("r1").State != "up" {
			t.Errorf("%+v", x)
		}
		if x := r.post("/replicas/nobody/drain", ""); x.status != 404 {
			t.Errorf("%+v", x)
		}
	})
}

// Oversize prompt: refused at the gate, with a reason.
func TestFailureOversizePrompt(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, func(c *Config) { c.Replicas[0].KVTokens, c.Prompt.Basis = 100, "tokens" })
		x := r.send(request{path: "/v1/completions", body: `{"prompt":[` + strings.Repeat("5,", 100) + `5]}`})
		if x.status != 400 || x.reason != "prompt_too_long" || r.stubs[0].requests.Load() != 0 || r.audit().Arrived != 0 {
			t.Errorf("%+v", x)
		}
		r.sendOK(request{session: "s", body: `{"messages":[{"role":"user","content":"` + strings.Repeat("an image ", 100) + `"}]}`}) // nobody counted its tokens
	})
}

// Gateway restart, many gateways: a session's place is a rendezvous hash over the replicas that are up, so gateways that know
// nothing of each other, and one that has just started, agree.
func TestFailureManyGatewaysAgree(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		secret := filepath.Join(t.TempDir(), "secret")
		check(t, os.WriteFile(secret, []byte("0123456789abcdef"), 0o600))
		policy := "policy: {gate: none, router: {name: chwbl, key: session, load_factor: 1000000}}\n"
		a := newRig(t, 4, policy, func(c *Config) { c.SecretFile = secret })
		b := newRig(t, 4, policy, func(c *Config) {
			c.SecretFile = secret
			for i := range c.Replicas {
				c.Replicas[i].URL = a.stubs[i].URL
			}
		})
		agree := func(from, to int) map[string]int {
			t.Helper()
			went := map[string]int{}
			for i := from; i < to; i++ {
				b.sendOK(request{session: fmt.Sprint("only of b ", i)})
				x, y := a.sendOK(request{session: fmt.Sprint(i)}), b.sendOK(request{session: fmt.Sprint(i)})
				if x.replica != y.replica {
					t.Errorf("session %d is on %s in one gateway, on %s in the other", i, x.replica, y.replica)
				}
				went[x.replica]++
			}
			return went
		}
		if went := agree(0, 40); len(went) != 4 {
			t.Errorf("sessions went to %v", went)
		}
		a.stubs[2].set(func() { a.stubs[2].unwell = true })
		a.untilState("r2", "down")
		b.untilState("r2", "down")
		if went := agree(0, 40); len(went) != 3 {
			t.Errorf("without r2 sessions went to %v", went)
		}
	})
}

// Too busy for its health check: it takes nothing new, and is not down.
func TestFailureLateHealthCheck(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 2, plainPolicy, func(c *Config) { c.Health.TimeoutS = 0.05 })
		r.sendOK(request{session: "s"})
		r.g.driver.Do(func(b *Batch) {
			p, err := r.g.table.Place(chainOf(t, r.g, 64))
			check(t, err)
			b.Stored(0, p.Stream, 0, 4, 16)
		})
		r.stubs[0].set(func() { r.stubs[0].late = 200 * time.Millisecond })
		r.untilState("r0", "draining")
		if why := r.state("r0").Why; len(why) != 1 || why[0] != "late" {
			t.Errorf("why: %v", why)
		}
		if x := r.sendOK(request{session: "s"}); x.replica != "r1" {
			t.Errorf("a turn went to a replica that is too busy: %+v", x)
		}
		if hit := r.knows(0); hit != 64 {
			t.Errorf("%d tokens of its cache are known", hit)
		}
		r.stubs[0].set(func() { r.stubs[0].late = 0 })
		r.untilState("r0", "up")
	})
}
