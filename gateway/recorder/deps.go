package recorder

import "github.com/sluice-sim/sluice/traces"

// waits finds what the turns of a session wait for. Turns come in order of their beginning; thread 0 is the root.
//
//   - A turn waits for the one before it in its thread, and keeps its distance from that one's end. If it began before that
//     end, it keeps its distance from the beginning.
//   - A turn of the root waits as well for every other thread whose last turn ended since the root's: a subagent that was
//     waited for.
//   - The first turn of a thread waits for the root's last turn, likewise.
type waits struct {
	s    *traces.Session
	last []int32 // by thread: its last turn, -1 for none
}

func newWaits(s *traces.Session, threads int) *waits {
	w := &waits{s: s, last: make([]int32, threads)}
	for i := range w.last {
		w.last[i] = -1
	}
	return w
}

// add gives u its dependencies and appends it to the session.
func (w *waits) add(u traces.Turn) {
	u.DepLo = int32(len(w.s.Deps))
	before := w.last[u.Thread]
	if before < 0 {
		before = w.last[0]
	}
	if before >= 0 {
		w.wait(before, &u)
	}
	if u.Thread == 0 && before >= 0 {
		since := endOf(&w.s.Turns[before])
		for _, i := range w.last[1:] {
			if i < 0 {
				continue
			}
			if end := endOf(&w.s.Turns[i]); end > since && end <= u.StartNS {
				w.wait(i, &u)
			}
		}
	}
	u.DepHi = int32(len(w.s.Deps))
	w.last[u.Thread] = int32(len(w.s.Turns))
	w.s.Turns = append(w.s.Turns, u)
}

func (w *waits) wait(i int32, u *traces.Turn) {
	t := &w.s.Turns[i]
	d := traces.Dep{Turn: i, On: traces.OnCompletion, DelayNS: u.StartNS - endOf(t)}
	if d.DelayNS < 0 {
		d.On, d.DelayNS = traces.OnDispatch, u.StartNS-t.StartNS
	}
	w.s.Deps = append(w.s.Deps, d)
}

func endOf(t *traces.Turn) int64 { return t.StartNS + t.DurationNS }
