package routing

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/admission"
	"github.com/sluice-sim/sluice/prefix"
)

func (w *world) usage(r policies.ReplicaID, running, waiting int32, usage float64) {
	w.step(policies.Fact{Kind: policies.MetricsSampled, Replica: r, Sample: policies.Sample{
		At: w.now, Has: policies.HasRunning | policies.HasWaiting | policies.HasUsage, Running: running, Waiting: waiting, Usage: usage,
	}})
}

// scored is what the router makes of t, in units of one.
func scored(w *world, r policies.Router, t *policies.Turn) []float64 {
	w.peek(r, t)
	var all []float64
	for _, s := range r.(*llmd).totals {
		all = append(all, float64(s)/1000/float64(policies.ScoreOne))
	}
	return all
}

func near(t *testing.T, what string, want, got []float64) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-6 {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func TestGoldenLLMD(t *testing.T) {
	for _, c := range []struct {
		p      policies.Params
		totals []float64
	}{
		{policies.Params{"prefix": text("events")}, []float64{3.55, 4.55, 3.05, 3.90}},
		{policies.Params{"preset": text("precise-prefix")}, []float64{1.80, 2.65, 2.00, 1.95}},
		{policies.Params{"preset": text("precise-prefix"), "queue_weight": number(0), "prefix_cache_weight": number(.5)}, []float64{.725, .775, .575, .95}},
	} {
		w, u := golden(t, nil)
		for i, usage := range []float64{.30, .60, .90, .05} {
			w.usage(policies.ReplicaID(i), goldenR[i], goldenW[i], usage)
		}
		r := build(LLMD(), c.p, policies.Capability{})
		u.Prompt.Tokens = goldenL
		near(t, "golden", c.totals, scored(w, r, u))
		best := 0
		for i, x := range c.totals {
			if x > c.totals[best] {
				best = i
			}
		}
		if got, why := r.Route(w.now, w.view(), u); got != policies.ReplicaID(best) || why != policies.BestScore {
			t.Errorf("%v: winner %d (%v), want %d", c.p, got, why, best)
		}
	}
}

func TestLLMDScorers(t *testing.T) {
	const one = policies.ScoreOne
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"min-max of the least", minMaxScore(3, 3, 7), one},
		{"of the most", minMaxScore(7, 3, 7), 0},
		{"between", minMaxScore(4, 3, 7), one * 3 / 4},
		{"all equal", minMaxScore(5, 5, 5), one},
		{"nothing used", freeScore(0), one},
		{"a quarter used", freeScore(.25), one * 3 / 4},
		{"all used", freeScore(1), 0},
		{"beyond", freeScore(1.5), 0},
		{"not a number", freeScore(math.NaN()), 0},
		{"nothing waits", loadAwareScore(0, 128), one / 2},
		{"half the threshold waits", loadAwareScore(64, 128), one / 4},
		{"more than the threshold", loadAwareScore(500, 128), 0},
		{"idle", activeRequestScore(0, 8, 0, one), one},
		{"busiest", activeRequestScore(8, 8, 0, one), 0},
		{"a quarter as busy, at most .8", activeRequestScore(2, 8, 0, one*8/10), one * 6 / 10},
		{"idle by threshold", activeRequestScore(2, 8, 2, one), one},
		{"all idle", activeRequestScore(0, 0, 0, one), one},
		{"no tokens", tokenLoadScore(0, 1<<22), one},
		{"a quarter of the tokens", tokenLoadScore(1<<20, 1<<22), one * 3 / 4},
		{"too many", tokenLoadScore(1<<23, 1<<22), 0},
		{"first of 5", rankedScore(0, 5), one},
		{"second of 5", rankedScore(1, 5), one * 3 / 4},
		{"last of 5", rankedScore(4, 5), 0},
		{"the only one", rankedScore(0, 1), one},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
}

// only weighs one scorer alone.
func only(scorer string, more policies.Params) policies.Params {
	p := policies.Params{}
	for _, name := range llmdScorers {
		p[name+"_weight"] = number(0)
	}
	p[scorer+"_weight"] = number(1)
	for k, v := range more {
		p[k] = v
	}
	return p
}

