package routing

import (
	"math"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestGoldenAIBrix(t *testing.T) {
	if got := deviationBound(17, 115, 4, 1); math.Abs(got-8.025) > .0005 { // 3, 5, 9, 0: mean 4.25, deviation 3.775
		t.Errorf("bound %.4f, want 8.025", got)
	}
	for _, c := range []struct {
		sum, squares, n int64
		want            float64
	}{{0, 0, 4, 0}, {20, 100, 4, 5}, {7, 49, 1, 7}} {
		if got := deviationBound(c.sum, c.squares, c.n, 1); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for _, c := range []struct {
		p   policies.Params
		to  policies.ReplicaID
		why policies.Reason
	}{
		{policies.Params{"imbalance": number(9)}, 1, policies.HomeHit},                          // 9 on replica 2 is over the bound
		{policies.Params{"imbalance": number(9), "deviations": number(2)}, 2, policies.HomeHit}, // 11.8
		{nil, 3, policies.Imbalanced}, // 9 - 0 is more than 8
		{policies.Params{"imbalance": number(9), "deviations": number(0)}, 0, policies.HomeHit}, // 0 and 3 within the mean
	} {
		r := build(AIBrixPrefixCache(), c.p, policies.Capability{}).(*aibrix)
		w := newWorld(t, 4, r)
		for i, n := range []int{3, 5, 9, 0} {
			for range n {
				w.lease(policies.ReplicaID(i), 10)
			}
			if goldenC[i] > 0 {
				r.prepare(w.view())
				r.resident.sent.Insert(0, w.view(), prefix.Prefix{Stream: 0, Tokens: goldenC[i]}, policies.ReplicaID(i))
			}
		}
		u := &policies.Turn{Attempt: 5, Prompt: prefix.Prefix{Stream: 0, Tokens: goldenL}}
		p := w.peek(r, u)
		if to, why := r.Route(w.now, w.view(), u); to != c.to || why != c.why || p != to {
			t.Errorf("%v: %d (%v, peek %d), want %d (%v)", c.p, to, why, p, c.to, c.why)
		}
	}
}

func TestAIBrixTies(t *testing.T) {
	for _, c := range []struct {
		matched, total int32
		want           int64
	}{{0, 0, 0}, {1, 3, 33}, {2, 3, 66}, {3, 3, 100}} {
		if got := matchPercent(c.matched, c.total); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	r := build(AIBrixPrefixCache(), nil, policies.Capability{}).(*aibrix)
	w := newWorld(t, 4, r)
	w.lease(1, 10)
	r.resident.sent.Insert(0, w.view(), prefix.Prefix{Tokens: 500}, 2)
	r.resident.sent.Insert(0, w.view(), prefix.Prefix{Tokens: 509}, 3) // the same whole per cent
	counts := make([]int, 4)
	const n = 2000
	for a := range policies.AttemptID(n) {
		counts[w.peek(r, &policies.Turn{Attempt: a, Prompt: prefix.Prefix{Tokens: 10000}})]++
	}
	if counts[0]+counts[1] > 0 {
		t.Errorf("%v: matches lost", counts)
	}
	evenly(t, "equal matches", counts[2:], n)
	w.lease(2, 10)
	w.lease(0, 10)
	if got := w.peek(r, &policies.Turn{Prompt: prefix.Prefix{Tokens: 10000}}); got != 3 {
		t.Errorf("went to %d, want 3, with as large a match and fewer in flight", got)
	}
	// Forgotten after 20 minutes, and beyond a fourth of the table.
	w.now = 1200 * policies.Second
	if _, why := r.choose(w.now, w.view(), &policies.Turn{Prompt: prefix.Prefix{Tokens: 600}}); why != policies.LeastLoaded {
		t.Errorf("after its time to live: %v", why)
	}
	r.resident.sent.Insert(w.now, w.view(), prefix.Prefix{Tokens: 60000}, 0)
	if got := r.resident.sent.Tokens(0); got != 50000 {
		t.Errorf("%d tokens are remembered, want 50000", got)
	}
}
