package policies

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/sluice-sim/sluice/prefix"
)

// ControllerConfig is what a Controller is made of.
type ControllerConfig struct {
	Tree         *prefix.Tree // the driver's; only read
	Replicas     int
	Capabilities []Capability // one for each replica, or none
	Gate         Gate
	Router       Router
	Retention    Retention // nil: nothing is pinned
	Oracle       Oracle    // nil in a gateway
}

// Controller is the one Machine: a view, a gate, a router, the ledger of leases and the queue of waiting turns.
//
// A Step takes all its facts into the view first, in the order given, and shows each to the gate and the router. Then it
// settles: turns whose probes were all answered are judged in the order of their last answers, then those that were
// woken or whose hold ended in order of arrival, then the new arrivals in order of their attempt numbers; what these
// verdicts wake is judged in the same Step. Facts of one moment may therefore come in any order, except that the facts
// of one attempt, of one thread and of one replica must keep theirs.
//
// Gates and routers see only facts that the core accepts, with Thread, Session and Replica of an attempt filled in. A
// waiting attempt that goes without a verdict is reported to them exactly once, as AttemptSuperseded or ClientGone.
// Facts that are duplicates, out of order or about something unknown are counted and otherwise ignored.
type Controller struct {
	view       *View
	gate       Gate
	router     Router
	retention  Retention
	lateNotice bool

	now      Time
	seen     AttemptID // the newest attempt of earlier Steps
	newSeen  AttemptID
	fact     Fact     // the one being shown
	ending   []ticket // superseded
	arrivals []ticket
	answered []ticket
	batch    []ticket
	pins     []pinned // by thread
	out      []Command
}

// LateNotice is implemented by a gate whose superseded attempts find out only when they are next asked, woken or
// answered. Until then a newer attempt of the thread waits behind them. Other gates' attempts are aborted at once.
type LateNotice interface {
	NoticesLate() bool
}

// NewController makes a Controller with all replicas down. It panics if the configuration is not complete.
func NewController(c ControllerConfig) *Controller {
	if c.Tree == nil || c.Gate == nil || c.Router == nil {
		panic("policies: a Controller needs a tree, a gate and a router")
	}
	capabilities := make([]Capability, c.Replicas)
	if n := len(c.Capabilities); n != 0 && n != c.Replicas {
		panic("policies: " + strconv.Itoa(n) + " capabilities for " + strconv.Itoa(c.Replicas) + " replicas")
	}
	copy(capabilities, c.Capabilities)
	late, ok := c.Gate.(LateNotice)
	return &Controller{
		view: newView(c.Tree, capabilities, c.Oracle, c.Router), gate: c.Gate, router: c.Router,
		retention:  c.Retention,
		lateNotice: ok && late.NoticesLate(), seen: -1, newSeen: -1,
	}
}

// View is the Controller's view, for reading.
func (c *Controller) View() *View { return c.view }

// Audit returns the counters of leases and of what never became one.
func (c *Controller) Audit() Audit {
	a := c.view.ledger.audit
	a.Waiting = int64(c.view.waiters.byAttempt.len())
	return a
}

// Leases visits every live lease, by replica. A lease that lives on when its attempt has ended is a leak.
func (c *Controller) Leases(visit func(*Lease)) {
	for r := range c.view.replicas {
		for le := c.view.FirstLease(ReplicaID(r)); le != nil; le = c.view.NextLease(le) {
			visit(le)
		}
	}
}

// Step implements Machine.
func (c *Controller) Step(now Time, in []Fact, out []Command) []Command {
	if now < c.now {
		panic("policies: time goes back from " + strconv.FormatInt(int64(c.now), 10) + " to " + strconv.FormatInt(int64(now), 10))
	}
	c.now, c.view.waiters.now, c.out = now, now, out
	for i := range in {
		c.fact = in[i]
		switch {
		case c.fact.Kind == Woke || c.fact.Kind == AttemptSuperseded && c.takeSuperseded():
		case c.take():
			c.observe()
			if c.retention != nil {
				c.retention.Observe(now, c.view, &c.fact)
				c.retain()
			}
		default:
			c.view.ledger.audit.Ignored++
		}
	}
	c.seen = c.newSeen
	if c.gate.NextWake() <= now {
		c.fact = Fact{Kind: Woke}
		c.observe()
	}
	c.settle()
	out, c.out = c.out, nil
	return out
}

// NextWake implements Machine. It is always later than the last Step.
func (c *Controller) NextWake() Time {
	return max(min(c.view.waiters.nextDeadline(), c.gate.NextWake()), c.now+1)
}

func (c *Controller) observe() {
	c.gate.Observe(c.now, c.view, &c.fact)
	c.router.Observe(c.now, c.view, &c.fact)
}

func (c *Controller) emit(k CommandKind, a AttemptID, r ReplicaID, why Reason) {
	c.out = append(c.out, Command{Kind: k, Attempt: a, Replica: r, Reason: why})
}

