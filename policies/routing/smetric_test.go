package routing

import (
	"math"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestGoldenSMetric(t *testing.T) {
	loads := []int64{200, 2250, 5750, 0}
	if overloadFits(loads[2], 8200, 4, 2) {
		t.Error("5750 <= 2 x 2050 must be false")
	}
	if got := float64(12000+2000) / 2300; math.Abs(got-6.09) > .005 || ttftBudget(goldenL) != 3.5 {
		t.Errorf("%.3f s against %.3f s", got, ttftBudget(goldenL))
	}
	for _, c := range []struct {
		n, l int32
		want float64
	}{{4096, 64000, 40750}, {4096, 4096, 5308}} {
		if got := prefillWork(c.n, c.l, 6923); math.Abs(got-c.want) > .5 {
			t.Errorf("w(%d, %d) = %.1f, want %.0f", c.n, c.l, got, c.want)
		}
	}
	for _, c := range []struct {
		name string
		d    policies.Declaration
		p    policies.Params
		to   policies.ReplicaID
		why  policies.Reason
	}{
		{"figure", SMetricFigure(), nil, 3, policies.Spilled},
		{"figure, lenient", SMetricFigure(), policies.Params{"overload": number(2.81)}, 2, policies.HomeHit},
		{"figure, turns count", SMetricFigure(), policies.Params{"request_tokens": number(1e6)}, 2, policies.HomeHit}, // 2.092 of 5.13/4 million
		{"budget", SMetricFigure(), policies.Params{"gate": text("budget"), "drain_per_s": number(2300)}, 3, policies.Spilled},
		{"budget, faster", SMetricFigure(), policies.Params{"gate": text("budget"), "drain_per_s": number(4000)}, 2, policies.HomeHit},
		{"budget without a rate", SMetricFigure(), policies.Params{"gate": text("budget")}, 3, policies.Spilled},
		// The least work: (4000 + 10000) on 1, (12000 + 2000) on 2, 40000 on 3, 38000 on 0; the tie of 1 and 2 in turn.
		{"work", SMetric(), policies.Params{"drain_per_s": number(2300)}, 1, policies.Spilled},
		{"work without a rate", SMetric(), nil, 1, policies.Spilled},
		{"work without a rate, lenient", SMetric(), policies.Params{"overload": number(3)}, 2, policies.HomeHit},
		{"expected hit not reached", SMetric(), policies.Params{"drain_per_s": number(1e6), "hit": number(.96), "expected_hit": text("prompt")}, 1, policies.HomeLost},
		{"attention", SMetric(), policies.Params{"drain_per_s": number(2300), "attention_doubling_tokens": number(6923)}, 2, policies.Spilled},
		{"dynamo spill", SMetricFigure(), policies.Params{"spill": text("dynamo")}, 3, policies.Spilled}, // 40000 against 41200
		{"lmetric spill", SMetricFigure(), policies.Params{"spill": text("lmetric")}, 3, policies.Spilled},
		{"lmetric attention spill", SMetricFigure(), policies.Params{"spill": text("lmetric_attention"), "attention_doubling_tokens": number(6923)}, 3, policies.Spilled},
	} {
		w, u := golden(t, nil)
		if to, why := build(c.d, c.p, policies.Capability{}).Route(w.now, w.view(), u); to != c.to || why != c.why {
			t.Errorf("%s: %d %v, want %d %v", c.name, to, why, c.to, c.why)
		}
		u.Number = 1
		if _, why := build(c.d, c.p, policies.Capability{}).Route(w.now, w.view(), u); why != policies.FirstPlacement {
			t.Errorf("%s: first turn %v", c.name, why)
		}
	}
}

// Two replicas have as many tokens; the one with fewer turns is the lighter once turns count, and stays so as they end.
func TestSMetricCountsTurns(t *testing.T) {
	for _, c := range []struct {
		request float64
		want    [2]policies.ReplicaID // before and after two of three turns on 1 have ended
	}{{0, [2]policies.ReplicaID{0, 1}}, {1, [2]policies.ReplicaID{1, 1}}, {1e6, [2]policies.ReplicaID{1, 1}}} {
		r := build(SMetricFigure(), policies.Params{"request_tokens": number(c.request)}, policies.Capability{})
		w := newWorld(t, 2, r)
		first := &policies.Turn{Number: 1, Prompt: prefix.Prefix{Stream: w.tree.Root(), Tokens: 10}}
		for range 4 {
			w.lease(0, 300)
		}
		w.lease(1, 400)
		leases := []policies.AttemptID{w.lease(1, 400), w.lease(1, 400)}
		before := w.peek(r, first)
		for _, a := range leases {
			w.step(policies.Fact{Kind: policies.Failed, Attempt: a})
		}
		if got := [2]policies.ReplicaID{before, w.peek(r, first)}; got != c.want {
			t.Errorf("a turn as %v tokens: %v, want %v", c.request, got, c.want)
		}
	}
}

func TestSMetricTakesTheReplicasOwnRate(t *testing.T) {
	slow := policies.Capability{PrefillTokensPerSec: 2300}
	fast := policies.Capability{PrefillTokensPerSec: 4100}
	for _, c := range []struct {
		replica, env policies.Capability
		want         policies.Reason
	}{{slow, fast, policies.Spilled}, {fast, slow, policies.HomeHit}, {policies.Capability{}, slow, policies.Spilled}, {policies.Capability{}, fast, policies.HomeHit}} {
		w, u := golden(t, nil, c.replica, c.replica, c.replica, c.replica)
		if _, why := build(SMetric(), nil, c.env).Route(w.now, w.view(), u); why != c.want {
			t.Errorf("replica %v, otherwise %v: %v, want %v", c.replica.PrefillTokensPerSec, c.env.PrefillTokensPerSec, why, c.want)
		}
	}
	// A cold prompt of 8192 tokens at 8192 tokens a second takes a second, attention or not.
	m := &smetric{doubling: 5000}
	w := newWorld(t, 1, nil, policies.Capability{PrefillTokensPerSec: 8192})
	if got := prefillWork(8192, 8192, 5000) / m.drainOf(w.view(), 0, true); math.Abs(got-1) > 1e-12 {
		t.Errorf("takes %v s", got)
	}
}

func TestSMetricTakesTiesInTurn(t *testing.T) {
	w := newWorld(t, 4, nil)
	r := build(SMetricFigure(), nil, policies.Capability{})
	w.lease(1, 100)
	u := &policies.Turn{Number: 1, Prompt: prefix.Prefix{Tokens: 64}}
	for i, want := range []policies.ReplicaID{0, 2, 3, 0, 2} {
		if p := w.peek(r, u); p != want {
			t.Errorf("peek %d: %d, want %d", i, p, want)
		}
		if to, _ := r.Route(w.now, w.view(), u); to != want {
			t.Errorf("route %d: %d, want %d", i, to, want)
		}
	}
}

func TestSMetricDecodeMask(t *testing.T) {
	p := policies.Params{"decode_mask": boolean(true), "drain_per_s": number(1000)}
	w := newWorld(t, 2, nil)
	w.decode(0, 8001) // balance 1 + 1 + .03 s, less the time since
	u := &policies.Turn{Thread: 50, Number: 1, Prompt: prefix.Prefix{Tokens: 2000}}
	w.lease(1, 5000)
	for _, c := range []struct {
		at   policies.Time // ms
		want policies.ReplicaID
		why  string
	}{
		{0, 0, "2 s of prefill fit 2.03 s"},
		{40, 1, "2 s do not fit 1.99 s, though 1 has more work"},
		{2040, 0, "the decode is late already"},
	} {
		w.now = c.at * 1e6
		if got := w.peek(build(SMetric(), p, policies.Capability{}), u); got != c.want {
			t.Errorf("%s: went to %d, want %d", c.why, got, c.want)
		}
	}
	w2 := newWorld(t, 2, nil)
	for r := range policies.ReplicaID(2) {
		w2.decode(r, 100)
	}
	w2.now = 500e6
	if got := w2.peek(build(SMetric(), p, policies.Capability{}), u); got != 0 {
		t.Errorf("with no replica safe it went to %d, want 0", got)
	}
	w.now = 0
}
