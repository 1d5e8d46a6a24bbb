package results

// sessionTime is what the metrics need of a Session.
type sessionTime struct {
	start, end int64
	session    int32
	complete   bool
}

// sessionTimes keeps sessions in 20 bytes each, in pieces, so that none is copied when there are more.
type sessionTimes struct {
	n, completed int
	pieces       []sessionPiece
}

type sessionPiece struct {
	start, end []int64
	session    []int32 // twice the number, and one more for a complete one
}

const sessionPieceRows = 4096

func (t *sessionTimes) add(s *Session) {
	if t.n%sessionPieceRows == 0 {
		t.pieces = append(t.pieces, sessionPiece{})
	}
	p := &t.pieces[len(t.pieces)-1]
	p.start, p.end = append(p.start, s.StartPS), append(p.end, s.EndPS)
	session := s.Session << 1
	if s.Complete {
		session |= 1
		t.completed++
	}
	p.session = append(p.session, session)
	t.n++
}

// all iterates over the sessions.
func (t *sessionTimes) all(yield func(sessionTime) bool) {
	for _, p := range t.pieces {
		for i, session := range p.session {
			if !yield(sessionTime{p.start[i], p.end[i], session >> 1, session&1 != 0}) {
				return
			}
		}
	}
}

// milestones counts all sessions with a row, so a share that never completes has no time.
func (t *sessionTimes) milestones(ends *sorter) Milestones {
	start := Missing
	ends.reset(true)
	for s := range t.all {
		if s.start != Missing && (start == Missing || s.start < start) {
			start = s.start
		}
		if s.complete && s.end != Missing {
			ends.add(keyOfPS(s.end), 0)
		}
	}
	ends.order()
	at := func(percent int) *float64 {
		k := (t.n*percent + 99) / 100
		if k == 0 || k > len(ends.keys) || start == Missing {
			return nil
		}
		return some(Seconds(psOfKey(ends.keys[k-1]) - start))
	}
	return Milestones{at(50), at(90), at(100)}
}

// tenth is the start of the session that makes 10 % of those that started.
func (t *sessionTimes) tenth(starts *sorter) (start int64, ok bool) {
	starts.reset(true)
	for s := range t.all {
		if s.start != Missing {
			starts.add(keyOfPS(s.start), 0)
		}
	}
	if len(starts.keys) == 0 {
		return 0, false
	}
	starts.order()
	return psOfKey(starts.keys[(len(starts.keys)*10+99)/100-1]), true
}

// lengths sorts the session completion times of the sessions that started in a span and completed.
func (t *sessionTimes) lengths(times *sorter, sp span) {
	times.reset(true)
	for s := range t.all {
		if s.complete && sp.holds(s.start) && s.end != Missing {
			times.add(keyOfPS(s.end-s.start), 0)
		}
	}
	times.sort()
}
