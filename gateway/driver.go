// Package gateway is wall-clock time: it runs the decision core of package policies in front of real engines. A Driver
// feeds the core under one mutex; a Gateway is the HTTP around it. What the simulator compares is what runs here.
//
// The package imports neither the simulator nor its models.
package gateway

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/scenarios"
)

// DriverConfig is what a Driver is made of.
type DriverConfig struct {
	Core  CoreConfig
	Clock Clock
	Tree  *prefix.Tree       // read in every Step; whoever changes it does so inside Do
	Log   decisionlog.Writer // of every Step; it must not block. nil for none

	// Probe asks a replica on behalf of an attempt. It is called inside Do and must not block; v may be read. It returns
	// the answer, or later if the answer is brought with Batch.Probed. nil: no replica can be asked.
	Probe func(p Probe, v *policies.View) (now Answer, later bool)

	MaxSessions int           // that live; the one idle for longest makes room for a new one. 0 for no limit
	MaxWaiting  int           // attempts that wait; 0 for no limit
	IdleAfter   time.Duration // a session without an attempt for so long has ended; 0 for never
	MaxLease    time.Duration // a lease that lives for so long is taken back; 0 for never

	// Over is told, inside Do, of every attempt that has ended, once the core has taken it in. nil for nobody.
	Over func(*Attempt)
	// Ended is told, inside Do, the key of every session that has ended; not of turns without a session. nil for nobody.
	Ended func(key string)
}

// Probe is a question to a replica on behalf of an attempt.
type Probe struct {
	Attempt *Attempt
	Replica policies.ReplicaID
	Prefix  bool // how much of the prompt is resident; otherwise the usage
}

// Answer is the answer to a probe.
type Answer struct {
	Outcome                 policies.ProbeOutcome
	Usage                   float64 // of a usage probe
	HitTokens, PromptTokens int32   // of a prefix probe
}

// Arrival is a turn as it comes in.
type Arrival struct {
	Session string // key of the session, or of a conversation in it; "" for a turn of no session
	Thread  string // key of the conversation; "" or the session's for its root
	Prompt  prefix.Prefix

	Key       int64 // of the session, the same in every gateway; 0 for none
	MaxTokens int32 // 0 when the request has none
	Class     int32
	Group     int32 // -1 for none

	// Former is the attempt of the same turn before this one, nil for the first. If it still waits it is superseded.
	Former *Attempt
	// Cancel is called when the attempt has to stop running: its lease was taken back or its replica restarted. It must
	// not block and must not call the driver. nil for nothing to stop.
	Cancel func()
	// Owner is whoever brought it, for the driver's hooks.
	Owner any
}

// Why an arrival is refused before the core hears of it.
var (
	ErrQueueFull       = errors.New("queue_full")
	ErrTooManySessions = errors.New("too_many_sessions")
	ErrCoreFailed      = errors.New("core_failed")
)

// VerdictKind is what became of a waiting attempt.
type VerdictKind uint8

const (
	Go      VerdictKind = iota + 1 // it is a lease on Replica
	Refused                        // by the gate
	Stopped                        // a newer attempt of the turn took its place
	Broken                         // the core failed; nothing can be decided any more
)

// Verdict is the answer to an arrival.
type Verdict struct {
	Kind       VerdictKind
	Replica    policies.ReplicaID
	Reason     policies.Reason // of the gate
	Routed     policies.Reason
	RetryAfter time.Duration
	Waited     time.Duration
	Step       int64 // of the decision log
}

type stage uint8

const (
	waiting stage = iota
	leased
	over
)

// Attempt is one attempt of a turn, from its arrival to its end.
type Attempt struct {
	id       policies.AttemptID
	thread   *thread
	prompt   prefix.Prefix
	number   int32 // of the turn
	retry    int32
	stage    stage
	gone     bool
	arrived  policies.Time
	leasedAt policies.Time
	place    *list.Element // among the leases
	touched  atomic.Int64  // when something of it last moved, as policies.Time
	sending  atomic.Bool   // bytes of its answer are on their way to its client
	replica  policies.ReplicaID
	hold     policies.Reason
	admitted policies.Reason
	cancel   func()
	owner    any
	verdict  chan Verdict
	tokens   atomic.Int32 // output tokens so far
	reported int32        // of these, as the core was told
}

// ID is the attempt's number in the decision log.
func (a *Attempt) ID() policies.AttemptID { return a.id }

// Verdict receives the answer, once.
func (a *Attempt) Verdict() <-chan Verdict { return a.verdict }

// Progress says how many output tokens there are by now. It may be called at any time.
func (a *Attempt) Progress(tokens int32) { a.tokens.Store(tokens) }

