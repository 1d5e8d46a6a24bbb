package results

import (
	"path/filepath"
	"testing"
)

// BenchmarkWriter measures a turn from the simulator's call to the complete folder.
func BenchmarkWriter(b *testing.B) {
	r := newSmallRun()
	w, err := Create(filepath.Join(b.TempDir(), "run"), smallInfo(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		row := r.turns[i%len(r.turns)]
		row.Session = int32(i / 20)
		row.ArrivalPS += int64(i) * 1_000_003
		if err := w.Turn(&row); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Finish(&r.totals); err != nil {
		b.Fatal(err)
	}
}
