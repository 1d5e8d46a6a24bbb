package traces

import (
	"cmp"
	"fmt"
	"slices"
)

// DropOverContext returns the trace without the turns whose prompt and output together exceed maxContext tokens. What
// waited for a dropped turn waits for what that turn waited for, plus its service time, so the chain goes on. Dropped
// turns are counted in the report under "context limit". tr is not changed; the content tree is shared.
func DropOverContext(tr *Trace, maxContext int32) *Trace {
	return dropTurns(tr, "context limit", func(*Session) func(*Turn) bool {
		return func(t *Turn) bool { return int64(t.Prompt.Tokens)+int64(t.OutputTokens) > int64(maxContext) }
	})
}

// Head returns the first n sessions of the trace. The others were not asked for: they count neither as read nor as
// dropped, only in a note. tr is not changed; the content tree is shared.
func Head(tr *Trace, n int) *Trace {
	n = min(max(n, 0), len(tr.Sessions))
	out := *tr
	out.Sessions = tr.Sessions[:n:n]
	out.Report.Sessions -= int64(len(tr.Sessions) - n)
	out.Report.Turns -= int64(tr.Turns() - out.Turns())
	if left := len(tr.Sessions) - n; left > 0 {
		notes := tally{}
		notes.add(fmt.Sprintf("sessions after the first %d left out", n), int64(left))
		out.Report.addNotes(notes)
	}
	return &out
}

// dropTurns removes turns for a reason. drop is asked for its judgement once per session.
func dropTurns(tr *Trace, reason string, drop func(*Session) func(*Turn) bool) *Trace {
	out := *tr
	out.Sessions = make([]Session, 0, len(tr.Sessions))
	out.Report.Dropped = slices.Clone(tr.Report.Dropped)
	notes := tally{}
	var overall []int64
	for i := range tr.Sessions {
		overall = knownDurations(overall, &tr.Sessions[i])
	}
	fallback := max(0, median(overall))
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		dropped := make([]bool, len(s.Turns))
		judge, n := drop(s), int64(0)
		for t := range s.Turns {
			if judge(&s.Turns[t]) {
				dropped[t] = true
				n++
			}
		}
		out.Report.addDropped(reason, n)
		switch {
		case n == 0:
			out.Sessions = append(out.Sessions, *s)
		case n == int64(len(s.Turns)):
			notes.add("session left out, all its turns dropped", 1)
		default:
			out.Sessions = append(out.Sessions, withoutTurns(s, dropped, fallback, notes))
		}
	}
	out.Report.addNotes(notes)
	return &out
}

func knownDurations(dst []int64, s *Session) []int64 {
	for i := range s.Turns {
		if d := s.Turns[i].DurationNS; d != Unknown {
			dst = append(dst, d)
		}
	}
	return dst
}

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
					notes.add("service time of a dropped turn not recorded, median used", 1)
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