func TestLLMDScorersOnAView(t *testing.T) {
	events := policies.Params{"prefix": text("events")}
	for _, c := range []struct {
		scorer string
		p      policies.Params
		want   []float64
	}{
		{"queue", nil, []float64{1, .75, 0, 1}},
		{"running_requests", nil, []float64{.4, .2, 0, 1}},
		{"kv_cache_utilization", nil, []float64{.5, .5, .5, .5}},
		{"load_aware", nil, []float64{.5, .49609375, .484375, .5}},
		{"active_request", nil, []float64{.5, 0, 0, 1}}, // 1, 2, 2, 0 in flight
		{"active_request", policies.Params{"idle_threshold": number(1), "max_busy_score": number(.5)}, []float64{1, 0, 0, 1}},
		{"token_load", policies.Params{"prefix": text("events"), "token_load_tokens": number(80000)}, []float64{.525, .825, .825, .5}},
		{"prefix_cache", events, []float64{.05, .75, .95, 0}},
		{"prefix_cache", nil, []float64{0, 0, 0, 0}},
		{"no_hit_lru", events, []float64{.5, .5, .5, .5}},
		{"no_hit_lru", nil, []float64{1, 1, 1, 1}},
		{"session_affinity", nil, []float64{0, 0, 0, 0}},
	} {
		w, u := golden(t, nil)
		near(t, c.scorer, c.want, scored(w, build(LLMD(), only(c.scorer, c.p), policies.Capability{}), u))
	}
}

func TestLLMDApproximatePrefixes(t *testing.T) {
	r := build(LLMD(), only("prefix_cache", policies.Params{"lru_blocks": number(20)}), policies.Capability{})
	w := newWorld(t, 3, r)
	u := &policies.Turn{Attempt: 3, Prompt: prefix.Prefix{Stream: 0, Tokens: 700}} // 10 blocks
	home, _ := r.Route(w.now, w.view(), u)
	want := []float64{0, 0, 0}
	want[home] = 10. / 15
	u.Prompt.Tokens = 1000 // 15 blocks, 10 of them known
	near(t, "longer", want, scored(w, r, u))
	u.Prompt.Tokens = 63
	near(t, "no full block", []float64{0, 0, 0}, scored(w, r, u))
	// A prompt beyond the limit scores by what is looked up.
	r2 := build(LLMD(), only("prefix_cache", policies.Params{"max_prefix_tokens": number(640)}), policies.Capability{})
	u.Prompt.Tokens = 100000
	home, _ = r2.Route(w.now, w.view(), u)
	want = []float64{0, 0, 0}
	want[home] = 1
	u.Prompt.Tokens = 200000
	near(t, "beyond the limit", want, scored(w, r2, u))
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: home})
	w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: home})
	r.Observe(w.now, w.view(), &policies.Fact{Kind: policies.ReplicaDown, Replica: home})
	r2.Observe(w.now, w.view(), &policies.Fact{Kind: policies.ReplicaDown, Replica: home})
	near(t, "after a loss", []float64{0, 0, 0}, scored(w, r2, u))
}

func TestLLMDNoHitLRU(t *testing.T) {
	r := build(LLMD(), only("no_hit_lru", nil), policies.Capability{})
	w := newWorld(t, 4, r)
	var order []policies.ReplicaID
	for i := range 8 {
		u := &policies.Turn{Attempt: policies.AttemptID(i), Prompt: prefix.Prefix{Stream: w.tree.Root(), Tokens: 1000}}
		to, _ := r.Route(w.now, w.view(), u)
		order = append(order, to)
	}
	if d := cmp.Diff(order[:4], order[4:]); d != "" {
		t.Errorf("the second round is not the first (-first +second):\n%s", d)
	}
	seen := map[policies.ReplicaID]bool{}
	for _, x := range order[:4] {
		seen[x] = true
	}
	if len(seen) != 4 {
		t.Errorf("the first round %v leaves somebody out", order[:4])
	}
	want := make([]float64, 4)
	for i, x := range order[:4] {
		want[x] = 1 - float64(i)/3
	}
	fresh := &policies.Turn{Prompt: prefix.Prefix{Stream: w.tree.Root(), Tokens: 1000}}
	near(t, "ranks", want, scored(w, r, fresh))
	known := &policies.Turn{Prompt: prefix.Prefix{Stream: 1, Tokens: 1000}}
	near(t, "held somewhere", []float64{.5, .5, .5, .5}, scored(w, r, known))
	r.Route(w.now, w.view(), known)
	near(t, "ranks after a prompt that was held", want, scored(w, r, fresh))
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: order[1]})
	want[order[0]], want[order[1]], want[order[2]], want[order[3]] = 1, 0, .5, 0
	near(t, "ranks of those that are up", want, scored(w, r, fresh))
}

