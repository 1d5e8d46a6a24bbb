package routing

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestGoldenSMG(t *testing.T) {
	for _, c := range []struct {
		least, most int32
		want        bool
	}{{10, 75, true}, {10, 74, false}, {200, 290, false}, {200, 301, true}, {200, 300, false}, {0, 64, false}, {0, 65, true}} {
		if got := smgImbalanced(c.least, c.most, 64, 1.5); got != c.want {
			t.Errorf("[%d, %d]: %v, want %v", c.least, c.most, got, c.want)
		}
	}
	for _, c := range []struct {
		hit, prompt int32
		events      bool
		want        bool
	}{{30, 100, false, false}, {31, 100, false, true}, {1, 100, true, true}, {0, 100, true, false}, {100, 100, false, true}} {
		if got := smgMatches(c.hit, c.prompt, .3, c.events); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// smgWorld routes turns of a router and opens leases where it sent them.
type smgWorld struct {
	*world
	r policies.Router
}

func newSMGWorld(t *testing.T, replicas int, p policies.Params) *smgWorld {
	r := build(SMGCacheAware(), p, policies.Capability{})
	return &smgWorld{newWorld(t, replicas, r), r}
}

func (w *smgWorld) route(p prefix.Prefix, to policies.ReplicaID, why policies.Reason) {
	w.t.Helper()
	u := &policies.Turn{Attempt: 1 << 40, Prompt: p}
	peeked := w.peek(w.r, u)
	got, reason := w.r.Route(w.now, w.view(), u)
	if got != to || reason != why || peeked != to {
		w.t.Errorf("%+v went to %d (%v, peek %d), want %d (%v)", p, got, reason, peeked, to, why)
	}
}

func TestSMGMatchesWhatItSent(t *testing.T) {
	w := newSMGWorld(t, 3, nil)
	root := prefix.StreamID(0)
	w.route(prefix.Prefix{Stream: root, Tokens: 100}, 0, policies.LeastLoaded)
	// The turn before went to 0, so 1 has got the fewest ever.
	other := w.tree.Root()
	w.route(prefix.Prefix{Stream: other, Tokens: 100}, 1, policies.LeastLoaded)
	w.route(prefix.Prefix{Stream: root, Tokens: 333}, 0, policies.HomeHit)      // 100/333 > .3
	w.route(prefix.Prefix{Stream: root, Tokens: 1111}, 2, policies.LeastLoaded) // 333/1111 < .3; and it is inserted on 2
	w.route(prefix.Prefix{Stream: root, Tokens: 1200}, 2, policies.HomeHit)
	// 333 tokens are on 0 and on 2. Equal loads: the smaller tree. Then the smaller load.
	w.route(prefix.Prefix{Stream: root, Tokens: 300}, 0, policies.HomeHit)
	w.lease(0, 10)
	w.route(prefix.Prefix{Stream: root, Tokens: 300}, 2, policies.HomeHit)
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: 2})
	w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: 2})
	w.route(prefix.Prefix{Stream: root, Tokens: 333}, 0, policies.HomeHit)
}

// KV usage that is too high, or too far apart, counts as loads that are; what was not reported does not.
func TestSMGUsage(t *testing.T) {
	for _, c := range []struct {
		what             string
		overload, spread float64
		usage            [2]float64 // below 0: not reported
		want             policies.Reason
	}{
		{"off", 1, 1, [2]float64{1, 0}, policies.HomeHit},
		{"too high", .8, 1, [2]float64{.81, .8}, policies.Imbalanced},
		{"as high as may", .8, 1, [2]float64{.8, .8}, policies.HomeHit},
		{"too far apart", 1, .25, [2]float64{.25, .75}, policies.Imbalanced},
		{"as far apart as may", 1, .5, [2]float64{.25, .75}, policies.HomeHit},
		{"one unknown", 1, .1, [2]float64{-1, .9}, policies.HomeHit},
		{"one unknown, the other too high", .8, 1, [2]float64{-1, .9}, policies.Imbalanced},
		{"both unknown", 0, 0, [2]float64{-1, -1}, policies.HomeHit},
	} {
		w := newSMGWorld(t, 2, policies.Params{"usage_overload_threshold": number(c.overload), "usage_spread_threshold": number(c.spread)})
		p := prefix.Prefix{Tokens: 100}
		w.route(p, 0, policies.LeastLoaded)
		for r, u := range c.usage {
			if u >= 0 {
				w.usage(policies.ReplicaID(r), 0, 0, u)
			}
		}
		to := policies.ReplicaID(0)
		if c.want == policies.Imbalanced {
			to = 1 // which got fewer turns
		}
		t.Log(c.what)
		w.route(p, to, c.want)
	}
}

// While loads are too far apart the least loaded takes everything, and what it took is found there afterwards.
func TestSMGInsertsWhileImbalanced(t *testing.T) {
	w := newSMGWorld(t, 2, policies.Params{"balance_abs_threshold": number(2)})
	p := prefix.Prefix{Tokens: 100}
	w.route(p, 0, policies.LeastLoaded)
	var leases []policies.AttemptID
	for range 3 {
		leases = append(leases, w.lease(0, 10))
	}
	w.route(p, 1, policies.Imbalanced)
	for _, a := range leases {
		w.step(policies.Fact{Kind: policies.Finished, Attempt: a, OutputTokens: 1})
	}
	w.lease(0, 10)
	w.route(p, 1, policies.HomeHit) // both hold it now; 1 has less to do
	for range 5 {
		w.lease(1, 10)
	}
	w.route(p, 0, policies.Imbalanced)
}

func TestSMGForgetsWhatDoesNotFit(t *testing.T) {
	w := newSMGWorld(t, 1, policies.Params{"max_tree_tokens": number(1000)})
	a, b := prefix.Prefix{Stream: 0, Tokens: 600}, prefix.Prefix{Stream: w.tree.Root(), Tokens: 600}
	w.route(a, 0, policies.LeastLoaded)
	w.route(b, 0, policies.LeastLoaded)
	w.route(a, 0, policies.HomeHit) // 400 of its 600 tokens are left, and now b's last 200 are gone
	w.route(prefix.Prefix{Stream: b.Stream, Tokens: 400 * 10 / 3}, 0, policies.HomeHit)
	w.route(a, 0, policies.LeastLoaded) // the longer b left nothing
}

func TestSMGEvents(t *testing.T) {
	for _, c := range []struct {
		index string
		want  policies.ReplicaID
		why   policies.Reason
	}{{"events", 2, policies.HomeHit}, {"tree", 0, policies.LeastLoaded}} {
		w := newSMGWorld(t, 3, policies.Params{"index": text(c.index)})
		w.store(1, 1)
		w.store(2, 2) // 32 tokens of 10000, far below the threshold
		w.route(prefix.Prefix{Tokens: 10000}, c.want, c.why)
	}
	w := newSMGWorld(t, 2, policies.Params{"index": text("events")})
	p := prefix.Prefix{Tokens: 100}
	w.route(p, 0, policies.LeastLoaded)
	w.route(p, 0, policies.HomeHit) // without events the tree
	w.step(policies.Fact{Kind: policies.BlocksStored, Replica: 0, Stream: w.tree.Root(), Lo: 0, Hi: 1, BlockTokens: 16})
	w.lease(0, 10)
	w.route(p, 1, policies.LeastLoaded) // 0 says that it does not hold it
}
