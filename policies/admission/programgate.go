package admission

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-sim/sluice/policies"
)

// programRules is what the gates over programs differ in.
type programRules struct {
	pauseAbove  float64 // share of a capacity; above it programs are paused
	pauseTo     float64 // down to this share
	resumeTo    float64 // up to this share programs are let back
	markAll     bool    // when acting programs do not suffice, mark every reasoning one
	decayed     bool    // the room to let programs back into counts acting tokens as decayed
	leastTokens bool    // a new program goes to the backend with the fewest active tokens and fits there or waits; else to the least used of those where it fits
	behindAny   bool    // a new program waits while any program is paused, not only while a turn waits
	timeout     policies.Time
	retention   policies.Time // an acting program is forgotten after this time; 0 for never
	maxPrograms int           // more go by unseen
}

// programGate admits programs as far as their tokens fit, pauses some when they have outgrown a replica and places those
// that it lets back. It names the replica of every turn that it admits.
type programGate struct {
	programRules
	table table
	ticks ticker

	order []policies.ThreadID // scratch of a tick
	taken []policies.ThreadID
}

func waitKey(t policies.ThreadID) policies.WakeKey { return policies.WakeKey(t) }

func (g *programGate) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	g.table.cover(v.Replicas())
	switch f.Kind {
	case policies.Finished, policies.Failed:
		g.turnEnds(now, v, f)
	case policies.ClientGone, policies.AttemptSuperseded:
		g.turnLeaves(now, f)
	case policies.ThreadFinished: // turns of it that wait go without a place in the table
		g.table.forget(f.Thread)
		v.Wake(waitKey(f.Thread), -1)
	case policies.ReplicaDown, policies.ReplicaDraining:
		g.table.lose(f.Replica)
	case policies.Woke:
		if g.ticks.due(now) {
			g.tick(now, v)
		}
	}
}

// turnEnds makes a program act, or pauses it if it was marked.
func (g *programGate) turnEnds(now policies.Time, v *policies.View, f *policies.Fact) {
	p := g.table.of(f.Thread)
	if p.stage == noProgram {
		return
	}
	g.table.change(p, func(p *program) {
		p.running, p.acting = v.Running(f.Thread), now
		if f.Kind == policies.Finished {
			p.tokens = v.History(f.Thread)
		}
	})
	if p.marked && p.running == 0 {
		g.table.lift(p)
	}
}

// turnLeaves forgets a turn that waited. A program whose first turn has left is none.
func (g *programGate) turnLeaves(now policies.Time, f *policies.Fact) {
	p := g.table.of(f.Thread)
	if p.waits != f.Attempt {
		return
	}
	if p.stage == newcomer {
		g.table.forget(f.Thread)
		p.waits = noTurn
		return
	}
	g.table.change(p, func(p *program) { p.waits, p.acting = noTurn, now })
}

func (g *programGate) Admit(now policies.Time, v *policies.View, t *policies.Turn, _ *policies.Probes) policies.Verdict {
	g.ticks.start(now)
	g.table.cover(v.Replicas())
	p := g.table.of(t.Thread)
	if v.ThreadEnded(t.Thread) {
		return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.SessionOver, Placed: true, Replica: g.roomiest(now, v)}
	}
	if p.stage == noProgram {
		if g.maxPrograms > 0 && len(g.table.live) >= g.maxPrograms {
			return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.Ungated}
		}
		waiting := g.waiting()
		p = g.table.register(t.Thread, v.Running(t.Thread))
		p.tokens = t.Prompt.Tokens
		if r := g.first(v, p); r != policies.NoReplica && !waiting {
			return g.start(v, p, t, r, policies.Fits)
		}
	}
	if p.waits != t.Attempt {
		if p.stage == inPlace {
			return g.known(now, v, p, t)
		}
		p.waits, p.since, p.tokens = t.Attempt, now, t.Prompt.Tokens
	}
	switch {
	case p.stage == inPlace: // a tick has let it back
		return g.known(now, v, p, t)
	case now-p.since >= g.timeout:
		return g.start(v, p, t, g.roomiest(now, v), policies.Forced)
	}
	why := policies.Paused
	if p.stage == newcomer {
		why = policies.NoRoom
	}
	return policies.Verdict{Kind: policies.VerdictHold, Reason: why, Until: p.since + g.timeout, WakeOn: waitKey(t.Thread)}
}

// waiting says whether a new program must queue.
func (g *programGate) waiting() bool {
	if g.behindAny {
		return g.table.aside > 0
	}
	for _, t := range g.table.live {
		if p := &g.table.programs[t]; p.stage != inPlace && p.waits != noTurn {
			return true
		}
	}
	return false
}

// known admits a turn of a program that is in place.
func (g *programGate) known(now policies.Time, v *policies.View, p *program, t *policies.Turn) policies.Verdict {
	why := policies.ActiveProgram
	if p.resumed {
		why, p.resumed = policies.Resumed, false
	}
	r := p.backend
	if !v.IsUp(r) {
		r = g.roomiest(now, v)
	}
	g.table.change(p, func(p *program) {
		p.backend, p.waits, p.tokens, p.running = r, noTurn, t.Prompt.Tokens, v.Running(t.Thread)+1
	})
	return policies.Verdict{Kind: policies.VerdictAdmit, Reason: why, Placed: true, Replica: r}
}

// start puts a program on r and admits its turn.
func (g *programGate) start(v *policies.View, p *program, t *policies.Turn, r policies.ReplicaID, why policies.Reason) policies.Verdict {
	p.waits, p.running = noTurn, v.Running(t.Thread)+1
	g.table.put(p, r)
	return policies.Verdict{Kind: policies.VerdictAdmit, Reason: why, Placed: true, Replica: r}
}

