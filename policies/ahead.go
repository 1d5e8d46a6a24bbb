package policies

import (
	"github.com/sluice-sim/sluice/prefetch"
	"github.com/sluice-sim/sluice/prefix"
)

// A driver of thousands of replicas can ask for the memory that a fact will touch before it tells the Controller of it (see
// package prefetch). That goes by stages: a stage follows pointers that the stage before it has asked for. Nothing changes by
// it, and it can be left out, or done for a fact that does not come.

// PrefetchThread asks for what is known of a thread.
func (c *Controller) PrefetchThread(t ThreadID) {
	v := c.view
	if v.hasThread(t) {
		prefetch.Value(&v.threads[t])
	}
	if int(t) < len(v.waiters.newest) {
		prefetch.Value(&v.waiters.newest[t])
	}
}

// PrefetchStream asks for what is known of a stream and the replica that was the last to store some of it, in stages 0 to 2.
func (c *Controller) PrefetchStream(s prefix.StreamID, stage int) {
	x := &c.view.index
	if int(s) >= len(x.streams) {
		return
	}
	if stage == 0 {
		prefetch.Value(&x.streams[s])
		return
	}
	at := x.streams[s].first
	switch {
	case at == noSlot:
	case stage == 1:
		prefetch.Value(&x.holders[at])
	default:
		h := &x.holders[at]
		c.view.prefetchReplica(h.replica)
		if h.runs != noSlot {
			prefetch.Value(&x.runs[h.runs])
		}
	}
}

// PrefetchLease asks for what is known of a lease, its thread and its replica, in stages 0 to 2.
func (c *Controller) PrefetchLease(a AttemptID, stage int) {
	l := &c.view.ledger
	if stage == 0 {
		l.byAttempt.prefetch(a)
		return
	}
	le := l.find(a)
	switch {
	case le == nil:
	case stage == 1:
		prefetch.Value(le)
	default:
		prefetch.Value(&c.view.threads[le.Thread])
		c.view.prefetchReplica(le.Replica)
	}
}

func (v *View) prefetchReplica(r ReplicaID) {
	prefetch.Value(&v.replicas[r])
	prefetch.Value(&v.changes.of[r])
}

func (x *attemptIndex) prefetch(a AttemptID) {
	if x.used > 0 {
		prefetch.Value(&x.entries[x.home(a+1)])
	}
}
