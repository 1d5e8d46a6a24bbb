package sim

import (
	"unsafe"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefetch"
	"github.com/sluice-sim/sluice/prefix"
)

// With thousands of replicas, nothing of the one whose event comes next is in the processor's caches, and a run would mostly
// wait for memory. So while an event is handled, the memory that the next one will touch is asked for, stage by stage: a stage
// follows pointers that the stage before it has asked for. None of this shows in what a run does; an event that was not
// foreseen, or whose request, session or replica has changed since, only takes longer.

// manyReplicas is from how many replicas on this pays: the caches of common processors hold one or two hundred.
const manyReplicas = 256

// ahead is the event that comes next and the one that is being handled, and what is known of them.
type ahead struct {
	on        bool
	core      *policies.Controller
	next, own target
}

// target is an event that was foreseen.
type target struct {
	at      int64
	kind    eventKind // or stepEnds
	stage   uint8     // the one that is due
	what    int32     // replica, attempt or place of a session, by kind
	turn    int32     // of the session
	slot    engine.Slot
	gets    engine.Gets     // what the request in slot gets from the step that ends
	attempt int32           // that is this request, or noAttempt
	stream  prefix.StreamID // that the prompt of the attempt, or of the turn, ends in
}

// stepEnds is the kind of a target that is the end of a step.
const stepEnds = wakeDue + 1

const noAttempt int32 = -1

// planAhead decides whether to ask for memory ahead.
func (r *run) planAhead() {
	h := &r.ahead
	h.core, h.on = r.control.(*policies.Controller)
	h.on = h.on && prefetch.Works && (len(r.replicas) >= manyReplicas || r.cfg.ahead)
	h.next = target{kind: wakeDue, attempt: noAttempt, stream: prefix.None} // of which nothing is asked for
	h.own = h.next
}

// prefetchBegin is called as an event begins to be handled: the next one can be foreseen now, and what was asked for of this
// one may have arrived.
func (r *run) prefetchBegin() {
	if !r.ahead.on {
		return
	}
	h := &r.ahead.own
	*h = r.ahead.next
	r.foresee()
	r.prefetchNext()
	if h.stream != prefix.None {
		r.history.prefetch(h.stream, 1)
		r.ahead.core.PrefetchStream(h.stream, 1)
	}
	if h.kind == stepEnds {
		r.prefetchLate(h)
	}
}

// prefetchOwn is called when a first part of the event is done.
func (r *run) prefetchOwn() {
	h := &r.ahead.own
	if !r.ahead.on || h.at != r.now {
		return
	}
	if h.attempt != noAttempt {
		r.ahead.core.PrefetchLease(r.attempts[h.attempt].id, 2)
	}
	if h.stream != prefix.None {
		r.history.prefetch(h.stream, 2)
		r.ahead.core.PrefetchStream(h.stream, 2)
	}
}

// foresee finds out which event comes next.
func (r *run) foresee() {
	h := &r.ahead.next
	e := r.ends.next()
	if len(r.agenda.heap) > 0 && r.agenda.heap[0].at < e.at {
		x := &r.agenda.heap[0]
		if h.at != x.at || h.kind != x.kind {
			*h = target{at: x.at, kind: x.kind, what: x.a, attempt: noAttempt, stream: prefix.None}
			if x.kind == turnArrives {
				h.what, h.turn = x.c, int32(x.b)
			}
		}
	} else if h.at != e.at || h.kind != stepEnds {
		*h = target{at: e.at, kind: stepEnds, what: e.replica, attempt: noAttempt, stream: prefix.None}
	}
}

// prefetchNext is the next stage for the event that comes next. There are four while another event is handled, fewer when it was
// planned meanwhile.
func (r *run) prefetchNext() {
	if !r.ahead.on {
		return
	}
	h := &r.ahead.next
	switch h.kind {
	case stepEnds:
		r.prefetchEnd(h)
	case turnArrives:
		r.prefetchTurn(h)
	case clientSees:
		r.prefetchClient(h)
	}
	h.stage++
}

