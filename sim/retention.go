package sim

import (
	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// A pin holds the blocks of a finished turn as a request would, so that they are not evicted. Stock vLLM has no such
// thing.

// pin is one pin of one replica's blocks.
type pin struct {
	generation uint32
	open       bool
	attempt    policies.AttemptID
	turn       turnRef
	session    int32 // its number
	started    int64 // when it did
	replica    int32
	table      kv.Handle
	tokens     int64
	since      int64
}

// endedTurn is the content of a turn that ended at this moment, until the policies have said what becomes of it.
type endedTurn struct {
	attempt policies.AttemptID
	turn    turnRef
	session int32         // its number
	started int64         // when it did
	content prefix.Prefix // computed: the last output token is not
}

// retention is the pins of a run.
type retention struct {
	pins        []pin
	spare       []int32
	content     []endedTurn
	path        []prefix.Segment
	on          bool
	clairvoyant bool // room is made by giving up what is used last
}

func (c *Config) newRetention(e policies.Env) policies.Retention {
	if c.Retention.NewRetention == nil {
		return nil
	}
	return c.Retention.NewRetention(e, c.RetentionParams)
}

// ended remembers a turn for the policies' next word.
func (t *retention) ended(x *attempt, ss *sessionState) {
	if t.on {
		t.content = append(t.content, endedTurn{x.id, x.turn, ss.row.Session, ss.row.StartPS, prefix.Prefix{Stream: x.prompt.Stream, Tokens: x.prompt.Tokens + x.row.OutputTokens - 1}})
	}
}

// pin keeps what is resident of an ended turn's content.
func (r *run) pin(c policies.Command) {
	t := &r.retention
	for _, e := range t.content {
		if e.attempt != c.Attempt {
			continue
		}
		i := int32(c.Replica)
		pool := r.replicas[i].loop.Pool()
		b := r.cfg.Engine.BlockTokens
		t.path = r.tree.Segments(e.content, b, t.path[:0])
		hits, _ := pool.Lookup(t.path, e.content.Tokens/b)
		if hits == 0 {
			return
		}
		r.catchUp(i, r.now)
		r.interrupt(i)
		k := t.place()
		x := &t.pins[k]
		*x = pin{generation: x.generation + 1, open: true, attempt: c.Attempt, turn: e.turn, session: e.session, started: e.started, replica: i, table: pool.Open(), tokens: int64(hits * b), since: r.now}
		pool.Hold(x.table, t.path, hits)
		r.replicas[i].pins = append(r.replicas[i].pins, k)
		r.totals.Pins++
		if c.Until < policies.Never {
			r.agenda.push(int64(c.Until)*nsToPS, pinExpires, k, x.generation)
		}
		return
	}
}

func (t *retention) place() int32 {
	if n := len(t.spare); n > 0 {
		k := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return k
	}
	t.pins = append(t.pins, pin{})
	return int32(len(t.pins) - 1)
}

func (r *run) unpinAttempt(c policies.Command) {
	for _, k := range r.replicas[c.Replica].pins {
		if r.retention.pins[k].attempt == c.Attempt {
			r.unpin(k)
			return
		}
	}
}

// pinExpired ends a pin in time. A step that ends at this very moment ends first.
func (r *run) pinExpired(k int32, generation uint32) {
	x := &r.retention.pins[k]
	if !x.open || x.generation != generation {
		return
	}
	if !r.lookAll() {
		r.agenda.push(r.now, pinExpires, k, generation)
		return
	}
	r.totals.PinsExpired++
	r.unpin(k)
}

// unpin gives a pin's blocks back. More are free then, so a run that relied on the head of the queue staying where it is
// ends.
func (r *run) unpin(k int32) {
	x := &r.retention.pins[k]
	p := &r.replicas[x.replica]
	r.catchUp(x.replica, r.now)
	r.interrupt(x.replica)
	p.loop.Pool().Release(x.table)
	r.drop(k)
	for n, q := range p.pins {
		if q == k {
			p.pins = append(p.pins[:n], p.pins[n+1:]...)
			break
		}
	}
	r.wake(x.replica)
}

// drop forgets a pin whose blocks are gone.
func (r *run) drop(k int32) {
	x := &r.retention.pins[k]
	x.open = false
	r.totals.PinnedTokenS += float64(float64(x.tokens) * float64(r.now-x.since) / 1e12)
	r.retention.spare = append(r.retention.spare, k)
}

// forgetPins drops the pins of a replica whose pool is a new one.
func (r *run) forgetPins(p *replica) {
	for _, k := range p.pins {
		r.drop(k)
	}
	p.pins = p.pins[:0]
}

func (r *run) unpinAll() {
	for i := range r.replicas {
		for p := &r.replicas[i]; len(p.pins) > 0; {
			r.unpin(p.pins[len(p.pins)-1])
		}
	}
}

// makeRoom gives pins up where the engine could not go on: with nothing running and the head of its queue not fitting, the
// pin of the session that arrived last goes (spec: policies C2, a rule of ours). The clairvoyant bound gives up what is
// used last as soon as a step needs the room.
func (r *run) makeRoom(i int32) {
	if !r.retention.on {
		return
	}
	p := &r.replicas[i]
	for len(p.pins) > 0 {
		if r.retention.clairvoyant {
			if p.loop.Wanted() <= p.loop.Pool().Free() {
				return
			}
		} else if p.loop.Running() > 0 || !p.loop.HeadIsShort() {
			return
		}
		victim := p.pins[0]
		for _, k := range p.pins[1:] {
			if r.goesBefore(k, victim) {
				victim = k
			}
		}
		r.totals.PinsForRoom++
		r.unpin(victim)
	}
}

// goesBefore tells whether pin a is given up before pin b.
func (r *run) goesBefore(a, b int32) bool {
	x, y := &r.retention.pins[a], &r.retention.pins[b]
	if r.retention.clairvoyant {
		if u, v := r.nextUse(x), r.nextUse(y); u != v {
			return u > v
		}
	} else if x.started != y.started {
		return x.started > y.started
	}
	return x.attempt > y.attempt
}

// nextUse is when a turn that continues the thread of a pin arrives, as far as that is known by now.
func (r *run) nextUse(p *pin) int64 {
	next := never
	if !r.isLive(p.turn.session, p.session) {
		return next
	}
	ss := &r.sessions[p.turn.session]
	t := &ss.turns[p.turn.turn]
	for _, d := range ss.dependents[t.depLo:t.depHi] {
		if x := &ss.turns[d.turn]; x.thread == t.thread && !x.ended {
			at := x.readyPS
			if x.waits > 0 {
				at = never - 1 // it comes, but nobody knows when
			}
			next = min(next, at)
		}
	}
	return next
}

// roomIsMade tells whether pins may be given up in any step of a replica, so that no step is like the one before.
func (r *run) roomIsMade(p *replica) bool { return r.retention.clairvoyant && len(p.pins) > 0 }
