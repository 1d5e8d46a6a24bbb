package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway/memnet"
)

// The rows of the table of failures that clients and the gateway itself bring about.

// Client disconnects, stream and not: the upstream is cancelled within a second and the lease released once.
func TestFailureClientDisconnects(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{"before the first byte": hang, "mid-stream": oneTokenThenHang} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", stream), func(t *testing.T) {
				memnet.Bubble(t, func(t *testing.T) {
					r := newRig(t, 1, plainPolicy, nil)
					r.stubs[0].set(func() { r.stubs[0].serve = serve })
					ctx, cancel := context.WithCancel(t.Context())
					answer := make(chan got, 1)
					go func() { answer <- r.sendUntil(ctx, request{session: "s", stream: stream}) }()
					until(t, "the engine works", func() bool {
						return r.stubs[0].requests.Load() == 1 && (name != "mid-stream" || strings.Contains(string(r.g.file.Last(5)), "first_token"))
					})
					left := time.Now()
					cancel()
					<-answer
					select {
					case at := <-r.stubs[0].cancelled:
						if at.Sub(left) > time.Second {
							t.Errorf("the engine was told after %v", at.Sub(left))
						}
					case <-time.After(5 * time.Second):
						t.Error("the engine was not told")
					}
					if a := r.settled(); a.Cancelled != 1 || a.Admitted != 1 {
						t.Errorf("accounts %+v", a)
					}
					if s := r.state("r0"); s.State != "up" {
						t.Errorf("the replica is %s because a client left", s.State)
					}
				})
			})
		}
	}
}

// Lease leak: clients that leave at every point; admitted = finished + failed + cancelled + live at all times.
func TestFailureLeasesAreConserved(t *testing.T) {
	for _, policy := range []string{
		"policy: {gate: {name: max-requests, max_requests: 4}, router: lmetric}\n", "policy: {gate: session, router: sticky}\n",
		"policy: {gate: {name: max-sessions, max_sessions: 3}, router: smetric}\n",
	} {
		t.Run(policy, func(t *testing.T) {
			memnet.Bubble(t, func(t *testing.T) {
				r := newRig(t, 3, policy, func(c *Config) { c.Limits.WaitS, c.Retries.PerSession = 0.2, 1000 })
				for i, s := range r.stubs {
					s.set(func() { s.serve = fickle(uint64(i)) })
				}
				var all sync.WaitGroup
				for i := range 24 {
					all.Go(func() {
						draw := rand.New(rand.NewPCG(2, uint64(i)))
						for n := range 25 {
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(draw.IntN(60_000))*time.Microsecond)
							if n%5 == 0 {
								ctx, cancel = context.WithTimeout(t.Context(), 400*time.Millisecond)
							}
							r.sendUntil(ctx, request{session: fmt.Sprint("s", draw.IntN(10)), stream: draw.IntN(2) == 0})
							cancel()
							balanced(t, r.g.driver)
						}
					})
				}
				all.Wait()
				if a := r.settled(); a.Arrived < 300 || a.Cancelled < 5 || a.Finished < 50 || a.Failed < 5 {
					t.Errorf("accounts %+v", a)
				}
			})
		})
	}
}

// fickle is an engine that answers, delays, breaks off, refuses and fails at random.
func fickle(seed uint64) http.HandlerFunc {
	var mu sync.Mutex
	draw := rand.New(rand.NewPCG(3, seed))
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n, wait := draw.IntN(12), time.Duration(draw.IntN(20))*time.Millisecond
		mu.Unlock()
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
		}
		switch n {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			oneTokenThenHang(w, r)
		case 2:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"t\"}}]}\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 3:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			fiveTokens(w, r)
		}
	}
}

