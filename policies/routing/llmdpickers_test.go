package routing

import (
	"math"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// The golden vector's sums are 3.55, 4.55, 3.05 and 3.90: weighted-random draws by them, random by none.
func TestLLMDPickers(t *testing.T) {
	w, u := golden(t, nil)
	for i, usage := range []float64{.30, .60, .90, .05} {
		w.usage(policies.ReplicaID(i), goldenR[i], goldenW[i], usage)
	}
	const turns = 20_000
	for _, c := range []struct {
		picker string
		want   [4]float64
		why    policies.Reason
	}{
		{pickMaxScore, [4]float64{0, 1, 0, 0}, policies.BestScore},
		{pickWeightedRandom, [4]float64{3.55 / 15.05, 4.55 / 15.05, 3.05 / 15.05, 3.90 / 15.05}, policies.Sampled},
		{pickRandom, [4]float64{.25, .25, .25, .25}, policies.Sampled},
	} {
		m := build(LLMD(), policies.Params{"prefix": text("events"), "picker": text(c.picker)}, policies.Capability{})
		var drawn [4]float64
		for a := range policies.AttemptID(turns) {
			u.Attempt = a
			drawn[w.peek(m, u)]++
		}
		for r, x := range c.want {
			if math.Abs(drawn[r]-turns*x) > 4*math.Sqrt(turns*x*(1-x)) {
				t.Errorf("%s: %d is drawn %v times of %d, want %.0f", c.picker, r, drawn[r], turns, turns*x)
			}
		}
		if to, why := m.Route(w.now, w.view(), u); why != c.why || to == policies.NoReplica {
			t.Errorf("%s: %d for %s", c.picker, to, why)
		}
	}
}

// Without a sum above 0 weighted-random is random, and a replica with 0 is never drawn beside others.
func TestLLMDWeightedRandomWithZeros(t *testing.T) {
	p := llmdPicker{kind: pickWeightedRandom}
	all := []policies.ReplicaID{0, 1, 2}
	seen := map[policies.ReplicaID]int{}
	for a := range policies.AttemptID(300) {
		seen[p.pick(all, []int64{0, 0, 0}, a)]++
		if r := p.pick(all, []int64{0, 7_000_000, 0}, a); r != 1 {
			t.Fatalf("%d is drawn, only 1 has a sum", r)
		}
		if r := p.pick(all[2:], []int64{9e15, 9e15, 1}, a); r != 2 {
			t.Fatalf("%d is drawn, only 2 is left", r)
		}
	}
	if seen[0] < 60 || seen[1] < 60 || seen[2] < 60 {
		t.Errorf("drawn %v", seen)
	}
	if r := p.pick(nil, nil, 1); r != policies.NoReplica {
		t.Errorf("%d of nobody", r)
	}
}

func TestLLMDPrefixScales(t *testing.T) {
	const one = policies.ScoreOne
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"nothing", minMaxPrefixScore(0, one/4, one/2), 0},
		{"the least", minMaxPrefixScore(one/4, one/4, one/2), 0},
		{"the most", minMaxPrefixScore(one/2, one/4, one/2), one},
		{"between", minMaxPrefixScore(one*3/8, one/4, one/2), one / 2},
		{"all alike", minMaxPrefixScore(one/4, one/4, one/4), one},
		{"length alone, half", lengthScore(one, 4096, 8192, one), one / 4},
		{"length alone, enough", lengthScore(0, 9000, 8192, one), one},
		{"a quarter of the weight", lengthScore(one/2, 4096, 8192, one/4), one/16 + one*3/8},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
	// The golden vector holds 2000, 30000, 38000 and 0 of 40000 tokens.
	for _, c := range []struct {
		p    policies.Params
		want []float64
	}{
		{policies.Params{"prefix_scale": text(scaleMinMax)}, []float64{0, 28. / 36, 1, 0}},
		{policies.Params{"match_length_weight": number(.5), "match_length_tokens": number(4000)}, []float64{.15, .875, .975, 0}},
	} {
		w, u := golden(t, nil)
		c.p["prefix"] = text("events")
		near(t, "golden", c.want, scored(w, build(LLMD(), only("prefix_cache", c.p), policies.Capability{}), u))
	}
}

// With speculative indexing what was sent counts as there for a while, beside KV events.
func TestLLMDSpeculativeIndexing(t *testing.T) {
	for _, on := range []bool{false, true} {
		w := newWorld(t, 3, nil)
		for r := range policies.ReplicaID(3) { // all send events
			w.step(policies.Fact{Kind: policies.BlocksStored, Replica: r, Stream: w.tree.Root(), Lo: 0, Hi: 1, BlockTokens: 16})
		}
		w.store(2, 10) // of 62 blocks
		p := only("prefix_cache", policies.Params{"prefix": text("events"), "speculative_indexing": boolean(on)})
		m := build(LLMD(), p, policies.Capability{}).(*llmd)
		u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 1000}}
		m.lookup.find(w.now, w.view(), u.Prompt)
		m.lookup.sent(w.now, w.view(), u.Prompt, 1)
		known, sent := 10./62, 0.
		if on {
			sent = 1
		}
		near(t, "sent just now", []float64{0, sent, known}, scored(w, m, u))
		w.now += 2*policies.Second - 1
		near(t, "sent nearly 2 s ago", []float64{0, sent, known}, scored(w, m, u))
		w.now++
		near(t, "sent 2 s ago", []float64{0, 0, known}, scored(w, m, u))
		m.lookup.sent(w.now, w.view(), u.Prompt, 1)
		m.Observe(w.now, w.view(), &policies.Fact{Kind: policies.ReplicaRestarted, Replica: 1})
		near(t, "lost", []float64{0, 0, known}, scored(w, m, u))
	}
}

func TestLLMDAutotune(t *testing.T) {
	for _, c := range []struct {
		engine       policies.Capability
		p            policies.Params
		block        int32
		remembered   int64 // tokens of a prompt of 100,000
		configuredIt bool
	}{
		{policies.Capability{BlockTokens: 128, KVTokens: 128 * 50}, nil, 128, 6400, true},
		{policies.Capability{BlockTokens: 16, KVTokens: 16 * 50}, nil, 64, 3200, true}, // as many blocks, not tokens
		{policies.Capability{BlockTokens: 128}, nil, 128, 99_968, true},
		{policies.Capability{}, nil, 64, 99_968, true},
		{policies.Capability{BlockTokens: 128, KVTokens: 6400}, nil, 64, 99_968, false},
	} {
		w := newWorld(t, 1, nil)
		m := build(LLMD(), policies.Params{"autotune": boolean(c.configuredIt)}, c.engine).(*llmd)
		m.Route(w.now, w.view(), &policies.Turn{Prompt: prefix.Prefix{Tokens: 100_000}})
		if n := m.lookup.resident.sent.Tokens(0); m.lookup.block != c.block || n != c.remembered {
			t.Errorf("%+v: blocks of %d, %d tokens remembered; want %d and %d", c.engine, m.lookup.block, n, c.block, c.remembered)
		}
	}
}
