package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"syscall"
	"time"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/gateway/identity"
	"github.com/sluice-sim/sluice/gateway/recorder"
	"github.com/sluice-sim/sluice/gateway/sse"
	"github.com/sluice-sim/sluice/policies"
)

// flight is one request on its way: its attempts one after another, and what is known of its answer. It belongs to the
// goroutine that serves the request; only the driver calls its cancel.
type flight struct {
	g          *Gateway
	api        sse.API
	parsed     *identity.Body
	id         identity.Identity
	class      int32  // service class
	group      int32  // -1 for none
	requestKey string // what a repetition has too: session, the client's name of the request, body; "" without a name
	chain      content.Chain
	basis      content.Basis // of chain
	tokens     []int32       // of the prompt, if they are known
	ctx        context.Context
	cancel     context.CancelCauseFunc

	attempt *Attempt
	verdict Verdict
	waited  time.Duration // over all attempts
	came    policies.Time // when the first attempt arrived

	strip      bool // the stream's usage was asked for by the gateway
	sent       bool // an engine has answered
	first      bool
	ended      bool
	responseID string
}

// outcome is how a request ended.
type outcome struct {
	finished bool
	usage    sse.Usage
}

// Reasons for which the driver or the gateway cancels a running request.
var (
	errRevoked  = errors.New("the lease was taken back")
	errDraining = errors.New("the gateway is stopping")
)

// arrive brings the request's first or next attempt to the core. former, if not nil, says inside Do which attempt it comes
// after; nil for none. failed, if not nil, reports there how that one ended.
func (f *flight) arrive(former func() *Attempt, failed func(b *Batch)) *refusal {
	var err error
	var refused *refusal
	f.g.driver.Do(func(b *Batch) {
		if failed != nil {
			failed(b)
		}
		x := Arrival{
			Session: f.sessionKey(), Thread: f.id.Key, Key: f.g.keyOf(f.sessionKey()), MaxTokens: f.parsed.MaxTokens, Owner: f,
			Class: f.class, Group: f.group,
			Cancel: func() { f.cancel(errRevoked) },
		}
		if former != nil {
			if x.Former = former(); x.Former != nil {
				if refused = f.g.spendRetry(b, f.sessionKey()); refused != nil {
					return
				}
			}
		}
		var a *Attempt
		if a, err = f.g.place(b, x, f.chain); err == nil {
			if f.attempt == nil {
				f.came = b.Now()
			}
			f.attempt = a
			if f.requestKey != "" && f.ctx.Err() == nil { // nobody takes it out again once the client has left
				f.g.byID[f.requestKey] = f
			}
		}
	})
	if err != nil {
		return f.g.refusalOf(err)
	}
	return refused
}

// sessionKey is the session of the request's conversation.
func (f *flight) sessionKey() string {
	if f.id.Parent != "" {
		return f.id.Parent
	}
	return f.id.Key
}

// await waits for the verdict on the current attempt.
func (f *flight) await() *refusal {
	patience := time.NewTimer(seconds(f.g.cfg.Limits.WaitS) - f.waited)
	defer patience.Stop()
	a := f.attempt
	var refused *refusal
	select {
	case v := <-a.Verdict():
		return f.decided(v)
	case <-f.ctx.Done():
		refused = &refusal{status: statusClientGone, reason: "client_left"}
		switch context.Cause(f.ctx) {
		case errDraining:
			refused = f.g.draining()
		case errRepeated:
			refused = f.g.refusedByGate(Verdict{Kind: Stopped})
		}
	case <-patience.C:
		refused = unavailable("wait_exceeded", "the turn waited for as long as a turn may wait", seconds(f.g.cfg.Limits.RetryAfterS))
	}
	f.g.driver.Do(func(b *Batch) { b.Gone(a); b.Failed(a) }) // it may have become a lease in the meantime
	f.ended = true
	return refused
}

// statusClientGone is what is counted for a client that left; nobody reads it.
const statusClientGone = 499

func (f *flight) decided(v Verdict) *refusal {
	f.verdict = v
	f.waited += v.Waited
	f.g.metrics.waited(v)
	if v.Kind == Go {
		return nil
	}
	f.ended = true
	f.record(recorder.Refused, 0)
	return f.g.refusedByGate(v)
}

// RoundTrip implements http.RoundTripper: it sends the request to the engine that the core chose, and, when that fails
// before its first byte, to the one that the core chooses then.
func (f *flight) RoundTrip(req *http.Request) (*http.Response, error) {
	for sends := int64(0); ; sends++ {
		resp, err := f.send(req)
		if err == nil {
			f.sent = true
			return resp, nil
		}
		if f.ctx.Err() != nil {
			return nil, err
		}
		if sends >= f.g.cfg.Retries.Reroutes {
			f.g.failed(f.attempt, err)
			f.ended = true
			return nil, err
		}
		if refused := f.reroute(err); refused != nil {
			return nil, refused
		}
	}
}

