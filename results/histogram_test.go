package results

import (
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"
)

// The classes are HdrHistogram's: every duration of a class, and only these, are equivalent in it.
func TestHistogramClasses(t *testing.T) {
	hdr := hdrhistogram.New(1, histogramMax, 3)
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Range(1, min(histogramMax, int64(1)<<rapid.IntRange(1, 36).Draw(t, "bits"))).Draw(t, "v")
		class := classOf(v)
		if class < 0 || class >= histogramClasses {
			t.Fatalf("class %d of %d", class, histogramClasses)
		}
		if classOf(leastOf(class)) != class || classOf(leastOf(class)-1) == class && leastOf(class) > 0 {
			t.Fatalf("class %d begins at %d, which is in class %d", class, leastOf(class), classOf(leastOf(class)))
		}
		for _, w := range []int64{v + 1, v - 1, v + rapid.Int64Range(0, 1<<20).Draw(t, "more")} {
			if w > 0 && w <= histogramMax && (classOf(w) == class) != hdr.ValuesAreEquivalent(v, w) {
				t.Fatalf("%d and %d are in classes %d and %d", v, w, class, classOf(w))
			}
		}
		if room := RoomPS(v * histogramUnitPS); classOf((v*histogramUnitPS+room+histogramUnitPS/2)/histogramUnitPS) != class ||
			classOf((v*histogramUnitPS+room+1+histogramUnitPS/2)/histogramUnitPS) == class {
			t.Fatalf("%d ps is not all the room above %d us", room, v)
		}
	})
}

// Durations beyond the range count at its ends.
func TestHistogramEnds(t *testing.T) {
	h := NewHistogram()
	h.Record(0, 1)
	h.Record(1<<62, 2)
	if h.Count() != 3 || h.counts[1] != 1 || h.counts[classOf(histogramMax)] != 2 {
		t.Errorf("%d durations, %d in the first class, %d in the last", h.Count(), h.counts[1], h.counts[classOf(histogramMax)])
	}
	if d := h.dist(); d.N != 3 || *d.Max < 36_000 {
		t.Errorf("%+v", d)
	}
}
