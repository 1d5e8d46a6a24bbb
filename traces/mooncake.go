package traces

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sluice-sim/sluice/prefix"
)

// FormatMooncake names the JSON lines of the Mooncake traces: arrival time, lengths and chained prefix hashes of
// 512-token blocks for every request, without sessions.
const FormatMooncake = "mooncake"

const (
	noteDerived = "request tied to a parent by its hash ids (derived sessions are a heuristic)"
	noteDelay   = "arrival given as a delay after the previous turn"
)

// ReadMooncake reads a Mooncake file, plain or gzip-ed. Sessions are derived from the hash ids: a request follows the
// one whose full blocks are exactly its longest known prefix. Where rows carry session_id they say themselves what
// belongs together, and a delay is the wait after the previous turn's completion. The source has no service times, so a
// follower waits for its parent's dispatch plus the recorded distance, and for its parent's completion. Faults of the
// input are InputErrors.
func ReadMooncake(path string, opt Options) (*Trace, error) {
	opt, err := opt.checked()
	if err != nil {
		return nil, err
	}
	f, err := readMooncakeFile(path, opt.Limits)
	if err != nil {
		return nil, err
	}
	return buildMooncake(f, filepath.Base(path), opt), nil
}

// buildMooncake makes one session of each derived one. A row that is its parent's first follower continues the parent's
// thread, any other starts a thread.
func buildMooncake(f *mcFile, name string, opt Options) *Trace {
	tr := &Trace{Name: name, Tree: &prefix.Tree{}, Models: []string{"unnamed"}, Sessions: make([]Session, f.sessions)}
	tr.Report = Report{Format: FormatMooncake, Files: 1, Bytes: f.bytes, Sessions: int64(f.sessions), Turns: int64(len(f.rows))}
	notes := tally{}
	first := f.rows[0].timeNS
	for i := range f.rows {
		first = min(first, f.rows[i].timeNS)
	}
	c := newContent(tr.Tree, mcBlock, opt.OutputReuse, f.nodes)
	tails := make([]*tail, len(f.rows))
	turnOf := make([]int32, len(f.rows))
	followed := make([]bool, len(f.rows))
	for i := range f.rows {
		r := &f.rows[i]
		s := &tr.Sessions[r.session]
		t := Turn{Thread: s.Threads, Number: 1, OutputTokens: int32(r.out), DurationNS: Unknown, DepLo: int32(len(s.Deps))}
		if r.out == 0 {
			t.OutputTokens = 1
			notes.add(noteOutput0, 1)
		}
		var prev *tail
		if r.parent < 0 {
			*s = Session{Name: sessionName(f, r.session), StartNS: r.timeNS - first, Group: -1}
		} else {
			prev = tails[r.parent]
			before := &s.Turns[turnOf[r.parent]]
			if !followed[r.parent] {
				followed[r.parent] = true
				t.Thread, t.Number = before.Thread, before.Number+1
			}
			s.Deps = append(s.Deps, mooncakeDeps(r, turnOf[r.parent], opt.IdleCapNS, notes)...)
			if !f.explicit {
				notes.add(noteDerived, 1)
			}
		}
		if t.Thread == s.Threads {
			s.Threads++
		}
		t.DepHi = int32(len(s.Deps))
		t.StartNS = r.timeNS - first - s.StartNS
		tails[i] = c.add(r.full(), int32(r.in), t.OutputTokens, prev, tr.Tree.Root)
		t.Prompt = tails[i].prompt
		turnOf[i] = int32(len(s.Turns))
		s.Turns = append(s.Turns, t)
	}
	slices.SortStableFunc(tr.Sessions, func(a, b Session) int { return cmp.Compare(a.StartNS, b.StartNS) })
	tr.Report.addNotes(notes)
	return tr
}

func sessionName(f *mcFile, session int32) string {
	if f.explicit {
		return f.names[session]
	}
	return fmt.Sprintf("derived-%d", session)
}

func mooncakeDeps(r *mcRow, parent int32, idleCap int64, notes tally) []Dep {
	wait := r.gapNS
	if r.delayNS != Unknown {
		wait = r.delayNS
		notes.add(noteDelay, 1)
	} else {
		notes.add(noteNoService, 1)
	}
	if idleCap > 0 && wait > idleCap {
		wait = idleCap
		notes.add(noteCapped, 1)
	}
	if r.delayNS != Unknown {
		return []Dep{{Turn: parent, On: OnCompletion, DelayNS: wait}}
	}
	return []Dep{{Turn: parent, On: OnDispatch, DelayNS: wait}, {Turn: parent, On: OnCompletion}}
}
