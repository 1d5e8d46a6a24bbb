package results

import "math"

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
	c.attempts.open = func() (Scratch, error) { return OS{}.Scratch("") }
	defer c.attempts.close()
	if err := r.Turns(c.Turn); err != nil {
		return nil, err
	}
	if err := r.Sessions(c.Session); err != nil {
		return nil, err
	}
	if err := c.joinRest(); err != nil {
		return nil, err
	}
	var err error
	sp := span{start: picoseconds("start_s", &w.Start, &err), end: picoseconds("end_s", &w.End, &err)}
	if err != nil {
		return nil, err
	}
	var s sorter
	for i := range distributions {
		d := &distributions[i]
		if d.sample == nil {
			continue
		}
		into := d.sample(l)
		if err := c.gather(&s, d, []span{sp}); err != nil {
			return nil, err
		}
		s.sort()
		*into = floats(*into, s.selected(inWindow(0)))
	}
	c.sessions.lengths(&s, sp)
	l.SessionTime = floats(nil, s.keys)
	return l, nil
}

// floats appends values, given by their bits.
func floats(values []float64, bits []uint64) []float64 {
	for _, b := range bits {
		values = append(values, math.Float64frombits(b))
	}
	return values
}