func (c *Controller) settle() {
	q := &c.view.waiters
	q.expire(c.now)
	for _, k := range c.ending {
		if w := &q.slots[k.slot]; !c.lateNotice && w.state != 0 && w.turn.Attempt == k.attempt {
			c.endSuperseded(k.slot)
		}
	}
	c.ending = c.ending[:0]
	slices.SortFunc(c.arrivals, byArrival)
	for _, k := range c.arrivals {
		if q.current(k, arriving) != nil {
			c.supersede(k)
		}
	}
	for _, k := range c.answered {
		if q.current(k, probing) != nil {
			c.ask(k.slot)
		}
	}
	c.answered = c.answered[:0]
	c.drain()
	for _, k := range c.arrivals {
		if q.current(k, arriving) != nil {
			c.ask(k.slot)
		}
	}
	c.arrivals = c.arrivals[:0]
	c.drain()
}

func byArrival(a, b ticket) int { return cmp.Compare(a.attempt, b.attempt) }

// drain asks the woken, and those whom that wakes, until nobody is left.
func (c *Controller) drain() {
	q := &c.view.waiters
	for len(q.woken) > 0 {
		c.batch, q.woken = append(c.batch[:0], q.woken...), q.woken[:0]
		slices.SortFunc(c.batch, byArrival)
		for _, k := range c.batch {
			if q.current(k, asking) != nil {
				c.ask(k.slot)
			}
		}
	}
}

// supersede lets the new arrival k end the older attempts of its thread, or wait until they notice.
func (c *Controller) supersede(k ticket) {
	q := &c.view.waiters
	q.enlist(k.slot)
	older := q.slots[k.slot].older
	if older == noSlot {
		return
	}
	if c.lateNotice {
		q.slots[older].superseded = true
		q.slots[k.slot].state = behind
		c.sendHold(k.slot, BehindWaiter)
		return
	}
	c.endSuperseded(older)
}

// endSuperseded aborts the waiter in slot.
func (c *Controller) endSuperseded(slot int32) {
	t := &c.view.waiters.slots[slot].turn
	c.fact = Fact{Kind: AttemptSuperseded, Attempt: t.Attempt, Thread: t.Thread, Session: t.Session, Replica: NoReplica}
	c.emit(Abort, t.Attempt, NoReplica, SupersededAttempt)
	c.view.ledger.audit.Superseded++
	c.drop(slot)
	c.observe()
}

// drop forgets a waiter and lets go whoever waited behind it.
func (c *Controller) drop(slot int32) {
	q := &c.view.waiters
	newer := q.slots[slot].newer
	q.remove(slot)
	if newer != noSlot && q.slots[newer].state == behind && q.slots[newer].older == noSlot {
		q.slots[newer].state = asking
		q.woken = append(q.woken, ticket{newer, q.slots[newer].turn.Attempt})
	}
}

// ask has the gate judge the waiter in slot and does what it says. A gate that asks again for a probe that was answered
// since the last hold would never come to a verdict; its turn is admitted.
func (c *Controller) ask(slot int32) {
	w := &c.view.waiters.slots[slot]
	if w.superseded {
		c.endSuperseded(slot)
		return
	}
	if w.askedAt != c.now {
		w.askedAt, w.asks = c.now, 0
	}
	w.asks++
	for {
		if len(c.view.up) == 0 {
			c.hold(slot, Verdict{Reason: NoReplicaUp, WakeOn: noReplicaKey, Until: Never})
			return
		}
		d := c.gate.Admit(c.now, c.view, &w.turn, &w.probes)
		switch d.Kind {
		case VerdictAdmit:
			c.admit(slot, d)
			return
		case VerdictHold:
			c.hold(slot, d)
			return
		case VerdictReject:
			c.out = append(c.out, Command{Kind: Reject, Attempt: w.turn.Attempt, Replica: NoReplica, Reason: d.Reason, RetryAfter: d.RetryAfter})
			c.view.ledger.audit.Rejected++
			c.drop(slot)
			return
		case VerdictProbeUsage:
			if w.probes.HasUsage {
				c.admit(slot, Verdict{Reason: ProbeUnavailable})
				return
			}
			if c.probe(slot, ProbeUsage, d.Replica) {
				return
			}
		case VerdictProbePrefix:
			if w.probes.HasPrefix {
				c.admit(slot, Verdict{Reason: ProbeUnavailable})
				return
			}
			if c.probe(slot, ProbePrefix, d.Replica) {
				return
			}
		default:
			panic("policies: a gate gave verdict " + strconv.Itoa(int(d.Kind)))
		}
	}
}

func (c *Controller) hold(slot int32, d Verdict) {
	w := &c.view.waiters.slots[slot]
	w.probes = Probes{}
	c.sendHold(slot, d.Reason)
	c.view.waiters.hold(slot, d.WakeOn, max(d.Until, c.now+1))
}

// sendHold tells the driver of a hold if the attempt was not already held for that reason.
func (c *Controller) sendHold(slot int32, why Reason) {
	if w := &c.view.waiters.slots[slot]; w.reason != why {
		w.reason = why
		c.emit(Hold, w.turn.Attempt, NoReplica, why)
	}
}

func (c *Controller) admit(slot int32, d Verdict) {
	t := &c.view.waiters.slots[slot].turn
	r, routed := d.Replica, PlacedByGate
	if !d.Placed || !c.view.IsUp(r) {
		r, routed = c.router.Route(c.now, c.view, t)
	}
	if !c.view.IsUp(r) {
		panic("policies: a router chose replica " + strconv.Itoa(int(r)) + ", which is not up")
	}
	c.emit(Admit, t.Attempt, r, d.Reason)
	c.emit(Dispatch, t.Attempt, r, routed)
	c.view.open(c.now, t, r)
	c.drop(slot)
}
