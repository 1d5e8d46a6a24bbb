package results

import (
	"math/bits"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram pools durations in picoseconds with a resolution of 0.1 % (three significant digits), from 1 microsecond
// to 10 hours. It holds integers only, so sums and merges are the same on every machine.
type Histogram struct{ h *hdrhistogram.Histogram }

const histogramUnitPS = 1_000_000 // one microsecond

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, 36_000_000_000, 3)}
}

// Record adds n equal durations of ps picoseconds. Durations outside the range count at its ends.
func (h *Histogram) Record(ps, n int64) {
	v := min(max((ps+histogramUnitPS/2)/histogramUnitPS, 1), 36_000_000_000)
	_ = h.h.RecordValues(v, n)
}

// Count is the number of durations recorded.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// QuantilePS is the duration at quantile q in 0 to 1, in picoseconds.
func (h *Histogram) QuantilePS(q float64) int64 {
	return h.h.ValueAtQuantile(q*100) * histogramUnitPS
}

// MeanPS is the mean duration in picoseconds; 0 when empty.
func (h *Histogram) MeanPS() float64 { return h.h.Mean() * histogramUnitPS }

// MaxPS is the largest duration in picoseconds, to the resolution of the histogram.
func (h *Histogram) MaxPS() int64 { return h.h.Max() * histogramUnitPS }

// RoomPS is how much longer than ps a duration can be and still be counted in the same class, so that equal durations
// can be recorded together.
func RoomPS(ps int64) int64 {
	v := (ps + histogramUnitPS/2) / histogramUnitPS
	width := int64(1) << (bits.Len64(uint64(v)|2047) - 11)
	return (v&^(width-1)+width)*histogramUnitPS - histogramUnitPS/2 - 1 - ps
}
