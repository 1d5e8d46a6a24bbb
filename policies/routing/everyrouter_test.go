package routing

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func declarations() []policies.Declaration {
	return []policies.Declaration{
		RoundRobin(), Random(), PowerOfTwo(), LeastRequests(), LeastPendingTokens(), LeastWork(), CHWBL(), Sticky(), StickyBounded(), StickyLeastLoaded(),
		VLLMDP(), LLMD(), AIBrixPrefixCache(), SMGCacheAware(), Dynamo(), Preble(), LMetric(), Bailian(), SMetric(), SMetricFigure(), Oracle(),
	}
}

// With one replica, and with nobody else up, every router takes it, knowing nothing at all.
func TestOneReplica(t *testing.T) {
	for _, d := range declarations() {
		for _, only := range []policies.ReplicaID{0, 2} {
			r := build(d, nil, policies.Capability{})
			w := newWorld(t, int(only)+1, r)
			for down := range only {
				w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: down})
			}
			for number := range int32(3) {
				u := &policies.Turn{Attempt: 5, Number: number, Prompt: prefix.Prefix{Tokens: 100}}
				if p := w.peek(r, u); p != only {
					t.Errorf("%s: peek %d, want %d", d.Name, p, only)
				}
				if to, _ := r.Route(w.now, w.view(), u); to != only {
					t.Errorf("%s: route %d, want %d", d.Name, to, only)
				}
			}
			w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: only})
			if to, _ := r.Route(w.now, w.view(), &policies.Turn{Prompt: prefix.Prefix{Tokens: 100}}); to != policies.NoReplica {
				t.Errorf("%s: went to %d with nobody up", d.Name, to)
			}
		}
	}
}

// With all replicas equal the tie rule alone decides; and so it does when nothing was ever reported. Over many turns a router
// that draws takes each with the chance that its rule gives it, one that does not takes the first.
func TestAllEqual(t *testing.T) {
	const turns = 3000
	first, each := [4]float64{1}, [4]float64{.25, .25, .25, .25}
	shares := map[string][4]float64{
		"bailian": {1. / 3, 1. / 3, 1. / 3}, // the top 3
		"random":  each, "power-of-two": each, "dynamo": each, "llm-d": each, "aibrix-prefix-cache": each, "sticky-bounded": each, "sticky-least-loaded": each,
		"chwbl": each, // by the content of the prompt, not by the turn
	}
	for _, d := range declarations() {
		for _, reported := range []bool{false, true} {
			r := build(d, nil, policies.Capability{})
			w := newWorld(t, 4, r)
			for i := range policies.ReplicaID(4) {
				w.lease(i, 500)
				if reported {
					w.sample(i, 3, 2)
					w.store(i, 4)
				}
			}
			want, ok := shares[d.Name]
			if !ok {
				want = first
			}
			counts := [4]float64{}
			pairs := [4][4]float64{}
			last := policies.NoReplica
			for a := range policies.AttemptID(turns) {
				u := &policies.Turn{Attempt: 77 + a, Thread: 99, Number: 2, Prompt: prefix.Prefix{Tokens: 100}}
				if d.Name == "chwbl" {
					kept := w.peek(r, u)
					if u.Attempt++; w.peek(r, u) != kept {
						t.Fatalf("chwbl: another turn of the same prompt went elsewhere than to %d", kept)
					}
					u.Prompt.Stream = w.tree.Root()
				}
				got := w.peek(r, u)
				if w.peek(r, u) != got {
					t.Fatalf("%s: the same turn is drawn twice, differently", d.Name)
				}
				counts[got]++
				if last >= 0 {
					pairs[last][got]++
				}
				last = got
			}
			for i, n := range counts {
				if math.Abs(n-want[i]*turns) > 4*math.Sqrt(turns*want[i]*(1-want[i])) {
					t.Errorf("%s, reported %v: %v of %d turns, want shares %v", d.Name, reported, counts, turns, want)
					break
				}
				for k, n := range pairs[i] {
					if p := want[i] * want[k]; math.Abs(n-p*turns) > 4*math.Sqrt(turns*p)+1 {
						t.Errorf("%s, reported %v: %v times %d after %d, want about %.0f", d.Name, reported, n, k, i, p*turns)
					}
				}
			}
		}
	}
}

