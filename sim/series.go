package sim

import "github.com/sluice-sim/sluice/results"

// series is the time series of one replica. Intervals are closed when something happens to the replica at or after
// their end, with the state it had until then. When there are too many, pairs are merged and the interval doubles.
type series struct {
	cur      results.Sample
	rows     []results.Sample
	begin    int64 // of the current interval
	interval int64
	limit    int
	busyTo   int64 // busy time is accounted for until here
	total    int64 // busy time in all
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

func (s *series) close(p *replica, end int64) {
	s.busy(p, end)
	c := &s.cur
	c.EndPS = end
	c.Running, c.Waiting = int32(p.loop.Running()), int32(p.loop.Waiting()+p.loop.Skipped()+len(p.inbox))
	c.InFlight = p.inFlight
	c.Usage = p.loop.Usage()
	c.ResidentTokens = p.loop.Pool().Cached() * int64(p.loop.Config().BlockTokens)
	if o := p.tier.offload; o != nil {
		c.CPUTokens = o.Resident() * int64(p.loop.Config().BlockTokens)
	}
	s.rows = append(s.rows, *c)
	if len(s.rows) == s.limit {
		s.merge()
	}
	s.cur = results.Sample{Replica: c.Replica}
	s.begin = end
}

// merge halves the resolution.
func (s *series) merge() {
	for i := 0; i+1 < len(s.rows); i += 2 {
		a, b := &s.rows[i], s.rows[i+1]
		b.ComputedTokens += a.ComputedTokens
		b.OutputTokens += a.OutputTokens
		b.HitTokens += a.HitTokens
		b.PromptTokens += a.PromptTokens
		b.EvictedTokens += a.EvictedTokens
		b.BusyPS += a.BusyPS
		b.Preemptions += a.Preemptions
		s.rows[i/2] = b
	}
	s.rows = s.rows[:len(s.rows)/2]
	s.interval *= 2
}

// finish closes the last interval at the end of the run.
func (s *series) finish(p *replica, end int64) {
	for s.edge() <= end {
		s.close(p, s.edge())
	}
	if end > s.begin {
		s.close(p, end)
	}
}
