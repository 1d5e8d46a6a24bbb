package results

import "fmt"

// Faults lists what cannot be in a correct run: turns that are not accounted for, leases that are alive or lost, a hit
// rate above its ceiling. It is empty for a correct run, however bad its numbers.
func (s *Summary) Faults() []string {
	faults := []string{}
	if k := &s.Conservation; !k.Holds {
		faults = append(faults, fmt.Sprintf("turns: read %d, but finished %d + failed %d + dropped %d = %d", k.Read, k.Finished,
			k.Failed, k.Dropped, k.Finished+k.Failed+k.Dropped))
	}
	l := &s.Leases
	if leaked := l.Lost - l.Abandoned; l.Live != leaked {
		faults = append(faults, fmt.Sprintf("leases: %d alive at the end, but faults of the scenario leaked %d", l.Live, leaked))
	}
	if ended := l.Finished + l.Failed + l.Cancelled + l.Live; l.Admitted != ended {
		faults = append(faults, fmt.Sprintf("leases: admitted %d, but finished %d + failed %d + cancelled %d + live %d = %d",
			l.Admitted, l.Finished, l.Failed, l.Cancelled, l.Live, ended))
	}
	for _, w := range []*Window{s.Whole, s.Steady} {
		if w != nil && w.HitRate != nil && w.Ceiling != nil && *w.HitRate > *w.Ceiling {
			faults = append(faults, fmt.Sprintf("hit rate %v above its ceiling %v from %g to %g s", *w.HitRate, *w.Ceiling,
				w.Start, w.End))
		}
	}
	return faults
}
