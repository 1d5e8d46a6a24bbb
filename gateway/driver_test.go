package gateway

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/scenarios"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testDriver is a driver of two replicas that are up.
func testDriver(t testing.TB, clock Clock, gate, router string, knobs policies.Params, change func(*DriverConfig)) (*Driver, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	tree := &prefix.Tree{}
	tree.Root()
	cfg := DriverConfig{
		Core: CoreConfig{Version: "test", Seed: 1, Capabilities: make([]policies.Capability, 2), Policy: scenarios.Policy{
			Gate: scenarios.Choice{Name: gate, Params: knobs}, Router: scenarios.Choice{Name: router},
		}},
		Clock: clock, Tree: tree, Log: log,
	}
	if change != nil {
		change(&cfg)
	}
	d, err := NewDriver(cfg)
	check(t, err)
	d.Do(func(b *Batch) { b.Up(0); b.Up(1) })
	return d, log
}

func number(n float64) policies.Value { return policies.Value{Number: n} }

func arrive(t testing.TB, d *Driver, session string) *Attempt {
	t.Helper()
	var a *Attempt
	d.Do(func(b *Batch) {
		var err error
		a, err = b.Arrive(Arrival{Session: session, Prompt: prefix.Prefix{Tokens: 100}, Group: -1})
		check(t, err)
	})
	return a
}

// verdict is the one that has come; the zero one if none has.
func verdict(a *Attempt) Verdict {
	select {
	case v := <-a.Verdict():
		return v
	default:
		return Verdict{}
	}
}

func balanced(t testing.TB, d *Driver) Audit {
	t.Helper()
	a := d.Audit()
	if a.Imbalance() != 0 {
		t.Fatalf("leases are not conserved: %+v", a)
	}
	return a
}

func TestAWaiterThatGivesUpLeavesNoGhost(t *testing.T) {
	d, _ := testDriver(t, &manualClock{}, "max-requests", "round-robin", policies.Params{"max_requests": number(1)}, nil)
	first, second, third := arrive(t, d, "a"), arrive(t, d, "b"), arrive(t, d, "c")
	if v := verdict(first); v.Kind != Go {
		t.Fatalf("the first turn got %+v", v)
	}
	if v := verdict(second); v.Kind != 0 {
		t.Fatalf("the second turn got %+v before there was a slot", v)
	}
	d.Do(func(b *Batch) { b.Gone(second) })
	d.Do(func(b *Batch) { b.Finished(first, Usage{Output: 1}) })
	if v := verdict(third); v.Kind != Go {
		t.Errorf("the slot went to nobody: %+v", v)
	}
	if v := verdict(second); v.Kind != 0 {
		t.Errorf("the turn whose client left got %+v", v)
	}
	d.Do(func(b *Batch) { b.Failed(third); b.Failed(third); b.Finished(third, Usage{}); b.Gone(third) })
	if a := balanced(t, d); a.Live != 0 || a.Waiting != 0 || a.Admitted != 2 || a.Failed != 1 || a.GaveUp != 1 {
		t.Errorf("accounts %+v", a)
	}
}

// TestCancelledBeforeTheVerdictIsRead: the lease was given and nobody took it.
func TestCancelledBeforeTheVerdictIsRead(t *testing.T) {
	d, _ := testDriver(t, &manualClock{}, "max-requests", "round-robin", policies.Params{"max_requests": number(1)}, nil)
	first := arrive(t, d, "a")
	d.Do(func(b *Batch) { b.Gone(first); b.Failed(first) })
	if a := balanced(t, d); a.Live != 0 || a.Cancelled != 1 {
		t.Errorf("accounts %+v", a)
	}
	if v := verdict(arrive(t, d, "b")); v.Kind != Go {
		t.Errorf("the slot is lost: %+v", v)
	}
}

func TestRetriesSupersedeAndKeepTheirThread(t *testing.T) {
	d, log := testDriver(t, &manualClock{}, "max-requests", "round-robin", policies.Params{"max_requests": number(1)}, nil)
	running := arrive(t, d, "a")
	old := arrive(t, d, "b")
	var again *Attempt
	d.Do(func(b *Batch) {
		var err error
		again, err = b.Arrive(Arrival{Session: "b", Prompt: prefix.Prefix{Tokens: 100}, Group: -1, Former: old})
		check(t, err)
	})
	if v := verdict(old); v.Kind != Stopped || v.Reason != policies.SupersededAttempt {
		t.Errorf("the older attempt got %+v", v)
	}
	d.Do(func(b *Batch) { b.Failed(running) })
	if v := verdict(again); v.Kind != Go || again.thread != old.thread || again.number != 1 {
		t.Errorf("the newer attempt got %+v, turn %d", v, again.number)
	}
	if a := balanced(t, d); a.Superseded != 1 {
		t.Errorf("accounts %+v", a)
	}
	if _, err := decisionlog.Replay(linesOf(log.Bytes())); err != nil {
		t.Error(err)
	}
}