// Queued client gives up: it leaves the gate's queue, without a ghost.
func TestFailureQueuedClientGivesUp(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "policy: {gate: {name: max-requests, max_requests: 1}, router: sticky}\n", nil)
		r.stubs[0].set(func() { r.stubs[0].serve = hang })
		first, leave := context.WithCancel(t.Context())
		answers := make(chan got, 2)
		go func() { answers <- r.sendUntil(first, request{session: "a"}) }()
		until(t, "one runs", func() bool { return r.audit().Live == 1 })
		second, giveUp := context.WithCancel(t.Context())
		go func() { answers <- r.sendUntil(second, request{session: "b"}) }()
		until(t, "one waits", func() bool { return r.audit().Waiting == 1 })
		giveUp()
		<-answers
		until(t, "none waits", func() bool { return r.audit().Waiting == 0 })
		r.stubs[0].set(func() { r.stubs[0].serve = nil })
		leave()
		<-answers
		r.sendOK(request{session: "c"})
		if a := r.settled(); a.GaveUp != 1 || a.Admitted != 2 || r.stubs[0].requests.Load() != 2 {
			t.Errorf("accounts %+v", a)
		}
	})
}

// Session never ends: an idle time ends it, and so does the bound on sessions, for the one that was idle for longest.
func TestFailureSessionNeverEnds(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "policy: {gate: {name: max-sessions, max_sessions: 1}, router: sticky}\n", func(c *Config) { c.Limits.SessionIdleS = 1 })
		r.sendOK(request{session: "a"})
		start := time.Now()
		r.sendOK(request{session: "b"}) // waits for the slot of a
		if waited := time.Since(start); waited < 500*time.Millisecond {
			t.Errorf("the slot of an idle session came back after %v", waited)
		}
		until(t, "no session", func() bool { return r.audit().Sessions == 0 })
		r = newRig(t, 1, plainPolicy, func(c *Config) { c.Limits.Sessions = 3 })
		for i := range 50 {
			r.sendOK(request{session: fmt.Sprint(i)})
		}
		if a := r.settled(); a.Sessions != 3 || a.SessionNumbers > 4 || a.ThreadNumbers > 4 {
			t.Errorf("accounts %+v", a)
		}
	})
}

// Retry storm: a request that is sent again takes the place of the first, within a budget, and Retry-After says when.
func TestFailureRetryStorm(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "policy: {gate: {name: max-requests, max_requests: 1}, router: sticky}\n", func(c *Config) { c.Retries.PerSession, c.Retries.WindowS = 3, 60 })
		r.stubs[0].set(func() { r.stubs[0].serve = hang })
		ctx, leave := context.WithCancel(t.Context())
		running := make(chan got, 1)
		go func() { running <- r.sendUntil(ctx, request{session: "other"}) }()
		until(t, "one runs", func() bool { return r.audit().Live == 1 })
		answers := make(chan got, 20)
		for i := range 10 {
			arrived := r.audit().Arrived
			go func() { answers <- r.send(request{session: "s", id: "same"}) }()
			if i <= 3 {
				until(t, "it has come", func() bool { return r.audit().Arrived == arrived+1 })
			} else {
				x := <-answers
				if x.status != 429 || x.reason != "retry_budget" || x.header.Get("Retry-After") == "" {
					t.Errorf("beyond the budget: %+v", x)
				}
			}
			if i >= 1 && i <= 3 {
				if x := <-answers; x.status != 409 || x.reason != "superseded" {
					t.Errorf("the attempt before: %+v", x)
				}
			}
		}
		if a := balanced(t, r.g.driver); a.Waiting != 1 || a.Superseded != 3 {
			t.Errorf("accounts %+v", a)
		}
		r.stubs[0].set(func() { r.stubs[0].serve = nil })
		leave()
		<-running
		if x := <-answers; x.status != 200 {
			t.Errorf("the last attempt: %+v", x)
		}
		r.settled()
	})
}

// A request that is sent again while the first one runs cancels that one.
func TestFailureRetryOfARunningRequest(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, nil)
		r.stubs[0].set(func() { r.stubs[0].serve = hang })
		first := make(chan got, 1)
		go func() { first <- r.send(request{session: "s", id: "same"}) }()
		until(t, "one runs", func() bool { return r.stubs[0].requests.Load() == 1 })
		r.stubs[0].set(func() { r.stubs[0].serve = nil })
		r.sendOK(request{session: "s", id: "same"})
		if x := <-first; x.status != 409 || x.reason != "superseded" {
			t.Errorf("the first: %+v", x)
		}
		if a := r.settled(); a.ThreadNumbers != 1 || a.Finished != 1 || a.Failed != 1 {
			t.Errorf("accounts %+v", a)
		}
	})
}

