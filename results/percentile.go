package results

import "math"

// percentile is the value at p percent of n ascending values by linear interpolation between the closest ranks, numpy's
// default.
func percentile(n int, at func(i int) float64, p int) float64 {
	h := float64((n-1)*p) / 100
	lo := int(math.Floor(h))
	if lo+1 >= n {
		return at(n - 1)
	}
	return at(lo) + float64((at(lo+1)-at(lo))*(h-float64(lo)))
}

// shown says whether n samples support the p-th percentile: at least five lie above it.
func shown(n, p int64) bool { return n*(100-p) >= 500 }

// summarise summarises n ascending values with that sum, taken from the smallest to the largest.
func summarise(n int, sum float64, at func(i int) float64) Dist {
	if n == 0 {
		return Dist{}
	}
	d := Dist{N: int64(n), Mean: some(sum / float64(n)), Max: some(at(n - 1))}
	d.setPercentiles(func(p int) float64 { return percentile(n, at, p) })
	return d
}

// dist summarises the pooled durations in seconds.
func (h *Histogram) dist() Dist {
	if h == nil || h.Count() == 0 {
		return Dist{}
	}
	hdr := h.hdr()
	d := Dist{N: h.Count(), Mean: some(hdr.Mean() * histogramUnitPS / 1e12), Max: some(Seconds(hdr.Max() * histogramUnitPS))}
	d.setPercentiles(func(p int) float64 { return Seconds(hdr.ValueAtQuantile(float64(p)/100*100) * histogramUnitPS) })
	return d
}

func (d *Dist) setPercentiles(at func(p int) float64) {
	for _, q := range []struct {
		p    int
		into **float64
	}{{50, &d.P50}, {75, &d.P75}, {90, &d.P90}, {95, &d.P95}, {99, &d.P99}} {
		if shown(d.N, int64(q.p)) {
			*q.into = some(at(q.p))
		}
	}
}

func some(v float64) *float64 { return &v }

// ratio is a / b, null when b is not positive.
func ratio(a, b float64) *float64 {
	if !(b > 0) {
		return nil
	}
	return some(a / b)
}

// over is *a / b, null when a is or b is not positive.
func over(a *float64, b float64) *float64 {
	if a == nil {
		return nil
	}
	return ratio(*a, b)
}