// first is where a new program goes; NoReplica if it does not fit there.
func (g *programGate) first(v *policies.View, p *program) policies.ReplicaID {
	best, least := policies.NoReplica, 0.0
	need := float64(p.tokens) + float64(g.table.overhead)
	for _, r := range v.Up() {
		load := g.table.used(r)
		if g.leastTokens {
			x := &g.table.backends[r]
			load = float64(x.reasoning + x.acting)
		} else if capacity(v, r)-load < need {
			continue
		}
		if best == policies.NoReplica || load < least {
			best, least = r, load
		}
	}
	if best != policies.NoReplica && capacity(v, best)-g.table.used(best) < need {
		return policies.NoReplica
	}
	return best
}

// roomiest is the replica with the most room left, acting programs decayed; lowest number on a tie.
func (g *programGate) roomiest(now policies.Time, v *policies.View) policies.ReplicaID {
	best, most := policies.NoReplica, 0.0
	for _, r := range v.Up() {
		if room := capacity(v, r) - g.table.decayed(now, r); best == policies.NoReplica || room > most {
			best, most = r, room
		}
	}
	return best
}

// capacity is the KV tokens of r. A replica whose capacity is unknown has room for everything.
func capacity(v *policies.View, r policies.ReplicaID) float64 {
	if c := v.Capability(r).KVTokens; c > 0 {
		return float64(c)
	}
	return math.MaxInt64
}

func (g *programGate) NextWake() policies.Time {
	if len(g.table.live) == 0 {
		return policies.Never
	}
	return g.ticks.next()
}

// tick lets back what fits, then pauses where programs have outgrown a replica.
func (g *programGate) tick(now policies.Time, v *policies.View) {
	if g.retention > 0 {
		g.expire(now)
	}
	if g.table.aside > 0 {
		g.resume(now, v)
	}
	for _, r := range v.Up() {
		if capacity := capacity(v, r); g.table.used(r) > g.pauseAbove*capacity {
			g.pause(r, g.pauseTo*capacity)
		}
	}
}

// expire forgets programs that have acted for the retention.
func (g *programGate) expire(now policies.Time) {
	g.order = append(g.order[:0], g.table.live...)
	for _, t := range g.order {
		if p := &g.table.programs[t]; !p.reasons() && now-p.acting >= g.retention {
			g.table.forget(t)
		}
	}
}

// resume chooses programs in order, as many as fit into the whole room, and places the largest first.
func (g *programGate) resume(now policies.Time, v *policies.View) {
	total, overhead := 0.0, float64(g.table.overhead)
	for _, r := range v.Up() {
		x := &g.table.backends[r]
		used := g.table.used(r)
		if g.decayed {
			used = g.table.decayed(now, r)
		}
		if x.room = float64(g.resumeTo*capacity(v, r)) - used; x.room > overhead {
			total += x.room
		}
	}
	g.order = g.order[:0]
	for _, t := range g.table.live {
		if g.table.programs[t].stage != inPlace {
			g.order = append(g.order, t)
		}
	}
	slices.SortFunc(g.order, func(a, b policies.ThreadID) int {
		x, y := &g.table.programs[a], &g.table.programs[b]
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), cmp.Compare(x.tokens, y.tokens), cmp.Compare(x.order, y.order))
	})
	g.taken = g.taken[:0]
	for _, t := range g.order {
		if need := float64(g.table.programs[t].tokens) + overhead; need <= total {
			total -= need
			g.taken = append(g.taken, t)
		}
	}
	slices.SortFunc(g.taken, func(a, b policies.ThreadID) int {
		x, y := &g.table.programs[a], &g.table.programs[b]
		return cmp.Or(cmp.Compare(y.tokens, x.tokens), cmp.Compare(x.order, y.order))
	})
	for _, t := range g.taken {
		p := &g.table.programs[t]
		best := policies.NoReplica
		for _, r := range v.Up() {
			if room := g.table.backends[r].room; room > overhead && (best == policies.NoReplica || room > g.table.backends[best].room) {
				best = r
			}
		}
		need := float64(p.tokens) + overhead
		if best == policies.NoReplica || need > g.table.backends[best].room {
			continue
		}
		g.table.backends[best].room -= need
		p.resumed = true
		g.table.put(p, best)
		v.Wake(waitKey(t), -1)
	}
}

// rank is the order of resumption: a turn of a known program waits, a new program, one that acts.
func (p *program) rank() int {
	switch {
	case p.stage == newcomer:
		return 1
	case p.reasons():
		return 0
	}
	return 2
}

// pause sets acting programs on r aside, smallest first, until no more than target is used, and marks reasoning ones if
// that does not suffice.
func (g *programGate) pause(r policies.ReplicaID, target float64) {
	g.order = g.order[:0]
	for _, t := range g.table.live {
		if p := &g.table.programs[t]; p.stage == inPlace && p.backend == r {
			g.order = append(g.order, t)
		}
	}
	slices.SortFunc(g.order, func(a, b policies.ThreadID) int {
		x, y := &g.table.programs[a], &g.table.programs[b]
		return cmp.Or(cmp.Compare(x.tokens, y.tokens), cmp.Compare(x.order, y.order))
	})
	left := g.table.used(r)
	for _, t := range g.order {
		if p := &g.table.programs[t]; left > target && !p.reasons() {
			g.table.lift(p)
			left = g.table.used(r)
		}
	}
	for _, t := range g.order {
		p := &g.table.programs[t]
		if left > target && p.stage == inPlace && p.reasons() {
			p.marked = true
			if !g.markAll {
				left -= float64(p.tokens) + float64(g.table.overhead)
			}
		}
	}
}
