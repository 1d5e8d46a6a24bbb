package traces

import (
	"maps"
	"slices"
)

// tally counts notes or drops by their text.
type tally map[string]int64

func (t tally) notes() []NoteCount {
	var out []NoteCount
	for _, k := range slices.Sorted(maps.Keys(t)) {
		out = append(out, NoteCount{Note: k, Count: t[k]})
	}
	return out
}

func (t tally) add(note string, n int64) {
	if n > 0 {
		t[note] += n
	}
}

// addNotes merges counts into the report, which stays sorted.
func (r *Report) addNotes(t tally) {
	merged := tally{}
	for _, n := range r.Notes {
		merged.add(n.Note, n.Count)
	}
	for k, n := range t {
		merged.add(k, n)
	}
	r.Notes = merged.notes()
}

// addDropped counts n turns dropped for a reason; the list stays sorted.
func (r *Report) addDropped(reason string, n int64) {
	if n == 0 {
		return
	}
	i, ok := slices.BinarySearchFunc(r.Dropped, reason, func(d DropCount, s string) int {
		switch {
		case d.Reason < s:
			return -1
		case d.Reason > s:
			return 1
		}
		return 0
	})
	if ok {
		r.Dropped[i].Turns += n
		return
	}
	r.Dropped = slices.Insert(r.Dropped, i, DropCount{Reason: reason, Turns: n})
}

// DroppedTurns is the number of turns dropped for any reason.
func (r *Report) DroppedTurns() int64 {
	n := int64(0)
	for _, d := range r.Dropped {
		n += d.Turns
	}
	return n
}