// A missing signal is not a zero: each case gives the router a view that would win if unknown were idle or empty.
func TestMissingSignals(t *testing.T) {
	for _, c := range []struct {
		d    policies.Declaration
		p    policies.Params
		want policies.ReplicaID
	}{
		{VLLMDP(), nil, 1},
		{LeastPendingTokens(), nil, 1},
		{LeastWork(), nil, 1},
		{LLMD(), nil, 1},
		{LLMD(), policies.Params{"preset": text("precise-prefix"), "running_requests_weight": number(1)}, 1},
		{SMGCacheAware(), nil, 1},
		{SMGCacheAware(), policies.Params{"index": text("events")}, 1},
		{AIBrixPrefixCache(), nil, 1},
		{Dynamo(), nil, 1},
		{StickyBounded(), nil, 1},
		{LMetric(), nil, 1},
		{LMetric(), policies.Params{"batch": text("sample")}, 1},
		{LMetric(), policies.Params{"batch": text("ledger")}, 1},
		{Bailian(), nil, 1},
		{Bailian(), policies.Params{"top_k": number(1)}, 1},
		{Bailian(), policies.Params{"top_k": number(1), "batch": text("sample")}, 1},
		{Bailian(), policies.Params{"form": text("linear")}, 1},
		{SMetric(), nil, 1},
		{SMetric(), policies.Params{"spill": text("lmetric"), "batch": text("sample")}, 1},
		{SMetricFigure(), nil, 1},
	} {
		r := build(c.d, c.p, policies.Capability{})
		w := newWorld(t, 2, r)
		for range 9 {
			w.lease(0, 100) // and replica 0 has never reported
		}
		w.lease(1, 100)
		w.sample(1, 1, 0)
		w.store(1, 1)
		u := &policies.Turn{Thread: 99, Number: 2, Prompt: prefix.Prefix{Stream: w.tree.Root(), Tokens: 100}}
		if got := w.peek(r, u); got != c.want {
			t.Errorf("%s %v: went to %d, want %d", c.d.Name, c.p, got, c.want)
		}
	}
}

// Without KV events a thread's last turn is expected where it went.
func TestHitsWithoutEvents(t *testing.T) {
	w := newWorld(t, 3, nil)
	a := w.lease(2, 4000)
	w.step(policies.Fact{Kind: policies.Finished, Attempt: a, OutputTokens: 100})
	u := &policies.Turn{Attempt: 50, Thread: policies.ThreadID(a), Number: 2, Prompt: prefix.Prefix{Stream: 1, Tokens: 4500}}
	hits := make([]int32, 3)
	w.view().EstimateHits(u, hits)
	if d := cmp.Diff([]int32{0, 0, 4100}, hits); d != "" {
		t.Error(d)
	}
	w.view().AllHitTokens(u.Prompt, hits)
	if d := cmp.Diff([]int32{-1, -1, -1}, hits); d != "" {
		t.Error(d)
	}
	for _, d := range []policies.Declaration{LMetric(), SMetric(), SMetricFigure(), Bailian()} {
		if got := w.peek(build(d, nil, policies.Capability{}), u); got != 2 {
			t.Errorf("%s: went to %d, want 2", d.Name, got)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, d := range declarations() {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", d.Name, n), func(b *testing.B) {
				r := build(d, nil, policies.Capability{PrefillTokensPerSec: 20000, AttentionDoubling: 7000})
				w := newWorld(nil, n, r)
				for i := range policies.ReplicaID(n) {
					w.lease(i, 500)
					w.sample(i, 3, 2)
					w.store(i, int32(100+i%50))
				}
				u := &policies.Turn{Attempt: 77, Thread: 99, Number: 2, Prompt: prefix.Prefix{Tokens: 4000}}
				b.ReportAllocs()
				for b.Loop() {
					r.Route(w.now, w.view(), u)
				}
			})
		}
	}
}
