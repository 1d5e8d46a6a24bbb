package routing

import (
	"math"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestGoldenBailian(t *testing.T) {
	want := []float64{5.278, 35.833, 36.944, 9.444}
	sum := 3 + 5 + 9 + 0
	var top []weighted
	for i := range 4 {
		below := float64(sum-4*int(goldenR[i]+goldenW[i])) / (4 * 9)
		got := bailianExponent(50, 20, goldenC[i], goldenL, below)
		if math.Abs(got-want[i]) > .0005 {
			t.Errorf("exponent %d is %.4f, want %.3f", i, got, want[i])
		}
		top = keepTop(top, 3, weighted{policies.ReplicaID(i), got})
	}
	counts := map[policies.ReplicaID]int{}
	const draws = 100000
	for i := range draws {
		counts[draw(top, (float64(i)+.5)/draws)]++
	}
	if counts[2] < 68350 || counts[2] > 68450 || counts[1] < 31550 || counts[1] > 31650 || counts[0] != 0 {
		t.Errorf("draws %v, want .684 of 2, .316 of 1", counts)
	}
	w, u := golden(t, nil)
	r := build(Bailian(), nil, policies.Capability{})
	counts = map[policies.ReplicaID]int{}
	for a := range policies.AttemptID(4000) {
		u.Attempt = a
		to := w.peek(r, u)
		if again, _ := r.Route(w.now, w.view(), u); again != to {
			t.Fatal("Route and Peek draw differently")
		}
		counts[to]++
	}
	if share := float64(counts[2]) / 4000; share < .66 || share > .71 || counts[1]+counts[2] != 4000 {
		t.Errorf("draws %v", counts)
	}
	if got := w.peek(build(Bailian(), policies.Params{"top_k": number(1)}, policies.Capability{}), u); got != 2 {
		t.Errorf("top 1 is %d, want 2", got)
	}
}

func TestBailianLinear(t *testing.T) {
	for _, c := range []struct {
		lambda float64
		sums   [4]float64 // hit ratios .05, .75, .95, 0; batches 3, 5, 9, 0 of 9
		winner policies.ReplicaID
	}{
		{.7, [4]float64{.765, .3417, .335, .7}, 2},
		{.55, [4]float64{.6725, .3875, .4775, .55}, 1},
		{0, [4]float64{.3333, .5556, 1, 0}, 3},
		{1, [4]float64{.95, .25, .05, 1}, 2},
	} {
		w, u := golden(t, nil)
		r := build(Bailian(), policies.Params{"form": text("linear"), "lambda": number(c.lambda)}, policies.Capability{})
		for i, s := range r.(policies.Scored).Scores(w.now, w.view(), u, nil) {
			if math.Abs(s.Score-c.sums[i]) > .0001 {
				t.Errorf("lambda %v: sum of %d is %.4f, want %.4f", c.lambda, i, s.Score, c.sums[i])
			}
		}
		p := w.peek(r, u)
		if to, why := r.Route(w.now, w.view(), u); to != c.winner || p != to || why != policies.BestScore {
			t.Errorf("lambda %v: %d (%v, peek %d), want %d", c.lambda, to, why, p, c.winner)
		}
	}
	w := newWorld(t, 3, nil) // all equal: the lowest
	if got := w.peek(build(Bailian(), policies.Params{"form": text("linear")}, policies.Capability{}), &policies.Turn{Prompt: prefix.Prefix{Tokens: 9}}); got != 0 {
		t.Errorf("all equal: went to %d", got)
	}
}
