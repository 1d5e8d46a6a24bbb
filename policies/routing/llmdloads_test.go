package routing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
)

// The scores of figures, close together or far apart, are those of each by itself, and of replicas that are up alone.
func TestFiguresAreScoredEachByItself(t *testing.T) {
	const n = 9
	w := newWorld(t, n, nil)
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: 4})
	rapid.Check(t, func(t *rapid.T) {
		var f figures
		f.reset(n)
		lo := rapid.Int64Range(-3, 1000).Draw(t, "least")
		hi := lo + rapid.SampledFrom([]int64{0, 1, 5, 62, 63, 64, 65, 1 << 20}).Draw(t, "spread")
		square := func(x int64) int64 { return x*x + 1 }
		want, got := make([]int64, n), make([]int64, n)
		for _, r := range w.view().Up() {
			x := rapid.Int64Range(lo, hi).Draw(t, "figure")
			f.put(r, x)
			want[r] = square(x)
		}
		f.score(w.view(), got, square)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}
