package results

import "slices"

// sessionTime is what the metrics need of a Session.
type sessionTime struct {
	start, end int64
	session    int32
	complete   bool
}

// sessionTimes keeps sessions in pieces, so that none is copied when there are more.
type sessionTimes struct {
	n      int
	pieces [][]sessionTime
}

const sessionPiece = 4096

func (t *sessionTimes) add(s *Session) {
	if t.n%sessionPiece == 0 {
		t.pieces = append(t.pieces, nil)
	}
	piece := &t.pieces[len(t.pieces)-1]
	*piece = append(*piece, sessionTime{s.StartPS, s.EndPS, s.Session, s.Complete})
	t.n++
}

// all iterates over the sessions.
func (t *sessionTimes) all(yield func(*sessionTime) bool) {
	for _, piece := range t.pieces {
		for i := range piece {
			if !yield(&piece[i]) {
				return
			}
		}
	}
}

func (t *sessionTimes) completed() int64 {
	n := int64(0)
	for s := range t.all {
		if s.complete {
			n++
		}
	}
	return n
}

// milestones counts all sessions with a row, so a share that never completes has no time.
func (t *sessionTimes) milestones() Milestones {
	start := Missing
	var ends []int64
	for s := range t.all {
		if s.start != Missing && (start == Missing || s.start < start) {
			start = s.start
		}
		if s.complete && s.end != Missing {
			ends = append(ends, s.end)
		}
	}
	slices.Sort(ends)
	at := func(percent int) *float64 {
		k := (t.n*percent + 99) / 100
		if k == 0 || k > len(ends) || start == Missing {
			return nil
		}
		return some(Seconds(ends[k-1] - start))
	}
	return Milestones{at(50), at(90), at(100)}
}

// tenth is the start of the session that makes 10 % of those that started.
func (t *sessionTimes) tenth() (start int64, ok bool) {
	var starts []int64
	for s := range t.all {
		if s.start != Missing {
			starts = append(starts, s.start)
		}
	}
	if len(starts) == 0 {
		return 0, false
	}
	slices.Sort(starts)
	return starts[(len(starts)*10+99)/100-1], true
}

// in is the session completion times, in seconds, of those that started in a span and completed.
func (t *sessionTimes) in(sp span) []float64 {
	var times []float64
	for s := range t.all {
		if s.complete && sp.holds(s.start) && s.end != Missing {
			times = append(times, Seconds(s.end-s.start))
		}
	}
	return times
}
