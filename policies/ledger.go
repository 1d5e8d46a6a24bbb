package policies

import "github.com/sluice-sim/sluice/prefix"

// noSlot ends a list of slots.
const noSlot int32 = -1

// Lease is one admitted attempt, from its dispatch to its end.
type Lease struct {
	Attempt   AttemptID
	Session   SessionID
	Thread    ThreadID
	Replica   ReplicaID
	Admitted  Time
	Prompt    prefix.Prefix
	Uncached  int32 // prompt tokens that were expected to be computed, at dispatch
	Output    int32 // output tokens so far, as far as is known
	Decoding  bool  // the first token has come
	Cancelled bool  // the client has gone

	prev, next int32 // of the same replica
}

// Moment is twice n(L-n/2): the pairs of a new token and an earlier one that attention visits when the last n of L
// prompt tokens are computed, doubled so that it is a whole number.
func Moment(n, l int32) int64 { return int64(n) * (2*int64(l) - int64(n)) }

// Audit counts leases. Admitted = Finished + Failed + Cancelled + Live at all times.
type Audit struct {
	Admitted  int64
	Finished  int64
	Failed    int64
	Cancelled int64 // ended, with or without a result, after the client had gone
	Live      int64

	Superseded int64 // attempts aborted while waiting because a newer one of the thread arrived
	Rejected   int64
	Waiting    int64 // attempts that wait now, probing ones included
	Ignored    int64 // facts that were duplicates, out of order or about something unknown
	Abandoned  int64 // leases ended because their replica restarted, without a report; they count as Failed or Cancelled too
}

// add adds the counters of another instance.
func (a *Audit) add(b Audit) {
	a.Admitted += b.Admitted
	a.Finished += b.Finished
	a.Failed += b.Failed
	a.Cancelled += b.Cancelled
	a.Live += b.Live
	a.Superseded += b.Superseded
	a.Rejected += b.Rejected
	a.Waiting += b.Waiting
	a.Ignored += b.Ignored
	a.Abandoned += b.Abandoned
}

// ledger holds the leases. Slots are reused.
type ledger struct {
	leases    []Lease
	free      []int32
	byAttempt attemptIndex
	audit     Audit
}

func (l *ledger) find(a AttemptID) *Lease {
	if i, ok := l.byAttempt.get(a); ok {
		return &l.leases[i]
	}
	return nil
}

// FirstLease begins a walk over the leases dispatched to r, in no particular order; nil ends it. The caller must not change
// or keep a lease.
func (v *View) FirstLease(r ReplicaID) *Lease { return v.ledger.at(v.replicas[r].firstLease) }

// NextLease is the lease after l on the same replica.
func (v *View) NextLease(l *Lease) *Lease { return v.ledger.at(l.next) }

func (l *ledger) at(slot int32) *Lease {
	if slot == noSlot {
		return nil
	}
	return &l.leases[slot]
}

// open makes t a lease on r.
func (v *View) open(now Time, t *Turn, r ReplicaID) {
	l := &v.ledger
	uncached := t.Prompt.Tokens - v.estimateHit(r, t)
	rep := &v.replicas[r]
	slot := l.take()
	l.leases[slot] = Lease{
		Attempt: t.Attempt, Session: t.Session, Thread: t.Thread, Replica: r, Admitted: now,
		Prompt: t.Prompt, Uncached: uncached, prev: noSlot, next: rep.firstLease,
	}
	if rep.firstLease != noSlot {
		l.leases[rep.firstLease].prev = slot
	}
	rep.firstLease = slot
	l.byAttempt.set(t.Attempt, slot)
	l.audit.Admitted++
	l.audit.Live++

	rep.inFlight++
	rep.promptTokens += int64(t.Prompt.Tokens)
	v.queue(r, int64(uncached), Moment(uncached, t.Prompt.Tokens))
	th := v.thread(t.Thread)
	th.last = r
	th.running++
}

func (l *ledger) take() int32 {
	if n := len(l.free); n > 0 {
		slot := l.free[n-1]
		l.free = l.free[:n-1]
		return slot
	}
	l.leases = append(l.leases, Lease{})
	return int32(len(l.leases) - 1)
}

// firstToken moves a lease from prefill to decode; false if a is no lease in prefill.
func (v *View) firstToken(a AttemptID) bool {
	le := v.ledger.find(a)
	if le == nil || le.Decoding {
		return false
	}
	v.unqueue(le)
	le.Decoding = true
	le.Output = max(le.Output, 1)
	v.decode(le.Replica, int64(le.Prompt.Tokens)+int64(le.Output))
	return true
}

func (v *View) unqueue(le *Lease) {
	v.queue(le.Replica, -int64(le.Uncached), -Moment(le.Uncached, le.Prompt.Tokens))
}

// queue adds to what is queued on r.
func (v *View) queue(r ReplicaID, tokens, moment int64) {
	rep := &v.replicas[r]
	rep.queuedTokens += tokens
	rep.queuedMoment += moment
	if rep.state == Up {
		v.upQueued += tokens
	}
	v.changes.note(r)
}

// decode adds to the tokens that decode on r.
func (v *View) decode(r ReplicaID, tokens int64) {
	rep := &v.replicas[r]
	rep.decodeTokens += tokens
	if rep.state == Up {
		v.upDecode += tokens
	}
	v.changes.note(r)
}

// progress records how many output tokens a has; false if a is no lease or had as many already.
func (v *View) progress(a AttemptID, output int32) bool {
	le := v.ledger.find(a)
	if le == nil || output <= le.Output {
		return false
	}
	if le.Decoding {
		v.decode(le.Replica, int64(output-le.Output))
	}
	le.Output = output
	return true
}

// close ends the lease of f's attempt, once; it fills in f's thread, session and replica. False if there is none.
func (v *View) close(f *Fact) bool {
	l := &v.ledger
	slot, ok := l.byAttempt.get(f.Attempt)
	if !ok {
		return false
	}
	le := &l.leases[slot]
	f.Thread, f.Session, f.Replica = le.Thread, le.Session, le.Replica
	rep := &v.replicas[le.Replica]
	if le.Decoding {
		v.decode(le.Replica, -int64(le.Prompt.Tokens)-int64(le.Output))
	} else {
		v.unqueue(le)
	}
	rep.inFlight--
	rep.promptTokens -= int64(le.Prompt.Tokens)
	th := v.thread(le.Thread)
	th.running--
	if f.Kind == Finished {
		th.history = le.Prompt.Tokens + f.OutputTokens
		th.finished++
	}
	v.unlink(le)
	l.byAttempt.remove(f.Attempt)
	l.free = append(l.free, slot)

	l.audit.Live--
	switch {
	case le.Cancelled:
		l.audit.Cancelled++
	case f.Kind == Finished:
		l.audit.Finished++
	default:
		l.audit.Failed++
	}
	return true
}

func (v *View) unlink(le *Lease) {
	if le.prev == noSlot {
		v.replicas[le.Replica].firstLease = le.next
	} else {
		v.ledger.leases[le.prev].next = le.next
	}
	if le.next != noSlot {
		v.ledger.leases[le.next].prev = le.prev
	}
}