// Driver runs one core under one mutex: it makes facts of what is brought to it, steps the core, writes the decision log,
// hands the commands to those who wait for them and wakes the core when it wants to be woken. Its methods may be called
// from any goroutine.
type Driver struct {
	cfg DriverConfig

	mu       sync.Mutex
	core     *policies.Controller
	recorder *decisionlog.Recorder
	failed   error
	closed   bool
	now      policies.Time
	steps    int64
	facts    []policies.Fact
	commands []policies.Command
	armed    policies.Time
	stop     func() bool

	registry registry
	attempts map[policies.AttemptID]*Attempt
	last     policies.AttemptID
	leases   *list.List // of *Attempt, in order of their deadlines
	ended    []*Attempt // in this Do
	audit    Audit
	decided  [2]int64 // admissions, refusals
}

// NewDriver makes a Driver with all replicas down.
func NewDriver(cfg DriverConfig) (*Driver, error) {
	if cfg.Log == nil {
		cfg.Log = nowhere{}
	}
	core, recorder, err := cfg.Core.build(cfg.Tree, cfg.Log)
	if err != nil {
		return nil, err
	}
	return &Driver{
		cfg: cfg, core: core, recorder: recorder, armed: policies.Never, registry: newRegistry(),
		attempts: map[policies.AttemptID]*Attempt{}, leases: list.New(),
	}, nil
}

type nowhere struct{}

// Write implements decisionlog.Writer.
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// Do brings everything that f reports to the core as facts of one moment, in one Step. f must not block.
func (d *Driver) Do(f func(b *Batch)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.breakOnPanic()
	d.now = max(d.now, d.cfg.Clock.Now())
	f(&Batch{d})
	d.settle()
}

// breakOnPanic keeps a core that panicked from deciding anything else: everybody who waits is told, and so is everybody
// who comes.
func (d *Driver) breakOnPanic() {
	p := recover()
	if p == nil {
		return
	}
	d.failed = fmt.Errorf("the decision core failed: %v", p)
	d.facts = d.facts[:0]
	for _, a := range d.attempts {
		if a.stage == waiting {
			d.finish(a, Verdict{Kind: Broken})
		}
	}
}

// Reknob gives the policies other knobs while turns wait and run. Other policies are refused.
func (d *Driver) Reknob(p scenarios.Policy) (err error) {
	d.Do(func(*Batch) {
		if err = d.cfg.Core.reknob(d.core, d.recorder, p); err == nil {
			d.facts = append(d.facts, policies.Fact{Kind: policies.Woke, Replica: policies.NoReplica})
		}
	})
	return err
}

// Err is why the core decides nothing any more; nil while it does.
func (d *Driver) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Close ends deciding: no timer runs, and nothing that Do still brings, nor a timer that has run off already, comes to the
// core or into the log.
func (d *Driver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.stop != nil {
		d.stop()
	}
}

// settle steps the core until there is nothing left to tell it, and arms the timer.
func (d *Driver) settle() {
	if d.closed {
		d.facts = d.facts[:0]
		return
	}
	d.expire()
	for d.failed == nil && (len(d.facts) > 0 || d.core.NextWake() <= d.now) {
		d.step()
	}
	d.facts = d.facts[:0]
	for i, a := range d.ended {
		if d.ended[i] = nil; d.cfg.Over != nil {
			d.cfg.Over(a)
		}
	}
	d.ended = d.ended[:0]
	d.arm()
}

func (d *Driver) step() {
	d.steps++
	d.commands = d.core.Step(d.now, d.facts, d.commands[:0])
	if err := d.recorder.Step(d.cfg.Tree, d.now, d.facts, d.commands); err != nil {
		d.audit.LogErrors++
	}
	d.facts = d.facts[:0]
	for i := range d.commands {
		d.obey(&d.commands[i])
	}
}

// obey does what one command says.
func (d *Driver) obey(c *policies.Command) {
	a := d.attempts[c.Attempt]
	if a == nil {
		panic(fmt.Sprintf("gateway: command %s for attempt %d, which does not live", c.Kind, c.Attempt))
	}
	switch c.Kind {
	case policies.Admit:
		a.admitted = c.Reason
	case policies.Dispatch:
		d.lease(a, c)
	case policies.Hold:
		a.hold = c.Reason
	case policies.Reject:
		d.decided[1]++
		d.finish(a, Verdict{Kind: Refused, Replica: policies.NoReplica, Reason: c.Reason, RetryAfter: time.Duration(c.RetryAfter)})
	case policies.Abort:
		if a.stage == waiting {
			d.finish(a, Verdict{Kind: Stopped, Replica: policies.NoReplica, Reason: c.Reason})
		} else if a.cancel != nil {
			a.cancel()
		}
	case policies.ProbeUsage, policies.ProbePrefix:
		p := Probe{Attempt: a, Replica: c.Replica, Prefix: c.Kind == policies.ProbePrefix}
		answer, later := Answer{Outcome: policies.ProbeUnsupported}, false
		if d.cfg.Probe != nil {
			answer, later = d.cfg.Probe(p, d.core.View())
		}
		if !later {
			d.facts = append(d.facts, p.fact(answer))
		}
	default:
		panic("gateway: this driver cannot do what command " + c.Kind.String() + " asks for")
	}
}

