package results

import (
	"math"
	"slices"
)

// percentile is the value at p percent of sorted by linear interpolation between the closest ranks, numpy's default.
func percentile(sorted []float64, p int) float64 {
	h := float64((len(sorted)-1)*p) / 100
	lo := int(math.Floor(h))
	if lo+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[lo] + float64((sorted[lo+1]-sorted[lo])*(h-float64(lo)))
}

// shown says whether n samples support the p-th percentile: at least five lie above it.
func shown(n, p int64) bool { return n*(100-p) >= 500 }

// distOf summarises values, which it sorts.
func distOf(values []float64) Dist {
	n := int64(len(values))
	if n == 0 {
		return Dist{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	d := Dist{N: n, Mean: some(sum / float64(n)), Max: some(values[n-1])}
	d.setPercentiles(func(p int) float64 { return percentile(values, p) })
	return d
}

// dist summarises the pooled durations in seconds.
func (h *Histogram) dist() Dist {
	if h == nil || h.Count() == 0 {
		return Dist{}
	}
	d := Dist{N: h.Count(), Mean: some(h.MeanPS() / 1e12), Max: some(Seconds(h.MaxPS()))}
	d.setPercentiles(func(p int) float64 { return Seconds(h.QuantilePS(float64(p) / 100)) })
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
