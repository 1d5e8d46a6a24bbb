package routing

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
)

func TestGoldenLMetric(t *testing.T) {
	for _, c := range []struct {
		queue, plusOne bool
		scores         [4]int64
		winner         policies.ReplicaID
	}{
		{true, true, [4]int64{152000, 84000, 140000, 40000}, 3},
		{true, false, [4]int64{114000, 70000, 126000, 0}, 3},
		{false, true, [4]int64{152000, 60000, 20000, 40000}, 2},
	} {
		for i, want := range c.scores {
			q, batch := int64(0), int64(goldenR[i]+goldenW[i])
			if c.queue {
				q = int64(goldenQ[i])
			}
			if c.plusOne {
				batch++
			}
			if got := lmetricScore(q, goldenL-goldenC[i], batch); got != want {
				t.Errorf("%v: score of %d is %d, want %d", c, i, got, want)
			}
		}
		w, u := golden(t, nil)
		r := build(LMetric(), policies.Params{"include_queue": boolean(c.queue), "bs_plus_one": boolean(c.plusOne)}, policies.Capability{})
		if got := w.peek(r, u); got != c.winner {
			t.Errorf("%v: winner %d, want %d", c, got, c.winner)
		}
	}
}
