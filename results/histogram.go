package results

import (
	"math/bits"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram pools durations in picoseconds with a resolution of 0.1 % (three significant digits), from 1 microsecond
// to 10 hours. It holds integers only, so sums and merges are the same on every machine.
type Histogram struct{ counts [histogramClasses]int64 }

const (
	histogramUnitPS  = 1_000_000 // one microsecond
	histogramMax     = 36_000_000_000
	histogramClasses = 2048 + (36-11)<<10 // as classOf numbers them
)

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram { return new(Histogram) }

// classOf is the class of a duration in units: classes are one unit wide up to 2048 and twice as wide at every power of two
// from there on, 1024 of them.
func classOf(v int64) int {
	shift := bits.Len64(uint64(v)|2047) - 11
	return shift<<10 + int(v>>shift)
}

// leastOf is the smallest duration of a class in units.
func leastOf(class int) int64 {
	shift := max(class>>10-1, 0)
	return int64(class-shift<<10) << shift
}

// Record adds n equal durations of ps picoseconds. Durations outside the range count at its ends.
func (h *Histogram) Record(ps, n int64) {
	h.counts[classOf(min(max((ps+histogramUnitPS/2)/histogramUnitPS, 1), histogramMax))] += n
}

// Count is the number of durations recorded.
func (h *Histogram) Count() int64 {
	sum := int64(0)
	for _, n := range h.counts {
		sum += n
	}
	return sum
}

// hdr is the histogram in HdrHistogram's form, which has the same classes.
func (h *Histogram) hdr() *hdrhistogram.Histogram {
	hdr := hdrhistogram.New(1, histogramMax, 3)
	for class, n := range h.counts {
		if n > 0 {
			_ = hdr.RecordValues(leastOf(class), n) // in range
		}
	}
	return hdr
}

// RoomPS is how much longer than ps a duration can be and still be counted in the same class, so that equal durations
// can be recorded together.
func RoomPS(ps int64) int64 {
	v := (ps + histogramUnitPS/2) / histogramUnitPS
	width := int64(1) << (bits.Len64(uint64(v)|2047) - 11)
	return (v&^(width-1)+width)*histogramUnitPS - histogramUnitPS/2 - 1 - ps
}