// send sends the request once. The error says that no byte of an answer came.
func (f *flight) send(req *http.Request) (*http.Response, error) {
	r := f.g.replicas[f.attempt.replica]
	a := f.attempt
	trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			f.g.driver.Do(func(b *Batch) { b.Dispatched(a) })
		}
	}}
	out := req.Clone(httptrace.WithClientTrace(req.Context(), trace))
	r.address(out)
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body, out.GetBody = body, nil
	}
	return f.g.transport.RoundTrip(out)
}

// reroute reports that the attempt's engine failed and has the core place the turn anew.
func (f *flight) reroute(err error) *refusal {
	former := f.attempt
	refused := f.arrive(func() *Attempt { return former }, func(b *Batch) { f.g.failedIn(b, former, err) })
	f.g.checkSoon(former.replica)
	if refused != nil {
		f.ended = true
		return refused
	}
	f.g.metrics.reroutes.Inc()
	return f.await()
}

// failedIn reports a request that got no answer. Where nobody listens the engine is down; otherwise it takes nothing new
// until its health was checked.
func (g *Gateway) failedIn(b *Batch, a *Attempt, err error) {
	b.Failed(a)
	if errors.Is(err, syscall.ECONNREFUSED) || isDial(err) {
		g.down(b, a.replica)
	} else {
		g.suspect(b, a.replica)
	}
}

func (g *Gateway) failed(a *Attempt, err error) {
	g.driver.Do(func(b *Batch) { g.failedIn(b, a, err) })
	g.checkSoon(a.replica)
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// touch says that something of the request has moved.
func (f *flight) touch() { f.attempt.touched.Store(int64(f.g.clock.Now())) }

// firstToken reports the first token, once.
func (f *flight) firstToken(u sse.Usage) {
	if f.first || f.ended {
		return
	}
	f.first = true
	f.g.driver.Do(func(b *Batch) { b.FirstToken(f.attempt, usageOf(u)) })
}

func usageOf(u sse.Usage) Usage {
	return Usage{Prompt: u.PromptTokens, Output: u.OutputTokens, Cached: u.CachedTokens}
}

// end reports that the engine's answer has ended, once.
func (f *flight) end(o outcome) {
	if f.ended {
		return
	}
	f.ended = true
	outcome := f.cut()
	if o.finished {
		outcome = recorder.Finished
	}
	f.record(outcome, o.usage.OutputTokens)
	f.g.driver.Do(func(b *Batch) {
		if o.finished {
			b.Finished(f.attempt, usageOf(o.usage))
		} else {
			b.Failed(f.attempt)
		}
		f.over(b)
	})
}

// brokeOff reports that the engine's answer broke off in the middle. It is not tried again: the client has seen a part.
func (f *flight) brokeOff() {
	if f.ended || f.ctx.Err() != nil {
		return
	}
	f.ended = true
	f.record(f.cut(), 0)
	f.g.driver.Do(func(b *Batch) {
		b.Failed(f.attempt)
		f.g.suspect(b, f.attempt.replica)
		f.over(b)
	})
	f.g.checkSoon(f.attempt.replica)
}

// cut is the outcome of a request that did not end well.
func (f *flight) cut() recorder.Outcome {
	if f.first {
		return recorder.Cut
	}
	return recorder.NoOutput
}

// release ends whatever has not ended: the client left, the engine broke off, the lease was taken back.
func (f *flight) release() {
	left := f.clientLeft()
	f.cancel(nil)
	if f.ended || f.attempt == nil {
		return
	}
	f.ended = true
	f.record(f.cut(), 0)
	f.g.driver.Do(func(b *Batch) {
		if left {
			b.Gone(f.attempt)
		}
		b.Failed(f.attempt)
		f.over(b)
	})
}

func (f *flight) clientLeft() bool {
	return f.ctx.Err() != nil && context.Cause(f.ctx) == context.Canceled
}

// over ends the session if this was its last turn.
func (f *flight) over(b *Batch) {
	if f.id.Final {
		b.EndSession(f.id.Key)
	}
	if f.responseID != "" {
		f.g.responses.put(f.g.digest("response", []byte(f.responseID)), f.id, 1)
	}
}

// keyOf names a session in the same way in every gateway that has the same secret; 0 for none.
func (g *Gateway) keyOf(session string) int64 {
	if session == "" {
		return 0
	}
	sum := g.digest("session", []byte(session))
	return int64(binary.LittleEndian.Uint64(sum[:8]))
}

// place makes the prompt a prefix of the table and brings the arrival.
func (g *Gateway) place(b *Batch, x Arrival, c content.Chain) (*Attempt, error) {
	var err error
	if x.Prompt, err = g.table.Place(c); err != nil {
		return nil, err
	}
	a, err := b.Arrive(x)
	if err != nil {
		g.table.Drop(x.Prompt.Stream)
	}
	return a, err
}

// spendRetry takes a retry from the budget of a session.
func (g *Gateway) spendRetry(b *Batch, session string) *refusal {
	ok, wait := b.Retry(session, int(g.cfg.Retries.PerSession), policies.Time(seconds(g.cfg.Retries.WindowS)))
	if ok {
		return nil
	}
	return tooMany("retry_budget", "the session has used up its second attempts", time.Duration(wait))
}
