package sim

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
)

func TestClassSharesAreMet(t *testing.T) {
	const n = 20_000
	for _, shares := range [][]float64{nil, {1}, {0.7, 0.3}, {0, 0.5, 0, 0.5, 0}, {0.1, 0.2, 0.3, 0.4}} {
		for seed := range uint64(3) {
			count := make([]float64, max(len(shares), 1))
			for i := range int32(n) {
				count[classOf(seed, i, shares)]++
			}
			for k, share := range shares {
				if off, sigma := math.Abs(count[k]-n*share), math.Sqrt(n*share*(1-share)); off > 4*sigma {
					t.Errorf("seed %d, shares %v: %v of %d sessions have class %d", seed, shares, count[k], n, k)
				}
			}
		}
	}
}

func TestClassSharesAreChecked(t *testing.T) {
	c := world(t, generated(t, "bench", map[string]float64{"sessions": 2}), "none", "sticky")
	for _, x := range []struct {
		shares []float64
		want   string // in the error; "" for none
	}{
		{nil, ""}, {[]float64{1}, ""}, {[]float64{.1, .2, .7}, ""}, {[]float64{0, 1, 0}, ""}, {[]float64{.5, .5 - 1e-10}, ""},
		{[]float64{.5}, "sum to 0.5"}, {[]float64{.7, .4}, "sum to 1.1"}, {[]float64{}, ""}, {[]float64{0, 0}, "sum to 0"},
		{[]float64{1.5, -.5}, "class 0 has a share of 1.5"}, {[]float64{1, -.5, .5}, "class 1 has a share of -0.5"},
		{[]float64{math.NaN(), 1}, "class 0 has a share of NaN"}, {[]float64{0, math.Inf(1)}, "class 1 has a share of +Inf"},
	} {
		c.ClassShares = x.shares
		_, err := c.check(context.Background())
		if x.want == "" && err == nil {
			continue
		}
		var input *InputError
		if x.want == "" || !errors.As(err, &input) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: %v, want %q", x.shares, err, x.want)
		}
	}
}

// TestClassesOfARun expects every attempt of a session, also of turns that never arrive, to have the class of the session.
func TestClassesOfARun(t *testing.T) {
	tr := generated(t, "claude-code", map[string]float64{"sessions": 12})
	c := world(t, tr, "none", "sticky")
	c.ClassShares = []float64{0.4, 0.6}
	c.Clients = Clients{TimeoutPS: 5e12, Retries: 1, CancelUpstream: true}
	out, _ := simulate(t, c)
	retried, unstarted, classes := 0, 0, map[int32]bool{}
	for i := range out.turns {
		x := &out.turns[i]
		if want := classOf(c.Seed, x.Session, c.ClassShares); x.Class != want {
			t.Fatalf("session %d turn %d attempt %d has class %d, its session %d", x.Session, x.Number, x.Attempt, x.Class, want)
		}
		classes[x.Class] = true
		if x.Attempt > 1 {
			retried++
		}
		if x.Outcome == results.Unstarted {
			unstarted++
		}
	}
	if retried == 0 || unstarted == 0 || len(classes) != 2 {
		t.Errorf("%d retries, %d unstarted turns and %d classes: the world says too little", retried, unstarted, len(classes))
	}
}

// TestClassZeroPassesClassOne has one turn run while others wait at the gate, those of class 1 before those of class 0.
func TestClassZeroPassesClassOne(t *testing.T) {
	shares := []float64{0.5, 0.5}
	const n = 12
	sessions := make([][]call, n)
	seed := uint64(0)
	for ; ; seed++ { // the first runs, the second waits in class 1, a later one has class 0
		if classOf(seed, 1, shares) == 1 && classOf(seed, n-1, shares) == 0 {
			break
		}
	}
	for i := range sessions {
		sessions[i] = []call{{prompt: 2000, output: 50, gapS: float64(i) * 0.01}}
	}
	c := world(t, chain(sessions...), "llm-d-saturation", "sticky")
	c.Seed = seed
	c.GateParams = c.Gate.Resolve(policies.Params{"detector": {Text: "concurrency"}, "max_requests": {Number: 1}, "ttl_s": {Number: 0}})
	order := func() (out []results.Turn) {
		r, _ := simulate(t, c)
		for i := range int32(n) {
			out = append(out, r.find(t, i, 0, 1))
		}
		return out
	}
	plain := order()
	if plain[1].AdmittedPS > plain[n-1].AdmittedPS {
		t.Errorf("without classes the second turn goes at %d, after the last at %d", plain[1].AdmittedPS, plain[n-1].AdmittedPS)
	}
	c.ClassShares = shares
	turns := order()
	if turns[0].DonePS <= turns[n-1].ArrivalPS {
		t.Fatalf("the first turn ends at %d, before the last arrives at %d", turns[0].DonePS, turns[n-1].ArrivalPS)
	}
	for i := 1; i < n; i++ {
		for j := 1; j < n; j++ {
			x, y := &turns[i], &turns[j]
			first := x.Class < y.Class || x.Class == y.Class && x.ArrivalPS < y.ArrivalPS
			if first && x.AdmittedPS >= y.AdmittedPS {
				t.Errorf("session %d of class %d goes at %d, session %d of class %d at %d", i, x.Class, x.AdmittedPS, j, y.Class, y.AdmittedPS)
			}
		}
	}
}