// A proxy in front may give all requests of one trace the same X-Request-ID: another prompt is no repetition.
func TestSameRequestIDOtherRequest(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, nil)
		let := make(chan struct{})
		r.stubs[0].set(func() {
			r.stubs[0].serve = func(w http.ResponseWriter, q *http.Request) { <-let; fiveTokens(w, q) }
		})
		answers := make(chan got, 4)
		for i := range 4 {
			q := request{session: "s", id: "trace", body: fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d"}]}`, i)}
			if i >= 2 { // of no session
				q = request{path: "/v1/completions", id: "trace", body: fmt.Sprintf(`{"model":"m","prompt":[1,2,%d]}`, i)}
			}
			go func() { answers <- r.send(q) }()
		}
		until(t, "all run", func() bool { return r.stubs[0].requests.Load() == 4 || len(answers) > 0 })
		close(let)
		for range 4 {
			if x := <-answers; x.status != 200 {
				t.Errorf("status %d: %s", x.status, x.body)
			}
		}
		r.settled()
	})
}

// The gateway drains: what runs may end, what waits is told to go elsewhere, and so is who comes.
func TestFailureGatewayDrains(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "policy: {gate: {name: max-requests, max_requests: 1}, router: sticky}\n", nil)
		let := make(chan struct{})
		r.stubs[0].set(func() {
			r.stubs[0].serve = func(w http.ResponseWriter, q *http.Request) { <-let; fiveTokens(w, q) }
		})
		running, waits := make(chan got, 1), make(chan got, 1)
		go func() { running <- r.send(request{session: "a", stream: true}) }()
		until(t, "one runs", func() bool { return r.stubs[0].requests.Load() == 1 })
		go func() { waits <- r.send(request{session: "b"}) }()
		until(t, "one waits", func() bool { return r.audit().Waiting == 1 })
		stopped := make(chan struct{})
		go func() { r.g.Stop(context.Background()); close(stopped) }()
		if x := <-waits; x.status != 503 || x.reason != "draining" || x.header.Get("Retry-After") == "" {
			t.Errorf("who waits: %+v", x)
		}
		if x := r.send(request{session: "c"}); x.status != 503 || x.reason != "draining" {
			t.Errorf("who comes: %+v", x)
		}
		close(let)
		if x := <-running; x.status != 200 || !strings.Contains(x.body, "[DONE]") {
			t.Errorf("what runs: %+v", x)
		}
		<-stopped
		r.settled()
	})
}

// When the time to drain is over, what still runs is cut off.
func TestFailureDrainTakesTooLong(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, nil)
		r.stubs[0].set(func() { r.stubs[0].serve = oneTokenThenHang })
		running := make(chan got, 1)
		go func() { running <- r.send(request{session: "a", stream: true}) }()
		until(t, "one runs", func() bool { return strings.Contains(string(r.g.file.Last(5)), "first_token") })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		r.g.Stop(ctx)
		if x := <-running; x.err == nil || errors.Is(x.err, context.DeadlineExceeded) {
			t.Errorf("%+v", x)
		}
		r.settled()
	})
}

// A client that left before its request came to the core has nothing there by which a repetition would be known.
func TestARequestWhoseClientLeftEarlyIsNotKept(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, plainPolicy, nil)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		f, refused := r.g.flightOf(httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx), &question{Session: "s", Prompt: "x"})
		if refused == nil {
			f.requestKey = "s\x00q"
			refused = f.arrive(nil, nil)
		}
		if refused != nil {
			t.Fatal(refused)
		}
		f.release()
		r.g.driver.Do(func(*Batch) {
			if n := len(r.g.byID); n != 0 {
				t.Errorf("%d requests are kept", n)
			}
		})
		r.settled()
	})
}
