package sim

import (
	"fmt"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// obey does what one command of the core says.
func (r *run) obey(c policies.Command) {
	switch c.Kind { // these are about attempts that have ended
	case policies.Pin:
		r.pin(c)
		return
	case policies.Unpin:
		r.unpinAttempt(c)
		return
	}
	a := r.attemptOf(c.Attempt)
	x := &r.attempts[a]
	if x.id != c.Attempt || x.stage == vacant {
		panic(fmt.Sprintf("sim: command %d for attempt %d, which is not live", c.Kind, c.Attempt))
	}
	switch c.Kind {
	case policies.Admit:
		x.row.AdmittedPS = r.now
		x.row.AdmitReason = c.Reason.String()
	case policies.Dispatch:
		r.dispatch(a, c)
	case policies.Hold:
		x.row.GateHolds++
		x.row.AdmitReason = c.Reason.String()
	case policies.ProbeUsage:
		x.row.UsageProbes++
		r.ask(c)
	case policies.ProbePrefix:
		x.row.PrefixProbes++
		r.ask(c)
	case policies.Reject:
		r.rejected(a, c)
	case policies.Abort:
		r.superseded(a)
	default:
		panic(fmt.Sprintf("sim: command %d is not one that this driver can do", c.Kind))
	}
}

// dispatch sends an admitted attempt to its replica.
func (r *run) dispatch(a int32, c policies.Command) {
	x := &r.attempts[a]
	i := int32(c.Replica)
	p := &r.replicas[i]
	if r.scrapes.lazy || p.series.edge() <= r.now {
		r.catchUp(i, r.now)
	}
	x.stage = sent
	r.atGate--
	x.row.SentPS = r.now
	x.row.Replica, x.row.PrefillReplica = i, i
	x.row.RouteReason = c.Reason.String()
	p.inFlight++
	r.wrote(x.prompt.Stream, 1)
	p.inbox = append(p.inbox, a)
	r.wake(i)
	ss := &r.sessions[x.turn.session]
	known := false
	for _, j := range ss.replicas {
		known = known || j == i
	}
	if !known {
		ss.replicas = append(ss.replicas, i)
	}
	if x.row.Attempt == 1 {
		r.trigger(x.turn, traces.OnDispatch, r.now)
	}
	if r.refuses(i, x.id) {
		p.inbox = p.inbox[:len(p.inbox)-1]
		r.fail(a)
	}
}

// rejected ends an attempt that the gate refused; its client may come again.
func (r *run) rejected(a int32, c policies.Command) {
	x := &r.attempts[a]
	turn := x.turn
	x.row.Outcome = results.Rejected
	x.row.AdmitReason = c.Reason.String()
	if x.gone { // nobody waits for it
		r.endAttempt(a, r.now)
		return
	}
	x.row.Final = r.turn(turn).attempts > r.cfg.Clients.Retries
	r.endAttempt(a, r.now)
	r.retryOrFail(turn, r.now+int64(c.RetryAfter)*nsToPS)
}

// superseded ends an attempt that waited when a newer one of its thread arrived.
func (r *run) superseded(a int32) {
	x := &r.attempts[a]
	turn := x.turn
	// Where it is the newest of its turn, another turn of the thread took its place, and nobody sends this one again.
	lost := !x.gone && x.row.Attempt == r.turn(turn).attempts
	x.row.Outcome = results.Superseded
	x.row.Final = lost
	r.sessions[turn.session].row.AttemptsPreempted++
	r.endAttempt(a, r.now)
	switch {
	case !lost:
	case r.cfg.Open: // the other turns come by themselves
		r.sessions[turn.session].failed = true
		r.turnOver(turn, r.now)
	default:
		r.turnFailed(turn, r.now)
	}
}