func TestOverlappingTurnsOfOneSessionHaveThreadsOfTheirOwn(t *testing.T) {
	d, _ := testDriver(t, &manualClock{}, "none", "round-robin", nil, nil)
	x, y := arrive(t, d, "a"), arrive(t, d, "a")
	if x.thread == y.thread || x.thread.of.session != y.thread.of.session {
		t.Error("two turns at a time are one thread, or two sessions")
	}
	d.Do(func(b *Batch) { b.Finished(x, Usage{}); b.Finished(y, Usage{}) })
	if z := arrive(t, d, "a"); z.thread != x.thread || z.number != 2 {
		t.Errorf("the next turn is turn %d of another thread", z.number)
	}
}

func TestSessionsEndAndTheirNumbersComeBack(t *testing.T) {
	clock := &manualClock{}
	ended := 0
	d, log := testDriver(t, clock, "session", "sticky", nil, func(c *DriverConfig) {
		c.IdleAfter, c.MaxSessions = time.Minute, 10
		c.Over = func(*Attempt) { ended++ }
	})
	for i := range 2000 {
		clock.advance(clock.now + policies.Second)
		a := arrive(t, d, fmt.Sprint("session ", i))
		if v := verdict(a); v.Kind != Go {
			t.Fatalf("turn %d: %+v", i, v)
		}
		d.Do(func(b *Batch) { b.Finished(a, Usage{Output: 10}) })
	}
	for range 100 { // of no session
		a := arrive(t, d, "")
		d.Do(func(b *Batch) { b.Finished(a, Usage{Output: 10}) })
	}
	a := balanced(t, d)
	if a.Sessions != 10 || a.SessionNumbers > 12 || a.ThreadNumbers > 12 {
		t.Errorf("with 10 sessions at a time the core was told of more numbers: %+v", a)
	}
	clock.advance(clock.now + 61*policies.Second)
	if a := balanced(t, d); a.Sessions != 0 {
		t.Errorf("%d sessions live after the idle time", a.Sessions)
	}
	if ended != 2100 {
		t.Errorf("%d attempts ended", ended)
	}
	if _, err := decisionlog.Replay(linesOf(log.Bytes())); err != nil {
		t.Error(err)
	}
}

func TestEndingASessionIsIdempotentAndWaitsForItsTurns(t *testing.T) {
	d, _ := testDriver(t, &manualClock{}, "none", "round-robin", nil, nil)
	end := func(key string) (ok bool) {
		d.Do(func(b *Batch) { ok = b.EndSession(key) })
		return ok
	}
	a := arrive(t, d, "a")
	var child *Attempt
	d.Do(func(b *Batch) {
		var err error
		child, err = b.Arrive(Arrival{Session: "a", Thread: "a/child", Prompt: prefix.Prefix{Tokens: 5}, Group: -1})
		check(t, err)
	})
	if child.thread.of.session != a.thread.of.session || child.thread == a.thread {
		t.Error("a subagent is no thread of its session")
	}
	if !end("a/child") || !end("a") || !end("a") || end("b") || end("") {
		t.Error("what can be ended was not, or the other way round")
	}
	d.Do(func(b *Batch) { b.Finished(child, Usage{}) })
	if n := balanced(t, d).Sessions; n != 1 {
		t.Errorf("%d sessions while a turn runs", n)
	}
	d.Do(func(b *Batch) { b.Finished(a, Usage{}) })
	if n := balanced(t, d).Sessions; n != 0 || end("a") || end("a/child") {
		t.Errorf("%d sessions after the last turn", n)
	}
}

