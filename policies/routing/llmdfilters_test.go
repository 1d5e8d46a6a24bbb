package routing

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestLLMDAffinityFilter(t *testing.T) {
	l := &llmdLookup{block: 16, hits: []int32{160, 128, 112, 0}} // of 160
	all := []policies.ReplicaID{0, 1, 2, 3}
	least := []int64{800_000_000}
	on := affinityFilters{on: true, thresholds: least, penalty: 1, rate: 10}
	always := affinityFilters{on: true, thresholds: least, rate: 10}
	two := affinityFilters{on: true, thresholds: []int64{990_000_000, 800_000_000}, penalty: 1, rate: 10}
	for _, c := range []struct {
		what   string
		f      affinityFilters
		queued []int32
		hits   []int32
		want   []policies.ReplicaID
	}{
		{"off", affinityFilters{thresholds: least, penalty: 1, rate: 10}, nil, l.hits, all},
		{"at least .8", on, nil, l.hits, all[:2]},
		{"nobody has enough", on, nil, []int32{0, 0, 112, 0}, all},
		{"late by the penalty", on, []int32{10, 10, 1, 0}, l.hits, all[:2]},
		{"later", on, []int32{11, 11, 1, 0}, l.hits, all},
		{"later, but no penalty is too much", always, []int32{1000, 1000, 1, 0}, l.hits, all[:2]},
		{"a strict one first", two, nil, l.hits, all[:1]},
		{"which nobody passes", two, nil, []int32{144, 128, 112, 0}, all[:2]},
		{"nobody enough for either", two, nil, []int32{112, 112, 112, 0}, all},
		{"the best of them counts", on, []int32{11, 5, 1, 0}, l.hits, all[:2]},
	} {
		w := newWorld(t, 4, nil)
		for r, n := range c.queued {
			if n > 0 {
				w.lease(policies.ReplicaID(r), n)
			}
		}
		l.parts = nil
		for _, n := range c.hits {
			l.parts = append(l.parts, blockShare(int64(n/16), 10))
		}
		got := c.f.keep(w.view(), l, 0, append([]policies.ReplicaID(nil), all...))
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, d)
		}
	}
	w, u := golden(t, nil)
	for _, p := range []policies.Params{{"affinity_filter": boolean(true)}, {"affinity_filter": boolean(true), "affinity_penalty_s": number(.7)}} {
		p["prefix"], p["prefix_cache_weight"], p["kv_cache_utilization_weight"] = text("events"), number(0), number(0)
		want := policies.ReplicaID(2) // alone above .8, though its queue is the longest
		if p["affinity_penalty_s"].Number == .7 {
			want = policies.NoReplica // 12000 tokens at 15928 a second are .75 s: 0 and 3 tie
		}
		if got := w.peek(build(LLMD(), p, policies.Capability{}), u); got != want && (want != policies.NoReplica || got == 1 || got == 2) {
			t.Errorf("%v: went to %d, want %d", p, got, want)
		}
	}
}

// A share of the turns skips the affinity filter.
func TestLLMDAffinityExploration(t *testing.T) {
	w, u := golden(t, nil)
	p := policies.Params{"affinity_filter": boolean(true), "affinity_exploration": number(.25), "prefix": text("events")}
	m := build(LLMD(), p, policies.Capability{}).(*llmd)
	const turns = 4000
	explored := 0
	for a := range policies.AttemptID(turns) {
		u.Attempt = a
		w.peek(m, u)
		if len(m.candidates) == 4 {
			explored++
		} else if len(m.candidates) != 1 || m.candidates[0] != 2 {
			t.Fatalf("candidates %v", m.candidates)
		}
	}
	if math.Abs(float64(explored)-turns/4) > 4*math.Sqrt(turns*.25*.75) {
		t.Errorf("%d of %d turns explore with a chance of .25", explored, turns)
	}
}