// prefetchEnd is for the end of a step.
func (r *run) prefetchEnd(h *target) {
	p := &r.replicas[h.what]
	switch h.stage {
	case 0:
		p.prefetch()
		p.loop.Prefetch(0)
	case 1:
		prefetch.Slice(p.slots)
		prefetch.Slice(p.inbox)
		p.loop.Prefetch(1)
	case 2:
		p.loop.Prefetch(2)
		if h.slot, h.gets = p.loop.Gets(p.stepsAhead()); h.gets != engine.Nothing {
			h.attempt = p.slots[h.slot].attempt
			prefetch.Value(&r.attempts[h.attempt])
		}
		if h.gets == engine.Last {
			p.loop.PrefetchLast(h.slot, 0)
		}
		for _, a := range p.inbox {
			prefetch.Value(&r.attempts[a])
		}
	case 3:
		if h.gets != engine.Nothing {
			r.ahead.core.PrefetchLease(r.attempts[h.attempt].id, 0)
		}
		if h.gets == engine.Last {
			x := &r.attempts[h.attempt]
			prefetch.Value(&r.sessions[x.turn.session])
			h.stream = x.prompt.Stream
			r.history.prefetch(h.stream, 0)
			r.ahead.core.PrefetchStream(h.stream, 0)
			p.loop.PrefetchLast(h.slot, 1)
		}
		for _, a := range p.inbox {
			prefetch.Slice(r.attempts[a].path)
			r.ahead.core.PrefetchLease(r.attempts[a].id, 0)
		}
		if h.gets == engine.Last || len(p.inbox) > 0 {
			p.loop.Prefetch(3)
		}
	}
}

// prefetchLate is the stage of the end of a step that comes when it begins to be handled.
func (r *run) prefetchLate(h *target) {
	p := &r.replicas[h.what]
	if h.gets != engine.Nothing {
		r.ahead.core.PrefetchLease(r.attempts[h.attempt].id, 1)
	}
	if h.gets == engine.Last {
		r.prefetchSuccessor(r.attempts[h.attempt].turn)
		p.loop.PrefetchLast(h.slot, 2)
	}
	for _, a := range p.inbox {
		p.loop.PrefetchPath(r.attempts[a].path)
		r.ahead.core.PrefetchLease(r.attempts[a].id, 1)
	}
}

// stepsAhead is how many steps end up to the end that is planned, that one included.
func (p *replica) stepsAhead() int32 {
	n := int32(1)
	if p.decoding.active {
		n += p.decoding.left
	}
	if p.deferred {
		n++
	}
	return n
}

// prefetch asks for what every end of a step touches of a replica itself.
func (p *replica) prefetch() {
	prefetch.Front(p, unsafe.Offsetof(p.series)+unsafe.Offsetof(p.series.closed))
}

// prefetchTurn is for the arrival of a turn.
func (r *run) prefetchTurn(h *target) {
	ss := &r.sessions[h.what]
	if h.stage > 0 && (ss.trace == nil || int(h.turn) >= len(ss.turns)) {
		return // another session has its place now, or none
	}
	switch h.stage {
	case 0:
		prefetch.Value(ss)
	case 1:
		prefetch.Value(&ss.turns[h.turn])
		prefetch.Value(&ss.trace.Turns)
	case 2:
		prefetch.Value(&ss.trace.Turns[h.turn])
		if n := len(ss.replicas); n > 0 { // which the turn is likely to go to
			r.replicas[ss.replicas[n-1]].prefetch()
		}
	case 3:
		h.stream = ss.trace.Turns[h.turn].Prompt.Stream
		r.history.prefetch(h.stream, 0)
		r.ahead.core.PrefetchThread(policies.ThreadID(ss.thread + ss.turns[h.turn].thread))
		r.ahead.core.PrefetchStream(h.stream, 0)
	}
}

// prefetchClient is for the moment at which a client has its answer.
func (r *run) prefetchClient(h *target) {
	x := &r.attempts[h.what]
	switch h.stage {
	case 0:
		prefetch.Value(x)
	case 1:
		prefetch.Value(&r.sessions[x.turn.session])
	case 2:
		r.prefetchSuccessor(x.turn)
	}
}

// prefetchSuccessor asks for what the end of a turn touches of its session.
func (r *run) prefetchSuccessor(t turnRef) {
	ss := &r.sessions[t.session]
	if n := int32(len(ss.turns)); t.turn < n {
		prefetch.Slice(ss.turns[t.turn:min(t.turn+2, n)])
	}
	prefetch.Slice(ss.dependents)
	prefetch.Slice(ss.threadOpen)
}
