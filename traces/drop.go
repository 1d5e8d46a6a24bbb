package traces

import (
	"cmp"
	"slices"
)

// DropOverContext returns the trace without the turns whose prompt and output together exceed maxContext tokens. What
// waited for a dropped turn waits for what that turn waited for, plus its service time, so the chain goes on. Dropped
// turns are counted in the report under "context limit". tr is not changed; the content tree is shared.
func DropOverContext(tr *Trace, maxContext int32) *Trace {
	return dropTurns(tr, overContext, longerThan(maxContext))
}

const overContext = "context limit"

func longerThan(maxContext int32) func(*Session) func(*Turn) bool {
	return func(*Session) func(*Turn) bool {
		return func(t *Turn) bool { return t.tokens() > int64(maxContext) }
	}
}

// Head returns the first n sessions of the trace. The others were not asked for: they count neither as read nor as
// dropped, only in a note. tr is not changed; the content tree is shared.
func Head(tr *Trace, n int) *Trace {
	n = min(max(n, 0), len(tr.Sessions))
	out := *tr
	out.Sessions = tr.Sessions[:n:n]
	out.Report.leftOut(n, len(tr.Sessions)-n, int64(tr.Turns()-out.Turns()))
	return &out
}

// dropTurns removes turns for a reason. drop is asked for its judgement once per session.
func dropTurns(tr *Trace, reason string, drop func(*Session) func(*Turn) bool) *Trace {
	out := *tr
	out.Sessions = make([]Session, 0, len(tr.Sessions))
	c := cutter{drop: drop, fallback: max(0, medianDuration(tr)), notes: tally{}}
	for i := range tr.Sessions {
		if s, ok := c.cut(&tr.Sessions[i]); ok {
			out.Sessions = append(out.Sessions, *s)
		}
	}
	c.report(&out.Report, reason)
	return &out
}

// medianDuration is the median of all known service times of a trace; Unknown if there is none.
func medianDuration(tr *Trace) int64 {
	var all []int64
	for i := range tr.Sessions {
		all = knownDurations(all, &tr.Sessions[i])
	}
	return median(all)
}

// cutter takes turns out of sessions.
type cutter struct {
	drop     func(*Session) func(*Turn) bool
	fallback int64 // service time of dropped turns in sessions where none is known
	dropped  int64
	notes    tally
}

// cut is a session without the turns that are dropped; false if that is all of them.
func (c *cutter) cut(s *Session) (*Session, bool) {
	dropped := make([]bool, len(s.Turns))
	judge, n := c.drop(s), 0
	for t := range s.Turns {
		if judge(&s.Turns[t]) {
			dropped[t] = true
			n++
		}
	}
	c.dropped += int64(n)
	switch n {
	case 0:
		return s, true
	case len(s.Turns):
		c.notes.add("session left out, all its turns dropped", 1)
		return nil, false
	}
	out := withoutTurns(s, dropped, c.fallback, c.notes)
	return &out, true
}

// report adds what was dropped to a report.
func (c *cutter) report(r *Report, reason string) {
	r.Dropped = slices.Clone(r.Dropped)
	r.addDropped(reason, c.dropped)
	r.addNotes(c.notes)
}

func knownDurations(dst []int64, s *Session) []int64 {
	for i := range s.Turns {
		if d := s.Turns[i].DurationNS; d != Unknown {
			dst = append(dst, d)
		}
	}
	return dst
}

const noteMedianUsed = "service time of a dropped turn not recorded, median used"

// maxDelayNS keeps the sum over a chain of dropped turns in range, 31 years.
const maxDelayNS int64 = 1e18

// withoutTurns rewires a session around its dropped turns. Unknown service times count as the session's median, else as
// fallback.
func withoutTurns(s *Session, dropped []bool, fallback int64, notes tally) Session {
	service := median(knownDurations(nil, s))
	if service == Unknown {
		service = fallback
	}
	index := make([]int32, len(s.Turns))
	deps := make([][]Dep, len(s.Turns)) // of every turn, in terms of kept turns with their old index
	number := make([]int32, s.Threads)
	out := *s
	out.Turns, out.Deps = nil, nil
	for i := range s.Turns {
		t := s.Turns[i]
		for _, d := range s.Deps[t.DepLo:t.DepHi] {
			if !dropped[d.Turn] {
				deps[i] = append(deps[i], d)
				continue
			}
			delay := d.DelayNS
			if d.On == OnCompletion {
				if took := s.Turns[d.Turn].DurationNS; took != Unknown {
					delay += took
				} else {
					delay += service
					notes.add(noteMedianUsed, 1)
				}
			}
			for _, e := range deps[d.Turn] {
				e.DelayNS = min(e.DelayNS+delay, maxDelayNS)
				deps[i] = append(deps[i], e)
			}
		}
		deps[i] = longestDeps(deps[i])
		if dropped[i] {
			continue
		}
		index[i] = int32(len(out.Turns))
		number[t.Thread]++
		t.Number = number[t.Thread]
		t.DepLo = int32(len(out.Deps))
		for _, d := range deps[i] {
			d.Turn = index[d.Turn]
			out.Deps = append(out.Deps, d)
		}
		t.DepHi = int32(len(out.Deps))
		out.Turns = append(out.Turns, t)
	}
	return out
}

// longestDeps keeps for every turn and trigger the longest delay, sorted by turn and trigger.
func longestDeps(deps []Dep) []Dep {
	if len(deps) < 2 {
		return deps
	}
	slices.SortFunc(deps, func(a, b Dep) int {
		return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.On, b.On), cmp.Compare(b.DelayNS, a.DelayNS))
	})
	return slices.CompactFunc(deps, func(a, b Dep) bool { return a.Turn == b.Turn && a.On == b.On })
}