func TestALeaseThatIsTooOldIsTakenBack(t *testing.T) {
	clock := &manualClock{}
	d, _ := testDriver(t, clock, "max-requests", "round-robin", policies.Params{"max_requests": number(1)}, func(c *DriverConfig) { c.MaxLease = time.Minute })
	cancelled := 0
	var a *Attempt
	d.Do(func(b *Batch) {
		a, _ = b.Arrive(Arrival{Session: "a", Prompt: prefix.Prefix{Tokens: 100}, Cancel: func() { cancelled++ }})
	})
	next := arrive(t, d, "b")
	clock.advance(59 * policies.Second)
	if v := verdict(next); v.Kind != 0 {
		t.Fatalf("too early: %+v", v)
	}
	clock.advance(61 * policies.Second)
	if v := verdict(next); v.Kind != Go || cancelled != 1 {
		t.Errorf("the slot of an old lease: %+v, its owner was told %d times", v, cancelled)
	}
	d.Do(func(b *Batch) { b.Finished(a, Usage{}) }) // too late
	if x := balanced(t, d); x.Expired != 1 || x.Failed != 1 || x.Live != 1 {
		t.Errorf("accounts %+v", x)
	}
}

func TestLimitsOfTheQueueAndOfSessions(t *testing.T) {
	d, _ := testDriver(t, &manualClock{}, "max-requests", "round-robin", policies.Params{"max_requests": number(1)}, func(c *DriverConfig) { c.MaxWaiting, c.MaxSessions = 1, 2 })
	arrive(t, d, "a")
	arrive(t, d, "b")
	for session, want := range map[string]error{"a": ErrQueueFull, "c": ErrQueueFull} {
		d.Do(func(b *Batch) {
			if _, err := b.Arrive(Arrival{Session: session, Prompt: prefix.Prefix{Tokens: 1}}); err != want {
				t.Errorf("session %s: %v", session, err)
			}
		})
	}
	d, _ = testDriver(t, &manualClock{}, "none", "round-robin", nil, func(c *DriverConfig) { c.MaxSessions = 2 })
	a := arrive(t, d, "a")
	arrive(t, d, "b")
	d.Do(func(b *Batch) {
		if _, err := b.Arrive(Arrival{Session: "c", Prompt: prefix.Prefix{Tokens: 1}}); err != ErrTooManySessions {
			t.Errorf("a third session while two run: %v", err)
		}
	})
	d.Do(func(b *Batch) { b.Finished(a, Usage{}) })
	arrive(t, d, "c")
	balanced(t, d)
}

func TestACoreThatPanicsDecidesNothingMore(t *testing.T) {
	d, _ := testDriver(t, &manualClock{}, "max-requests", "lmetric", policies.Params{"max_requests": number(1)}, nil)
	arrive(t, d, "a")
	waits := arrive(t, d, "b")
	d.Do(func(*Batch) { panic("a fault") })
	if v := verdict(waits); v.Kind != Broken {
		t.Errorf("who waits is told %+v", v)
	}
	d.Do(func(b *Batch) {
		if _, err := b.Arrive(Arrival{Session: "c"}); err != ErrCoreFailed {
			t.Errorf("who comes is told %v", err)
		}
	})
	if d.Err() == nil {
		t.Error("nobody can know")
	}
}

// TestTheTimerWakesTheCore in virtual time: a turn that is held for a time is asked again without any fact.
func TestTheTimerWakesTheCore(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		probes := make(chan Probe, 16)
		d, log := testDriver(t, NewClock(), "session", "sticky", nil, func(c *DriverConfig) {
			c.Probe = func(p Probe, _ *policies.View) (Answer, bool) { probes <- p; return Answer{}, true }
		})
		defer d.Close()
		answer := func(usage float64) {
			t.Helper()
			p := <-probes
			d.Do(func(b *Batch) { b.Probed(p, Answer{policies.ProbeValue, usage, 0, 100}) })
		}
		a := arrive(t, d, "a")
		answer(.9) // usage
		answer(0)  // prefix
		if v := verdict(a); v.Kind != 0 {
			t.Fatalf("a turn under pressure got %+v", v)
		}
		time.Sleep(5*time.Second + time.Millisecond) // wait_poll_s
		answer(.1)
		if v := verdict(a); v.Kind != Go || v.Waited < 5*time.Second {
			t.Errorf("after the poll: %+v", v)
		}
		d.Do(func(b *Batch) { b.Finished(a, Usage{Output: 1}) })
		balanced(t, d)
		if _, err := decisionlog.Replay(linesOf(log.Bytes())); err != nil {
			t.Error(err)
		}
	})
}