func TestLLMDUtilizationFilter(t *testing.T) {
	const both = policies.HasWaiting | policies.HasUsage
	for _, c := range []struct {
		what string
		p    policies.Params
		s    policies.Sample
		want bool
	}{
		{"free", nil, policies.Sample{At: 100, Has: both, Waiting: 4, Usage: .79}, true},
		{"as many waiting as may", nil, policies.Sample{At: 100, Has: both, Waiting: 5}, false},
		{"as much used as may", nil, policies.Sample{At: 100, Has: both, Usage: .8}, false},
		{"usage unknown", nil, policies.Sample{At: 100, Has: policies.HasWaiting}, false},
		{"waiting unknown", nil, policies.Sample{At: 100, Has: policies.HasUsage}, false},
		{"as old as may", nil, policies.Sample{At: 100 - policies.Second/5, Has: both}, true},
		{"older", nil, policies.Sample{At: 99 - policies.Second/5, Has: both}, false},
		{"headroom for those waiting", policies.Params{"filter_headroom": number(.5)}, policies.Sample{At: 100, Has: both, Waiting: 7}, true},
		{"and no more", policies.Params{"filter_headroom": number(.5)}, policies.Sample{At: 100, Has: both, Waiting: 8}, false},
		{"but never a full cache", policies.Params{"filter_headroom": number(.5)}, policies.Sample{At: 100, Has: both, Usage: 1}, false},
		{"nearly", policies.Params{"filter_headroom": number(.5)}, policies.Sample{At: 100, Has: both, Usage: .999}, true},
	} {
		f := newUtilizationFilter(LLMD().Resolve(c.p))
		if got := f.free(100, c.s); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	w := newWorld(t, 4, nil)
	m := build(LLMD(), policies.Params{"utilization_filter": boolean(true), "picker": text(pickRandom)}, policies.Capability{}).(*llmd)
	u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 100}}
	candidates := func(what string, want ...policies.ReplicaID) {
		t.Helper()
		w.peek(m, u)
		if d := cmp.Diff(want, m.candidates); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	candidates("nobody has reported: all", 0, 1, 2, 3)
	w.usage(1, 0, 9, .1)
	candidates("one is full, the others unknown: all", 0, 1, 2, 3)
	w.usage(2, 0, 0, .1)
	w.usage(3, 0, 0, .9)
	candidates("one is free", 2)
	w.now += policies.Second
	candidates("all samples are old: all", 0, 1, 2, 3)
}

func TestLLMDSessionFilter(t *testing.T) {
	w := newWorld(t, 3, nil)
	m := build(LLMD(), policies.Params{"session_filter": boolean(true), "session_ttl_s": number(10)}, policies.Capability{}).(*llmd)
	u := &policies.Turn{Session: 4, Number: 2, Prompt: prefix.Prefix{Tokens: 100}}
	left := func(what string, want int) {
		t.Helper()
		if w.peek(m, u); len(m.candidates) != want {
			t.Errorf("%s: %v are left", what, m.candidates)
		}
	}
	left("no place yet", 3)
	home, _ := m.Route(w.now, w.view(), u)
	left("bound", 1)
	if m.candidates[0] != home {
		t.Errorf("bound to %d, left %v", home, m.candidates)
	}
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: home})
	left("its replica is down", 2)
	w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: home})
	left("up again", 1)
	w.now += 10 * policies.Second
	left("forgotten", 3)
}

// Tokens in flight are uncached prompt tokens until the first token, and the output expected until the end.
func TestLLMDOutputRatio(t *testing.T) {
	for _, c := range []struct {
		ratio float64
		want  []float64
	}{
		{0, []float64{.99, .9, .99}},     // beside the 100 tokens of the turn itself
		{1.5, []float64{.99, .765, .84}}, // 900 and 1350; 1500
	} {
		w := newWorld(t, 3, nil)
		w.lease(1, 900)
		a := w.lease(2, 1000)
		w.step(policies.Fact{Kind: policies.FirstToken, Attempt: a})
		u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 100}}
		p := only("token_load", policies.Params{"output_ratio": number(c.ratio), "token_load_tokens": number(10_000)})
		near(t, "tokens in flight", c.want, scored(w, build(LLMD(), p, policies.Capability{}), u))
	}
}