// lease makes a waiting attempt a lease.
func (d *Driver) lease(a *Attempt, c *policies.Command) {
	d.decided[0]++
	a.stage, a.replica, a.leasedAt = leased, c.Replica, d.now
	a.thread.turns = max(a.thread.turns, a.number)
	a.thread.of.session.turns++
	a.place = d.leases.PushBack(a)
	a.touched.Store(int64(d.now))
	d.audit.Leases++
	a.verdict <- Verdict{
		Kind: Go, Replica: c.Replica, Reason: a.admitted, Routed: c.Reason, Waited: time.Duration(d.now - a.arrived), Step: d.steps,
	}
}

// finish ends an attempt that waits, with an answer to whoever waits for one.
func (d *Driver) finish(a *Attempt, v Verdict) {
	v.Waited, v.Step = time.Duration(d.now-a.arrived), d.steps
	a.verdict <- v
	d.drop(a)
}

// drop forgets an attempt that has ended.
func (d *Driver) drop(a *Attempt) {
	if a.stage == leased {
		d.leases.Remove(a.place)
		d.audit.Leases--
	}
	a.stage = over
	delete(d.attempts, a.id)
	d.ended = append(d.ended, a)
	d.registry.end(a.thread, d.now)
	d.forgetEnded(a.thread.of, a.thread.of.session)
}

// forgetEnded forgets what has ended and has no live attempt: a conversation, nil for none, and its session.
func (d *Driver) forgetEnded(c *conversation, s *session) {
	switch {
	case s.ended && s.live == 0:
		d.forget(s)
	case c != nil && c.ended && !c.alive():
		d.facts = d.registry.forgetConversation(c, d.facts)
	}
}

// makeRoom ends the session that has been idle for longest if a new one called key would be one too many.
func (d *Driver) makeRoom(key string) error {
	if key == "" || d.cfg.MaxSessions == 0 || len(d.registry.byKey) < d.cfg.MaxSessions {
		return nil
	}
	oldest := d.registry.oldest()
	if oldest == nil {
		return ErrTooManySessions
	}
	d.forget(oldest)
	return nil
}

func (d *Driver) forget(s *session) {
	d.facts = d.registry.forget(s, d.facts)
	if d.cfg.Ended != nil && s.key != "" {
		d.cfg.Ended(s.key)
	}
}

// expire takes back leases that are too old and ends sessions that have been idle for too long.
func (d *Driver) expire() {
	for e := d.leases.Front(); e != nil && d.cfg.MaxLease > 0; e = d.leases.Front() {
		a := e.Value.(*Attempt)
		if a.leasedAt+policies.Time(d.cfg.MaxLease) > d.now {
			break
		}
		d.audit.Expired++
		d.revoke(a)
	}
	for s := d.registry.oldest(); s != nil && d.cfg.IdleAfter > 0 && s.since+policies.Time(d.cfg.IdleAfter) <= d.now; s = d.registry.oldest() {
		d.forget(s)
	}
}

// revoke ends a lease on the driver's own account.
func (d *Driver) revoke(a *Attempt) {
	d.facts = append(d.facts, policies.Fact{Kind: policies.Failed, Attempt: a.id, Replica: a.replica})
	d.drop(a)
	if a.cancel != nil {
		a.cancel()
	}
}

// nextWake is when the driver has to act of itself.
func (d *Driver) nextWake() policies.Time {
	next := policies.Never
	if d.failed == nil {
		next = d.core.NextWake()
	}
	if e := d.leases.Front(); e != nil && d.cfg.MaxLease > 0 {
		next = min(next, e.Value.(*Attempt).leasedAt+policies.Time(d.cfg.MaxLease))
	}
	if s := d.registry.oldest(); s != nil && d.cfg.IdleAfter > 0 {
		next = min(next, s.since+policies.Time(d.cfg.IdleAfter))
	}
	return next
}

// arm sets the timer to the next wake.
func (d *Driver) arm() {
	next := d.nextWake()
	if next == d.armed {
		return
	}
	if d.stop != nil {
		d.stop()
		d.stop = nil
	}
	if d.armed = next; next != policies.Never {
		d.stop = d.cfg.Clock.AfterFunc(time.Duration(next-d.now), func() { d.woke(next) })
	}
}

// woke is the timer. One that was stopped too late finds another time armed; that it comes early is harmless.
func (d *Driver) woke(at policies.Time) {
	d.Do(func(*Batch) {
		if d.armed == at {
			d.armed = policies.Never
		}
		d.facts = append(d.facts, policies.Fact{Kind: policies.Woke, Replica: policies.NoReplica})
	})
}
