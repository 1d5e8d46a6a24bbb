package routing

import (
	"math"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestGoldenDynamo(t *testing.T) {
	for _, c := range []struct {
		p      policies.Params
		costs  [4]float64
		winner policies.ReplicaID
	}{
		{nil, [4]float64{2575, 2875, 5875, 2500}, 3},
		{policies.Params{"overlap_decay": number(1)}, [4]float64{2575, 3045.5, 6423.1, 2500}, 3},
		{policies.Params{"overlap_score_credit": number(0)}, [4]float64{2700, 4750, 8250, 2500}, 3},
		{policies.Params{"overlap_score_credit": number(20)}, [4]float64{200, 2000, 5000, 2500}, 0}, // credit beyond the prefill is lost
		{policies.Params{"prefill_load_scale": number(10)}, [4]float64{23950, 10750, 13750, 25000}, 1},
		{policies.Params{"request_weight": number(100)}, [4]float64{2675, 3075, 6075, 2500}, 3}, // 1, 2, 2, 0 in flight
	} {
		w, u := golden(t, nil)
		r := build(Dynamo(), c.p, policies.Capability{}).(*dynamo)
		for i, want := range c.costs {
			if got := r.cost.of(w.view(), u, policies.ReplicaID(i), goldenC[i], 0); math.Abs(got-want) > .05 {
				t.Errorf("%v: cost of %d is %.2f, want %.1f", c.p, i, got, want)
			}
		}
		if got, why := r.Route(w.now, w.view(), u); got != c.winner || why != policies.BestScore {
			t.Errorf("%v: winner %d (%v), want %d", c.p, got, why, c.winner)
		}
	}
}

// The decay is relative to the least pending replica, not to nothing.
func TestDynamoDecayIsRelativeToTheLeast(t *testing.T) {
	for _, c := range []struct {
		delta          float64
		beyond, prompt int64
		want           float64
	}{{0, 1000, 10, 1}, {1, 0, 10, 1}, {1, 10, 10, .5}, {2, 5, 10, .5}, {3, 30, 30, .25}} {
		if got := overlapDecay(c.delta, c.beyond, c.prompt); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	w := newWorld(t, 2, nil)
	w.lease(0, 1600)
	w.lease(1, 1600)
	w.store(0, 10)
	r := build(Dynamo(), policies.Params{"overlap_decay": number(1000)}, policies.Capability{})
	if got := w.peek(r, &policies.Turn{Prompt: prefix.Prefix{Tokens: 160}}); got != 0 {
		t.Errorf("went to %d, want 0: as much is pending everywhere, so its credit is whole", got)
	}
	u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 161}}
	if s := r.(policies.Scored).Scores(w.now, w.view(), u, nil); s[0].Score != (1600+161)/16.-10 || s[1].Score != (1600+161)/16. {
		t.Errorf("costs %v and %v", s[0].Score, s[1].Score)
	}
}

func TestDynamoDrawsAmongEqualCosts(t *testing.T) {
	w := newWorld(t, 4, nil)
	w.lease(1, 1000)
	r := build(Dynamo(), nil, policies.Capability{})
	counts := make([]int, 4)
	const n = 3000
	for a := range policies.AttemptID(n) {
		u := &policies.Turn{Attempt: a, Prompt: prefix.Prefix{Stream: w.tree.Root(), Tokens: 100}}
		p := w.peek(r, u)
		if to, _ := r.Route(w.now, w.view(), u); to != p {
			t.Fatalf("peek %d, route %d", p, to)
		}
		counts[p]++
	}
	if counts[1] != 0 {
		t.Errorf("%d turns to the more costly replica", counts[1])
	}
	evenly(t, "equal costs", []int{counts[0], counts[2], counts[3]}, n)
}

func TestDynamoTemperature(t *testing.T) {
	const draws = 100000
	for _, c := range []struct {
		costs       []float64
		temperature float64
		want        []float64
	}{
		{[]float64{7, 7}, .1, []float64{.5, .5}},
		{[]float64{10, 20}, 1, []float64{.7311, .2689}},         // e against 1
		{[]float64{100, 200}, 1, []float64{.7311, .2689}},       // relative to their range
		{[]float64{0, 5, 10}, .5, []float64{.6652, .2447, .09}}, // 1, e^-1 and e^-2
		{[]float64{3, 1, 2}, .01, []float64{0, 1, 0}},
	} {
		counts := make([]float64, len(c.costs))
		for i := range draws {
			counts[softmax(append([]float64(nil), c.costs...), c.temperature, (float64(i)+.5)/draws)]++
		}
		for i, want := range c.want {
			if got := counts[i] / draws; math.Abs(got-want) > .0001 {
				t.Errorf("%v at %v: %.4f of %d, want %.4f", c.costs, c.temperature, got, i, want)
			}
		}
	}
	w, u := golden(t, nil)
	r := build(Dynamo(), policies.Params{"temperature": number(.5)}, policies.Capability{})
	counts := make([]int, 4)
	for a := range policies.AttemptID(4000) {
		u.Attempt = a
		p := w.peek(r, u)
		if to, why := r.Route(w.now, w.view(), u); to != p || why != policies.Sampled {
			t.Fatalf("peek %d, route %d (%v)", p, to, why)
		}
		counts[p]++
	}
	// Costs 2575, 2875, 5875, 2500: exp(-x/.5) of .022, .111, 1, 0.
	if counts[3] < counts[0] || counts[0] < counts[1] || counts[1] < counts[2] || counts[2] == 0 {
		t.Errorf("draws %v do not fall with the cost", counts)
	}
}