// TestNothingIsDecidedAfterTheEnd: a timer that runs off while the driver is closed comes when the log is gone.
func TestNothingIsDecidedAfterTheEnd(t *testing.T) {
	clock := &manualClock{}
	d, log := testDriver(t, clock, "max-requests", "round-robin", policies.Params{"max_requests": number(1)}, func(c *DriverConfig) {
		c.MaxLease = time.Second
	})
	if v := verdict(arrive(t, d, "a")); v.Kind != Go {
		t.Fatalf("%+v", v)
	}
	timers := len(clock.timers)
	ranOff := clock.timers[timers-1]
	clock.now = ranOff.at
	d.Close()
	written := log.Len()
	ranOff.f()
	d.Do(func(*Batch) {})
	if log.Len() != written || d.Err() != nil || len(clock.timers) != timers {
		t.Errorf("%d bytes were written, the driver failed with %v, %d timers were set", log.Len()-written, d.Err(), len(clock.timers)-timers)
	}
}

// TestEveryLeaseIsReleasedOnce lets many clients come and go at random, from many goroutines and in virtual time, each
// giving up at a random point of its life: while it waits, with its lease unread, before the first token, mid-stream.
func TestEveryLeaseIsReleasedOnce(t *testing.T) {
	for _, gate := range []string{"session", "max-requests", "max-sessions", "concur", "thunderagent", "llm-d-saturation"} {
		t.Run(gate, func(t *testing.T) {
			memnet.Bubble(t, func(t *testing.T) {
				var d *Driver
				d, log := testDriver(t, NewClock(), gate, "smetric", nil, func(c *DriverConfig) {
					c.Probe = func(p Probe, _ *policies.View) (Answer, bool) {
						go func() {
							time.Sleep(time.Millisecond)
							d.Do(func(b *Batch) { b.Probed(p, Answer{policies.ProbeValue, .5, 10, 100}) })
						}()
						return Answer{Outcome: policies.ProbeTimeout}, p.Attempt.ID()%3 != 0
					}
					c.MaxSessions, c.IdleAfter, c.MaxLease = 50, 20*time.Second, 10*time.Second
				})
				defer d.Close()
				var all sync.WaitGroup
				for i := range 64 {
					all.Go(func() { client(t, d, rand.New(rand.NewPCG(1, uint64(i)))) })
				}
				all.Go(func() {
					for i := range 50 {
						time.Sleep(400 * time.Millisecond)
						r := policies.ReplicaID(i % 2)
						d.Do(func(b *Batch) {
							switch i % 5 {
							case 1:
								b.Down(r)
							case 2:
								b.Restarted(r)
							default:
								b.Up(0)
								b.Up(1)
							}
						})
					}
				})
				all.Wait()
				time.Sleep(time.Minute)
				check(t, d.Err())
				if a := balanced(t, d); a.Live != 0 || a.Waiting != 0 || a.Sessions != 0 || a.Arrived < 1000 {
					t.Errorf("accounts %+v", a)
				}
				if _, err := decisionlog.Replay(linesOf(log.Bytes())); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func client(t *testing.T, d *Driver, draw *rand.Rand) {
	for range 30 {
		time.Sleep(time.Duration(draw.IntN(1000)) * time.Millisecond)
		var a *Attempt
		d.Do(func(b *Batch) {
			x := Arrival{Session: fmt.Sprint("s", draw.IntN(40)), Prompt: prefix.Prefix{Tokens: 100 + int32(draw.IntN(1000))}}
			a, _ = b.Arrive(x)
		})
		if a == nil {
			continue
		}
		patience := time.NewTimer(time.Duration(draw.IntN(4000)) * time.Millisecond)
		select {
		case v := <-a.Verdict():
			if v.Kind != Go {
				continue
			}
		case <-patience.C:
			d.Do(func(b *Batch) { b.Gone(a); b.Failed(a) }) // it may have become a lease in the meantime
			continue
		}
		stages := []func(b *Batch){
			func(b *Batch) { b.Dispatched(a) }, func(b *Batch) { b.FirstToken(a, Usage{Prompt: 100}) }, func(b *Batch) { b.ProgressedTo(a, 7) },
			func(b *Batch) { b.Finished(a, Usage{Prompt: 100, Output: 20}) },
		}
		for _, stage := range stages {
			time.Sleep(time.Duration(draw.IntN(300)) * time.Millisecond)
			switch draw.IntN(12) {
			case 0:
				d.Do(func(b *Batch) { b.Gone(a); b.Failed(a) })
			case 1:
				d.Do(func(b *Batch) { b.Failed(a) })
			case 2:
				d.Do(func(b *Batch) { b.Gone(a); b.Gone(a); b.Finished(a, Usage{Output: 3}); b.Failed(a) })
			default:
				d.Do(stage)
			}
		}
	}
}
