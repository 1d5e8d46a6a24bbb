package sim

import (
	"slices"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// nsToPS converts recorded times.
const nsToPS = 1000

// turnRef names a turn: the place of its session among the live ones, and its index there.
type turnRef struct{ session, turn int32 }

// turnState is where a turn of a live session stands.
type turnState struct {
	thread   int32 // within the session
	waits    int32 // dependencies that have not triggered
	readyPS  int64 // latest trigger plus delay so far
	gapPS    int64 // delay of the dependency that decides
	ceiling  int32 // hit tokens with an infinite cache
	reached  int32 // prompt tokens that abandoned attempts had computed
	attempts int32
	live     int32 // attempts that have not ended
	ended    bool  // finished, or failed for good
	depLo    int32 // dependents: those that wait for this turn
	depHi    int32
}

// dependent is an edge from a turn to one of its session that waits for it.
type dependent struct {
	turn    int32
	on      traces.Trigger
	delayPS int64
}

// sessionState is where a live session stands. Its place is taken by another one when its row is written.
type sessionState struct {
	row        results.Session
	trace      *traces.Session
	class      int32 // service class of its turns
	thread     int32 // its first, dense over all sessions
	turns      []turnState
	dependents []dependent
	threadOpen []int32 // by thread: turns that have not ended
	open       int32   // turns that have not ended
	live       int32   // attempts that have not ended
	failed     bool
	done       bool
	replicas   []int32  // that served it
	forks      []forked // streams that later turns use instead of the trace's
}

// forked says that content which the trace names by one stream is another stream in this run, since a retried attempt
// produced it.
type forked struct{ trace, run prefix.StreamID }

// enter makes a session that starts live: it indexes its turns and who waits for whom. It returns its place.
func (r *run) enter(x pulled, now int64) int32 {
	var place int32
	if n := len(r.spareSessions); n > 0 {
		place, r.spareSessions = r.spareSessions[n-1], r.spareSessions[:n-1]
	} else {
		place = int32(len(r.sessions))
		r.sessions = append(r.sessions, sessionState{})
	}
	ss, s := &r.sessions[place], x.session
	n := int32(len(s.Turns))
	*ss = sessionState{
		row:   results.Session{Session: x.number, Name: s.Name, Group: s.Group, StartPS: now, EndPS: results.Missing, Turns: n},
		trace: s, class: classOf(r.cfg.Seed, x.number, r.cfg.ClassShares), thread: x.thread, open: n,
		turns: ss.turns[:0], dependents: ss.dependents[:0], threadOpen: zeros(ss.threadOpen, int(s.Threads)),
		replicas: ss.replicas[:0], forks: ss.forks[:0],
	}
	r.ceilings = r.ceiling.Of(x.number, s, r.ceilings[:0])
	for j := range s.Turns {
		t := &s.Turns[j]
		ss.turns = append(ss.turns, turnState{thread: t.Thread, waits: t.DepHi - t.DepLo, gapPS: results.Missing, ceiling: r.ceilings[j]})
		ss.threadOpen[t.Thread]++
	}
	ss.linkDependents()
	return place
}

func zeros(v []int32, n int) []int32 {
	v = slices.Grow(v[:0], n)[:n]
	clear(v)
	return v
}

func (ss *sessionState) linkDependents() {
	s := ss.trace
	for i := range s.Turns {
		for _, d := range s.Deps[s.Turns[i].DepLo:s.Turns[i].DepHi] {
			ss.turns[d.Turn].depHi++
		}
	}
	n := int32(0)
	for i := range ss.turns {
		t := &ss.turns[i]
		t.depLo, n = n, n+t.depHi
		t.depHi = t.depLo
	}
	ss.dependents = slices.Grow(ss.dependents[:0], int(n))[:n]
	for i := range s.Turns {
		for _, d := range s.Deps[s.Turns[i].DepLo:s.Turns[i].DepHi] {
			from := &ss.turns[d.Turn]
			ss.dependents[from.depHi] = dependent{turn: int32(i), on: d.On, delayPS: d.DelayNS * nsToPS}
			from.depHi++
		}
	}
}

// leave gives the place of a session back whose row is written.
func (r *run) leave(place int32) {
	ss := &r.sessions[place]
	r.forget(ss)
	ss.trace = nil
	r.spareSessions = append(r.spareSessions, place)
}

func (r *run) turn(t turnRef) *turnState { return &r.sessions[t.session].turns[t.turn] }

func (r *run) traceTurn(t turnRef) *traces.Turn {
	return &r.sessions[t.session].trace.Turns[t.turn]
}

// isLive tells whether a session is live at its place.
func (r *run) isLive(place, number int32) bool {
	ss := &r.sessions[place]
	return ss.trace != nil && ss.row.Session == number
}

// plan puts the arrival of a turn on the agenda. Turns that arrive at one moment do so in the order of the trace.
func (r *run) plan(t turnRef, at int64) {
	r.agenda.pushTurn(at, r.sessions[t.session].row.Session, t)
}

// stream is the stream that stands in this run for stream s of the trace in one session. Where a retried attempt
// produced the content that s forks from, s is forked anew.
func (r *run) stream(ss *sessionState, s prefix.StreamID) prefix.StreamID {
	if len(ss.forks) == 0 || s == prefix.None {
		return s
	}
	for i := len(ss.forks) - 1; i >= 0; i-- {
		if ss.forks[i].trace == s {
			return ss.forks[i].run
		}
	}
	x := r.tree.Stream(s)
	p := r.stream(ss, x.Parent)
	if p == x.Parent {
		return s
	}
	before, after := prefix.Prefix{Stream: x.Parent, Tokens: x.ForkAt}, prefix.Prefix{Stream: p, Tokens: x.ForkAt}
	if r.tree.Owner(before) == r.tree.Owner(after) {
		return s // what it shares was not affected
	}
	f := r.tree.Fork(after)
	ss.forks = append(ss.forks, forked{s, f})
	return f
}

// arrange plans the arrivals of sessions.
func (r *run) arrange() {
	a := &r.cfg.Arrivals
	switch a.Process {
	case Poisson, Uniform, Recorded:
		r.planNext()
	case Concurrent:
		r.admitNext(a.Sessions, 0)
	case Burst:
		r.admitNext(r.feed.total, 0)
	case Rollout:
		r.admitNext(a.Prompts*a.Samples, 0)
	}
}

// Purposes of random draws, so that one kind never shifts another.
const (
	purposeOrder uint64 = iota + 1
	purposeArrival
	purposeClass
)

// classOf draws the service class of a session; a class with share 0 is never drawn.
func classOf(seed uint64, session int32, shares []float64) int32 {
	u := exact.Uniform(exact.Hash2(seed, purposeClass, uint64(session)))
	class := int32(0)
	for k, share := range shares {
		if share <= 0 {
			continue
		}
		class = int32(k)
		if u < share {
			break
		}
		u -= share
	}
	return class
}

// planNext plans the start of the session that comes next by the clock, and of all that start at the same moment. It is
// called again when none of these is left.
func (r *run) planNext() {
	f := &r.feed
	first := int64(-1)
	for f.left() > 0 || f.next.session != nil {
		if f.next.session == nil {
			if f.next = r.pull(); r.err != nil {
				return
			}
		}
		at := r.nextStart()
		if first >= 0 && at != first {
			return
		}
		first = at
		r.admit(f.next, at)
		f.next = pulled{}
		r.passGap()
	}
}

// nextStart is when the session that was pulled last starts.
func (r *run) nextStart() int64 {
	if a := &r.cfg.Arrivals; a.Process == Recorded {
		return toPS(float64(r.feed.next.session.StartNS) * nsToPS / a.Speedup)
	}
	return r.feed.start
}

// passGap moves the next start on by the gap behind the session that was pulled last.
func (r *run) passGap() {
	a, f := &r.cfg.Arrivals, &r.feed
	gap := 1 / a.RatePerS
	switch a.Process {
	case Recorded:
		return
	case Poisson:
		gap *= -exact.Log(exact.Uniform(exact.Hash2(r.cfg.Seed, purposeArrival, uint64(f.taken-1))))
	}
	f.start += toPS(gap * 1e12)
}

// pull takes the next session from the source; a source that fails ends the run.
func (r *run) pull() pulled {
	x, err := r.feed.pull()
	if err != nil && r.err == nil {
		r.err = err
	}
	return x
}

// admit plans the start of a session.
func (r *run) admit(x pulled, at int64) {
	r.feed.waiting = append(r.feed.waiting, x)
	r.agenda.push(at, sessionStarts, x.number, 0)
}

// admitNext starts the next n sessions, or as many as are left.
func (r *run) admitNext(n int, now int64) {
	f := &r.feed
	n = min(n, f.left())
	if f.cursor == nil { // those that start at one moment start by their number
		slices.Sort(f.order[f.taken : f.taken+n])
	}
	for ; n > 0; n-- {
		x := r.pull()
		if r.err != nil {
			return
		}
		r.admit(x, now)
	}
}

// sessionOver lets the next session in where arrivals depend on endings.
func (r *run) sessionOver(now int64) {
	r.sessionsDone++
	switch r.cfg.Arrivals.Process {
	case Concurrent:
		r.admitNext(1, now)
	case Rollout:
		if r.sessionsDone == r.feed.taken {
			r.admitNext(r.cfg.Arrivals.Prompts*r.cfg.Arrivals.Samples, now)
		}
	}
}

// toPS rounds a time that a float computation gave; the scenario's ranges keep it far from the end of int64.
func toPS(x float64) int64 {
	v, _ := exact.RoundToInt64(x)
	return v
}

// start begins a session: the turns that wait for nothing arrive at their recorded offsets from its start, in open
// replay all of them.
func (r *run) start(number int32, now int64) {
	x := r.feed.take(number)
	if a := r.cfg.Arrivals.Process; len(r.feed.waiting) == 0 && (a == Poisson || a == Uniform || a == Recorded) {
		r.planNext()
	}
	place := r.enter(x, now)
	for j := range x.session.Turns {
		u, t := &x.session.Turns[j], turnRef{place, int32(j)}
		switch {
		case r.cfg.Open:
			speed := r.cfg.Arrivals.Speedup
			if speed == 0 {
				speed = 1
			}
			r.plan(t, now+toPS(float64(u.StartNS)*nsToPS/speed))
		case r.turn(t).waits == 0:
			r.plan(t, now+max(u.StartNS, 0)*nsToPS)
		}
	}
}

// trigger tells the turns that wait for this one that it was dispatched or that it completed.
func (r *run) trigger(turn turnRef, on traces.Trigger, now int64) {
	if r.cfg.Open {
		return
	}
	ss := &r.sessions[turn.session]
	t := &ss.turns[turn.turn]
	for _, d := range ss.dependents[t.depLo:t.depHi] {
		if d.on != on {
			continue
		}
		x := &ss.turns[d.turn]
		if at := now + d.delayPS; at >= x.readyPS {
			x.readyPS, x.gapPS = at, d.delayPS
		}
		if x.waits--; x.waits == 0 && !x.ended {
			r.plan(turnRef{turn.session, d.turn}, x.readyPS)
		}
	}
}