func TestLLMDSessionAffinity(t *testing.T) {
	r := build(LLMD(), policies.Params{"preset": text("payload-agnostic")}, policies.Capability{})
	w := newWorld(t, 3, r)
	u := &policies.Turn{Attempt: 9, Session: 4, Prompt: prefix.Prefix{Tokens: 100}}
	home, _ := r.Route(w.now, w.view(), u)
	w.now += 299 * policies.Second
	want := []float64{1, 1, 1}
	want[home] = 2
	near(t, "bound", want, scored(w, r, u))
	w.now += policies.Second
	near(t, "forgotten", []float64{1, 1, 1}, scored(w, r, u))
	r.Route(w.now, w.view(), u)
	// As busy as any, the owner ties with an idle one.
	home, _ = r.Route(w.now, w.view(), u)
	w.lease(home, 10)
	near(t, "busy owner", []float64{1, 1, 1}, scored(w, r, u))
}

// What was never reported is neither idle nor empty.
func TestLLMDMissingSamples(t *testing.T) {
	w := newWorld(t, 3, nil)
	for range 6 {
		w.lease(0, 10) // and it has not reported
	}
	w.usage(1, 3, 2, .2)
	w.usage(2, 3, 4, .6)
	u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 10}}
	for _, c := range []struct {
		scorer string
		want   []float64
	}{
		{"queue", []float64{0, 1, .5}},
		{"running_requests", []float64{0, 1, 1}},
		{"kv_cache_utilization", []float64{.6, .8, .4}},
		{"load_aware", []float64{.5 - 6./256, .5 - 2./256, .5 - 4./256}},
	} {
		near(t, c.scorer, c.want, scored(w, build(LLMD(), only(c.scorer, nil), policies.Capability{}), u))
	}
	// The age of a sample changes nothing, nor do dispatches since: rule (a).
	for range 9 {
		w.lease(1, 10)
	}
	w.now += 100 * policies.Second
	near(t, "queue", []float64{0, 1, .5}, scored(w, build(LLMD(), only("queue", nil), policies.Capability{}), u))
}

// Equal sums are drawn from, each with the same chance, and nobody else is.
func TestLLMDDrawsAmongEqualSums(t *testing.T) {
	const turns = 3000
	for _, tied := range [][]policies.ReplicaID{{1, 3}, {0, 2, 3}, {0, 1, 2, 3}} {
		w := newWorld(t, 4, nil)
		for r := range policies.ReplicaID(4) {
			w.usage(r, 3, 5, .5)
		}
		for _, r := range tied {
			w.usage(r, 3, 2, .2)
		}
		counts, other := make([]int, 4), 0
		m, another := build(LLMD(), nil, policies.Capability{}), LLMD().NewRouter(policies.Env{Seed: 8}, LLMD().Resolve(nil))
		for a := range policies.AttemptID(turns) {
			u := &policies.Turn{Attempt: a, Prompt: prefix.Prefix{Tokens: 10}}
			to := w.peek(m, u)
			counts[to]++
			if w.peek(another, u) == to {
				other++
			}
		}
		n := float64(len(tied))
		spread := 4 * math.Sqrt(turns/n*(1-1/n))
		for _, r := range tied {
			if math.Abs(float64(counts[r])-turns/n) > spread {
				t.Errorf("%v tie: drawn %v of %d", tied, counts, turns)
			}
			counts[r] = 0
		}
		if d := cmp.Diff(make([]int, 4), counts); d != "" {
			t.Errorf("%v tie: others are drawn:\n%s", tied, d)
		}
		if math.Abs(float64(other)-turns/n) > spread {
			t.Errorf("%v tie: another seed draws the same %d times of %d, want %.0f", tied, other, turns, turns/n)
		}
	}
}

// A turn that is placed after its session has ended leaves no home to the session that gets its number.
func TestSessionAffinityForgetsASessionThatEndedWhileItsTurnWaited(t *testing.T) {
	tree := &prefix.Tree{}
	tree.Root()
	m := build(LLMD(), policies.Params{"session_affinity_weight": number(1)}, policies.Capability{}).(*llmd)
	c := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: 1, Gate: admission.None().NewGate(policies.Env{}, nil), Router: m})
	arrive := func(a policies.AttemptID) policies.Fact {
		return policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{Attempt: a, Session: 3, Number: 1, Prompt: prefix.Prefix{Tokens: 100}}}
	}
	c.Step(0, []policies.Fact{arrive(1)}, nil)
	c.Step(1, []policies.Fact{{Kind: policies.SessionFinished, Session: 3}}, nil)
	if out := c.Step(2, []policies.Fact{{Kind: policies.ReplicaUp, Replica: 0}}, nil); len(out) != 2 {
		t.Fatalf("commands %v, want admit and dispatch of the turn that waited", out)
	}
	if r, ok := m.sessions.get(2, 3); ok {
		t.Errorf("session 3 has ended and its home is %d", r)
	}
	c.Step(3, []policies.Fact{arrive(2)}, nil)
	if _, ok := m.sessions.get(3, 3); !ok {
		t.Error("the session that got its number has no home after its first turn")
	}
}
