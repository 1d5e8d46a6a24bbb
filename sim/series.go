package sim

import "github.com/sluice-sim/sluice/results"

// series is the time series of one replica. Intervals are closed when something happens to the replica at or after
// their end, with the state it had until then. When there are too many, pairs are merged and the interval doubles.
type series struct {
	begin    int64 // of the current interval
	interval int64
	busyTo   int64    // busy time is accounted for until here
	total    int64    // busy time in all
	cur      interval // the current one
	closed   intervals
	limit    int
}

// edge is the end of the current interval.
func (s *series) edge() int64 { return s.begin + s.interval }

// busy adds the time that the step in progress ran until upTo.
func (s *series) busy(p *replica, upTo int64) {
	if p.depth > 0 && p.flight[0].computes {
		s.addBusy(p.flight[0].start, min(upTo, p.flight[0].end))
	}
	s.busyTo = upTo
}

// addBusy adds the time from one moment to another, as far as it is not accounted for yet.
func (s *series) addBusy(from, to int64) {
	if d := to - max(s.busyTo, from); d > 0 {
		s.cur.BusyPS += d
		s.total += d
		s.busyTo = to
	}
}

// close closes the current interval at end, or n of them up to there in which nothing happened.
func (s *series) close(p *replica, end int64, n int) {
	s.busy(p, end)
	c := &s.cur
	c.Running, c.Waiting = int32(p.loop.Running()), int32(p.loop.Waiting()+p.loop.Skipped()+len(p.inbox))
	c.InFlight = p.inFlight
	c.Usage = p.loop.Usage()
	c.ResidentTokens = p.loop.Cached() * int64(p.loop.Config().BlockTokens)
	if o := p.tier.offload; o != nil {
		c.CPUTokens = o.Resident() * int64(p.loop.Config().BlockTokens)
	}
	s.closed.add(c, n)
	if s.closed.n == s.limit {
		s.merge()
	}
	s.cur = interval{}
	s.begin = end
}

// closeUntil closes the intervals that end at or before t, until when the replica goes through no step but the one in
// progress.
func (s *series) closeUntil(p *replica, t int64) {
	for s.edge() <= t {
		n := 1
		if p.depth == 0 && s.cur == (interval{}) {
			n = int(min((t-s.begin)/s.interval, int64(s.limit-s.closed.n)))
		}
		s.close(p, s.begin+int64(n)*s.interval, n)
	}
}

// finish closes the last interval at the end of the run.
func (s *series) finish(p *replica, end int64) {
	s.closeUntil(p, end)
	if end > s.begin {
		s.close(p, end, 1)
	}
}

// merge halves the resolution.
func (s *series) merge() {
	var first interval // of a pair, where the second is of another stretch
	odd := false
	merged := intervals{spare: s.closed.spare}
	for _, piece := range s.closed.pieces {
		for i := range piece {
			x := &piece[i]
			n := x.n
			if odd {
				merged.add(pair(&first, &x.interval), 1)
				n--
			}
			if n > 1 {
				merged.add(pair(&x.interval, &x.interval), n/2)
			}
			if odd = n%2 == 1; odd {
				first = x.interval
			}
		}
		merged.spare = append(merged.spare, piece[:0])
	}
	s.closed = merged
	s.interval *= 2
}

// pair is two intervals as one.
func pair(a, b *interval) *interval {
	c := *b
	c.ComputedTokens += a.ComputedTokens
	c.OutputTokens += a.OutputTokens
	c.HitTokens += a.HitTokens
	c.PromptTokens += a.PromptTokens
	c.EvictedTokens += a.EvictedTokens
	c.BusyPS += a.BusyPS
	c.Preemptions += a.Preemptions
	return &c
}

// interval is a results.Sample without replica and end, which follow from its place.
type interval struct {
	Running, Waiting, InFlight, Preemptions                              int32
	Usage                                                                float64
	ResidentTokens, CPUTokens                                            int64
	ComputedTokens, OutputTokens, HitTokens, PromptTokens, EvictedTokens int64
	BusyPS                                                               int64
}

// stretch is n equal intervals in a row.
type stretch struct {
	interval
	n int
}

// intervals are those of a replica from the start of the run on, in pieces that do not move.
type intervals struct {
	n      int
	pieces [][]stretch
	spare  [][]stretch // empty pieces
}

// Stretches of the first piece and of a large one.
const (
	firstPiece = 8
	largePiece = 128
)

func (s *intervals) add(x *interval, n int) {
	s.n += n
	k := len(s.pieces) - 1
	if k >= 0 && x.BusyPS == 0 { // others are hardly ever alike
		if last := &s.pieces[k][len(s.pieces[k])-1]; last.interval == *x {
			last.n += n
			return
		}
	}
	if k < 0 || len(s.pieces[k]) == cap(s.pieces[k]) {
		s.pieces = append(s.pieces, s.piece())
		k++
	}
	at := len(s.pieces[k])
	s.pieces[k] = s.pieces[k][:at+1]
	y := &s.pieces[k][at]
	y.interval, y.n = *x, n
}

// piece is an empty piece.
func (s *intervals) piece() []stretch {
	if k := len(s.spare) - 1; k >= 0 {
		p := s.spare[k]
		s.spare = s.spare[:k]
		return p
	}
	return make([]stretch, 0, min(firstPiece<<min(len(s.pieces), 16), largePiece))
}

// reader goes through stretches interval by interval.
type reader struct{ piece, at, used int }

// next is the next interval, nil after the last one.
func (r *reader) next(s *intervals) *interval {
	if r.piece == len(s.pieces) {
		return nil
	}
	x := &s.pieces[r.piece][r.at]
	if r.used++; r.used == x.n {
		r.at, r.used = r.at+1, 0
		if r.at == len(s.pieces[r.piece]) {
			r.piece, r.at = r.piece+1, 0
		}
	}
	return &x.interval
}

// emitSamples hands out the intervals of all replicas, which end at the end of the run, in order of time.
func (r *run) emitSamples(end int64) {
	readers := make([]reader, len(r.replicas))
	var sample results.Sample
	for k, more := int64(1), true; more; k++ {
		more = false
		for i := range r.replicas {
			s := &r.replicas[i].series
			x := readers[i].next(&s.closed)
			if x == nil {
				continue
			}
			more = true
			sample = results.Sample{Replica: int32(i), EndPS: min(k*s.interval, end), Running: x.Running, Waiting: x.Waiting,
				InFlight: x.InFlight, Usage: x.Usage, ResidentTokens: x.ResidentTokens, CPUTokens: x.CPUTokens,
				ComputedTokens: x.ComputedTokens, OutputTokens: x.OutputTokens, HitTokens: x.HitTokens, PromptTokens: x.PromptTokens,
				EvictedTokens: x.EvictedTokens, BusyPS: x.BusyPS, Preemptions: x.Preemptions}
			if err := r.sink.Sample(&sample); err != nil && r.err == nil {
				r.err = err
			}
		}
	}
}
