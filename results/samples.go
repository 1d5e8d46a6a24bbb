package results

import "slices"

// Latencies are the samples behind a run's distributions, in seconds and ascending, of the window that tables show.
type Latencies struct{ TTFT, E2EL, SessionTime []float64 }

// Latencies reads the samples back from the rows.
func (r *Run) Latencies() (*Latencies, error) {
	l := &Latencies{}
	w := r.Summary.Table()
	if w == nil {
		return l, nil
	}
	c := NewCollector(Info{})
	if err := r.Turns(c.Turn); err != nil {
		return nil, err
	}
	if err := r.Sessions(c.Session); err != nil {
		return nil, err
	}
	c.joinAttempts()
	var err error
	sp := span{start: picoseconds("start_s", &w.Start, &err), end: picoseconds("end_s", &w.End, &err)}
	if err != nil {
		return nil, err
	}
	var s turnTimes
	for i := range c.attempts {
		if a := &c.attempts[i]; a.final && a.finished() && sp.holds(a.arrival) {
			s.add(a)
		}
	}
	l.TTFT, l.E2EL, l.SessionTime = s.ttft, s.e2el, c.sessionTimes(sp)
	slices.Sort(l.TTFT)
	slices.Sort(l.E2EL)
	slices.Sort(l.SessionTime)
	return l, nil
}
