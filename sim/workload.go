package sim

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// nsToPS converts recorded times.
const nsToPS = 1000

// turnState is where a turn of the trace stands.
type turnState struct {
	session  int32
	index    int32 // within the session
	thread   int32 // dense over all sessions
	waits    int32 // dependencies that have not triggered
	readyPS  int64 // latest trigger plus delay so far
	gapPS    int64 // delay of the dependency that decides
	attempts int32
	live     int32 // attempts that have not ended
	ended    bool  // finished, or failed for good
	depLo    int32 // dependents: those that wait for this turn
	depHi    int32
}

// dependent is an edge from a turn to one that waits for it.
type dependent struct {
	turn    int32
	on      traces.Trigger
	delayPS int64
}

// sessionState is where a session stands.
type sessionState struct {
	row       results.Session
	class     int32 // service class of its turns
	firstTurn int32
	turns     int32
	open      int32 // turns that have not ended
	live      int32 // attempts that have not ended
	started   bool
	failed    bool
	done      bool
	replicas  []int32  // that served it
	forks     []forked // streams that later turns use instead of the trace's
}

// forked says that content which the trace names by one stream is another stream in this run, since a retried attempt
// produced it.
type forked struct{ trace, run prefix.StreamID }

// layOut indexes the turns of the trace and who waits for whom.
func (r *run) layOut() {
	tr := r.cfg.Trace
	n := tr.Turns()
	r.turns = make([]turnState, 0, n)
	r.sessions = make([]sessionState, len(tr.Sessions))
	r.tree = tr.Tree.Clone()
	thread := int32(0)
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		r.sessions[i] = sessionState{
			class: classOf(r.cfg.Seed, int32(i), r.cfg.ClassShares), firstTurn: int32(len(r.turns)), turns: int32(len(s.Turns)), open: int32(len(s.Turns)),
			row: results.Session{Session: int32(i), Name: s.Name, Group: s.Group, StartPS: results.Missing, EndPS: results.Missing, Turns: int32(len(s.Turns))},
		}
		for j := range s.Turns {
			t := &s.Turns[j]
			r.turns = append(r.turns, turnState{session: int32(i), index: int32(j), thread: thread + t.Thread, waits: t.DepHi - t.DepLo, gapPS: results.Missing})
		}
		thread += s.Threads
	}
	r.threadOpen = make([]int32, thread)
	for i := range r.turns {
		r.threadOpen[r.turns[i].thread]++
	}
	r.linkDependents()
}

func (r *run) linkDependents() {
	tr := r.cfg.Trace
	count := make([]int32, len(r.turns)+1)
	each := func(f func(from, to int32, d *traces.Dep)) {
		for i := range tr.Sessions {
			s := &tr.Sessions[i]
			base := r.sessions[i].firstTurn
			for j := range s.Turns {
				for k := s.Turns[j].DepLo; k < s.Turns[j].DepHi; k++ {
					d := &s.Deps[k]
					f(base+d.Turn, base+int32(j), d)
				}
			}
		}
	}
	each(func(from, _ int32, _ *traces.Dep) { count[from+1]++ })
	for i := range r.turns {
		count[i+1] += count[i]
		r.turns[i].depLo, r.turns[i].depHi = count[i], count[i]
	}
	r.dependents = make([]dependent, count[len(r.turns)])
	each(func(from, to int32, d *traces.Dep) {
		r.dependents[r.turns[from].depHi] = dependent{turn: to, on: d.On, delayPS: d.DelayNS * nsToPS}
		r.turns[from].depHi++
	})
}

func (r *run) traceTurn(turn int32) *traces.Turn {
	t := &r.turns[turn]
	return &r.cfg.Trace.Sessions[t.session].Turns[t.index]
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
	n := len(r.sessions)
	r.order = make([]int32, n)
	for i := range r.order {
		r.order[i] = int32(i)
	}
	if a.Shuffle {
		for i := n - 1; i > 0; i-- {
			j := exact.UniformInt(exact.Hash2(r.cfg.Seed, purposeOrder, uint64(i)), int64(i+1))
			r.order[i], r.order[j] = r.order[j], r.order[i]
		}
	}
	switch a.Process {
	case Poisson, Uniform:
		r.startAtRate(a)
	case Recorded:
		for i := range r.sessions {
			at := float64(r.cfg.Trace.Sessions[i].StartNS) * nsToPS / a.Speedup
			r.agenda.push(toPS(at), sessionStarts, int32(i), 0)
		}
	case Concurrent:
		r.admitNext(min(a.Sessions, n), 0)
	case Burst:
		r.admitNext(n, 0)
	case Rollout:
		r.admitNext(min(a.Prompts*a.Samples, n), 0)
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

func (r *run) startAtRate(a *Arrivals) {
	at := int64(0)
	for i, s := range r.order {
		r.agenda.push(at, sessionStarts, s, 0)
		gap := 1 / a.RatePerS
		if a.Process == Poisson {
			gap *= -exact.Log(exact.Uniform(exact.Hash2(r.cfg.Seed, purposeArrival, uint64(i))))
		}
		at += toPS(gap * 1e12)
	}
}

// admitNext starts the next n sessions in order.
func (r *run) admitNext(n int, now int64) {
	for ; n > 0 && r.nextOrder < len(r.order); n-- {
		r.agenda.push(now, sessionStarts, r.order[r.nextOrder], 0)
		r.nextOrder++
	}
}

// sessionOver lets the next session in where arrivals depend on endings.
func (r *run) sessionOver(now int64) {
	r.sessionsDone++
	switch r.cfg.Arrivals.Process {
	case Concurrent:
		r.admitNext(1, now)
	case Rollout:
		if r.sessionsDone == r.nextOrder {
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
func (r *run) start(session int32, now int64) {
	ss := &r.sessions[session]
	ss.started = true
	ss.row.StartPS = now
	tr := &r.cfg.Trace.Sessions[session]
	for j := range tr.Turns {
		t := ss.firstTurn + int32(j)
		switch {
		case r.cfg.Open:
			speed := r.cfg.Arrivals.Speedup
			if speed == 0 {
				speed = 1
			}
			r.agenda.push(now+toPS(float64(tr.Turns[j].StartNS)*nsToPS/speed), turnArrives, t, 0)
		case r.turns[t].waits == 0:
			r.agenda.push(now+max(tr.Turns[j].StartNS, 0)*nsToPS, turnArrives, t, 0)
		}
	}
}

// trigger tells the turns that wait for this one that it was dispatched or that it completed.
func (r *run) trigger(turn int32, on traces.Trigger, now int64) {
	if r.cfg.Open {
		return
	}
	t := &r.turns[turn]
	for _, d := range r.dependents[t.depLo:t.depHi] {
		if d.on != on {
			continue
		}
		x := &r.turns[d.turn]
		if at := now + d.delayPS; at >= x.readyPS {
			x.readyPS, x.gapPS = at, d.delayPS
		}
		if x.waits--; x.waits == 0 && !x.ended {
			r.agenda.push(x.readyPS, turnArrives, d.turn, 0)
		}
	}
}
