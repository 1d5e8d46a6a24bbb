package policies

import "math"

// Two keys are the Controller's; the others are the gate's.
const (
	noReplicaKey WakeKey = math.MinInt64     // turns that wait because no replica is up
	laterKey     WakeKey = math.MinInt64 + 1 // turns asked too often at one moment
)

// maxAsks is how often a turn is asked at one moment. More can only come from a gate that wakes what it holds; the turn
// then waits for the next nanosecond, so that time goes on.
const maxAsks = 16

// waitState is what a waiting attempt waits for.
type waitState uint8

const (
	arriving waitState = iota + 1 // to be judged in this Step
	holding                       // under its key
	probing                       // for probes that are in flight
	behind                        // for an older attempt of its thread to notice that it is superseded
	asking                        // to be asked again in this Step
)

// waiter is one attempt that has arrived and is neither admitted nor gone.
type waiter struct {
	turn       Turn
	state      waitState
	superseded bool
	reason     Reason // of the last Hold sent
	askedAt    Time   // when the gate was last asked
	asks       int32  // how often at that moment
	key        WakeKey
	deadline   Time
	inKey      int32 // position in its key's heap
	inDeadline int32 // position in the deadline heap
	older      int32 // the waiter of the same thread that arrived before it, noSlot if none
	newer      int32

	probes  Probes
	probe   CommandKind // kind in flight
	target  ReplicaID   // whom it asks, or AllReplicas
	answers []float64   // for AllReplicas, by replica: the usage, unanswered or unasked
	unheard int32       // answers that are still out
}

// waiters holds the waiting attempts, indexed by what can release them: attempt, thread, wake key and deadline.
type waiters struct {
	slots     []waiter
	free      []int32
	byAttempt attemptIndex
	newest    []int32 // by thread: its latest waiter, noSlot if none
	keys      map[WakeKey]int32
	heaps     []heap // of keys, reused
	freeHeaps []int32
	deadlines heap
	woken     []ticket // to be asked in this Step
	now       Time
}

// ticket names a waiter safely: its slot may have been reused since.
type ticket struct {
	slot    int32
	attempt AttemptID
}

func (q *waiters) init() {
	q.keys = make(map[WakeKey]int32)
}

func (q *waiters) find(a AttemptID) (slot int32, ok bool) {
	slot, ok = q.byAttempt.get(a)
	return slot, ok
}

// current is the waiter that k names, nil if it has gone or does not wait in state s any more.
func (q *waiters) current(k ticket, s waitState) *waiter {
	if w := &q.slots[k.slot]; w.turn.Attempt == k.attempt && w.state == s {
		return w
	}
	return nil
}

func (q *waiters) add(t *Turn) ticket {
	var slot int32
	if n := len(q.free); n > 0 {
		slot, q.free = q.free[n-1], q.free[:n-1]
	} else {
		q.slots = append(q.slots, waiter{})
		slot = int32(len(q.slots) - 1)
	}
	w := &q.slots[slot]
	*w = waiter{turn: *t, state: arriving, askedAt: -1, older: noSlot, newer: noSlot, answers: w.answers}
	q.byAttempt.set(t.Attempt, slot)
	return ticket{slot, t.Attempt}
}

// enlist makes the waiter in slot the newest of its thread.
func (q *waiters) enlist(slot int32) {
	w := &q.slots[slot]
	for int(w.turn.Thread) >= len(q.newest) {
		q.newest = append(q.newest, noSlot)
	}
	w.older = q.newest[w.turn.Thread]
	if w.older != noSlot {
		q.slots[w.older].newer = slot
	}
	q.newest[w.turn.Thread] = slot
}

// remove forgets the waiter in slot, in whatever state it is.
func (q *waiters) remove(slot int32) {
	w := &q.slots[slot]
	if w.state == holding {
		q.release(slot)
	}
	if w.newer != noSlot {
		q.slots[w.newer].older = w.older
	} else if int(w.turn.Thread) < len(q.newest) && q.newest[w.turn.Thread] == slot {
		q.newest[w.turn.Thread] = w.older
	}
	if w.older != noSlot {
		q.slots[w.older].newer = w.newer
	}
	q.byAttempt.remove(w.turn.Attempt)
	w.state = 0
	q.free = append(q.free, slot)
}

// hold puts the waiter in slot under key until deadline.
func (q *waiters) hold(slot int32, key WakeKey, deadline Time) {
	w := &q.slots[slot]
	w.state, w.key, w.deadline = holding, key, deadline
	h, ok := q.keys[key]
	if !ok {
		if n := len(q.freeHeaps); n > 0 {
			h, q.freeHeaps = q.freeHeaps[n-1], q.freeHeaps[:n-1]
		} else {
			q.heaps = append(q.heaps, heap{})
			h = int32(len(q.heaps) - 1)
		}
		q.keys[key] = h
	}
	q.heaps[h].push(entry{at: 0, attempt: w.turn.Attempt, slot: slot}, q.setInKey)
	if deadline != Never {
		q.deadlines.push(entry{at: deadline, attempt: w.turn.Attempt, slot: slot}, q.setInDeadline)
	}
}

// release takes a held waiter out of both indexes.
func (q *waiters) release(slot int32) {
	w := &q.slots[slot]
	h := q.keys[w.key]
	q.heaps[h].removeAt(w.inKey, q.setInKey)
	if len(q.heaps[h]) == 0 {
		delete(q.keys, w.key)
		q.freeHeaps = append(q.freeHeaps, h)
	}
	if w.deadline != Never {
		q.deadlines.removeAt(w.inDeadline, q.setInDeadline)
	}
}

func (q *waiters) setInKey(slot, pos int32)      { q.slots[slot].inKey = pos }
func (q *waiters) setInDeadline(slot, pos int32) { q.slots[slot].inDeadline = pos }

// wake moves the first n waiters under key to those that are asked in this Step.
func (q *waiters) wake(key WakeKey, n int) {
	for ; n != 0; n-- {
		h, ok := q.keys[key]
		if !ok {
			return
		}
		q.ask(q.heaps[h][0].slot)
	}
}

// expire moves the waiters whose hold has ended to those that are asked in this Step.
func (q *waiters) expire(now Time) {
	for len(q.deadlines) > 0 && q.deadlines[0].at <= now {
		q.ask(q.deadlines[0].slot)
	}
}

func (q *waiters) ask(slot int32) {
	q.release(slot)
	w := &q.slots[slot]
	if w.askedAt == q.now && w.asks >= maxAsks {
		q.hold(slot, laterKey, q.now+1)
		return
	}
	w.state = asking
	q.woken = append(q.woken, ticket{slot, w.turn.Attempt})
}

func (q *waiters) first(key WakeKey) (AttemptID, bool) {
	h, ok := q.keys[key]
	if !ok {
		return 0, false
	}
	return q.heaps[h][0].attempt, true
}

// nextDeadline is when the first hold ends, Never if none does.
func (q *waiters) nextDeadline() Time {
	if len(q.deadlines) == 0 {
		return Never
	}
	return q.deadlines[0].at
}