// Without KV events what was sent counts, for as long as the time to live; what a replica that went down held does not.
func TestDynamoWithoutEvents(t *testing.T) {
	for _, p := range []policies.Params{nil, {"kv_events": boolean(false)}} {
		r := build(Dynamo(), p, policies.Capability{})
		w := newWorld(t, 3, r)
		s := w.tree.Root()
		u := &policies.Turn{Attempt: 1, Prompt: prefix.Prefix{Stream: s, Tokens: 1000}}
		first, _ := r.Route(w.now, w.view(), u)
		w.lease(first, 300) // less than what is resident there is worth
		for _, c := range []struct {
			at   policies.Time
			stay bool
		}{{0, true}, {119, true}, {120, false}} {
			w.now = c.at * policies.Second
			u.Attempt += 100
			if got := w.peek(r, u); (got == first) != c.stay {
				t.Errorf("%v: %d s later it went to %d, first was %d", p, c.at, got, first)
			}
		}
		w.now = 0
		for _, lost := range []policies.FactKind{policies.ReplicaDown, policies.ReplicaRestarted, policies.BlocksCleared} {
			r.(*dynamo).cost.sent(0, w.view(), u, first)
			if got := w.peek(r, u); got != first {
				t.Fatalf("%v: went to %d, want %d, which was sent it", p, got, first)
			}
			r.Observe(0, w.view(), &policies.Fact{Kind: lost, Replica: first})
			if got := w.peek(r, u); got == first {
				t.Errorf("%v: went back to %d, which has lost everything and has more to do (fact %d)", p, got, lost)
			}
		}
	}
	// A replica that says what it holds is believed, one that says nothing is not thought empty.
	r := build(Dynamo(), nil, policies.Capability{})
	w := newWorld(t, 2, r)
	u := &policies.Turn{Attempt: 1, Prompt: prefix.Prefix{Stream: 0, Tokens: 1000}}
	sent, _ := r.Route(w.now, w.view(), u)
	w.store(1-sent, 1)
	if got := w.peek(r, u); got != sent {
		t.Errorf("went to %d, want %d, which was sent it and sends no events", got, sent)
	}
	w.store(sent, 1)
	w.store(1-sent, 2)
	if got := w.peek(r, u); got != 1-sent {
		t.Errorf("went to %d, want %d, which says that it holds more", got, 1-sent)
	}
}

func TestStickyBounded(t *testing.T) {
	r := build(StickyBounded(), nil, policies.Capability{})
	w := newWorld(t, 4, r)
	u := &policies.Turn{Attempt: 1, Thread: 0, Prompt: prefix.Prefix{Stream: 0, Tokens: 100}}
	route := func(want policies.ReplicaID, why policies.Reason) policies.ReplicaID {
		t.Helper()
		u.Attempt++
		p := w.peek(r, u)
		to, got := r.Route(w.now, w.view(), u)
		if got != why || p != to || want != policies.NoReplica && to != want {
			t.Errorf("went to %d (%v, peek %d), want %d (%v)", to, got, p, want, why)
		}
		return to
	}
	home := route(policies.NoReplica, policies.FirstPlacement)
	route(home, policies.Affinity)
	for r := range policies.ReplicaID(4) {
		for range 4 {
			w.lease(r, 1)
		}
	}
	w.lease(home, 1)
	route(home, policies.Affinity) // 5 <= 1.25 x 17/4 = 5.3
	w.lease(home, 10000)
	next := route(policies.NoReplica, policies.LoadBound) // 6 > 1.25 x 18/4 = 5.6: the cost decides
	if next == home {
		t.Error("stayed where there is more to do than what is resident is worth")
	}
	route(next, policies.Affinity)
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: next})
	route(policies.NoReplica, policies.HomeLost)
}

func TestStickyLeastLoaded(t *testing.T) {
	r := build(StickyLeastLoaded(), nil, policies.Capability{})
	w := newWorld(t, 4, r)
	route := func(thread policies.ThreadID, a policies.AttemptID) (policies.ReplicaID, policies.Reason) {
		u := &policies.Turn{Attempt: a, Thread: thread, Prompt: prefix.Prefix{Tokens: 10}}
		p := w.peek(r, u)
		to, why := r.Route(w.now, w.view(), u)
		if p != to {
			t.Errorf("peek %d, route %d", p, to)
		}
		return to, why
	}
	// First turns draw among the fewest in flight.
	w.lease(2, 1)
	counts := make([]int, 4)
	const n = 3000
	for i := range int32(n) {
		to, why := route(policies.ThreadID(i), policies.AttemptID(i))
		counts[to]++
		if why != policies.FirstPlacement {
			t.Fatalf("thread %d: %v", i, why)
		}
	}
	if counts[2] != 0 {
		t.Errorf("%d threads on the more loaded replica", counts[2])
	}
	evenly(t, "first turns", []int{counts[0], counts[1], counts[3]}, n)
	// Then nothing but idleness or a loss moves a thread.
	home, _ := r.(*stickyLeastLoaded).places.get(0, 5)
	for range 9 {
		w.lease(home, 1)
	}
	for _, c := range []struct {
		at  policies.Time
		why policies.Reason
	}{{14399, policies.Affinity}, {28798, policies.Affinity}, {43198, policies.FirstPlacement}} {
		w.now = c.at * policies.Second
		to, why := route(5, 9999)
		if why != c.why || (to == home) != (why == policies.Affinity) {
			t.Errorf("at %d s: %d (%v), home %d", c.at, to, why, home)
		}
	}
	home, _ = r.(*stickyLeastLoaded).places.get(w.now, 5)
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: home})
	if to, why := route(5, 10000); why != policies.HomeLost || to == home {
		t.Errorf("after its replica was lost: %d (%v)", to, why)
	}
}
