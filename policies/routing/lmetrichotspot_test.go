package routing

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestHotspotAlarm(t *testing.T) {
	for _, c := range []struct {
		count, recent, holders, replicas int64
		want                             bool
	}{
		{50, 100, 1, 4, true},  // 1 > 1/3
		{25, 100, 1, 4, false}, // 1/3 is not more
		{26, 100, 1, 4, true},
		{75, 100, 3, 4, false},
		{76, 100, 3, 4, true},
		{100, 100, 3, 4, true},  // all of them
		{100, 100, 4, 4, false}, // nobody is left
		{100, 100, 0, 4, false}, // nobody holds it
		{0, 0, 1, 4, false},
	} {
		if got := hotspotAlarm(c.count, c.recent, c.holders, c.replicas); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A prefix that everybody asks for stays on its holder for 2 turns, then one turn goes elsewhere; with two holders it takes
// 4. The plain router never leaves, for the holder has nothing else to do.
func TestHotspotDetector(t *testing.T) {
	for _, on := range []bool{false, true} {
		p := policies.Params{"hotspot_detector": boolean(on), "hotspot_window_turns": number(10)}
		r := build(LMetric(), p, policies.Capability{})
		w := newWorld(t, 4, r)
		w.store(2, 100)
		next := policies.AttemptID(0)
		turn := func() (policies.ReplicaID, policies.Reason) {
			next++
			u := &policies.Turn{Attempt: next, Thread: 9, Prompt: prefix.Prefix{Stream: 0, Tokens: 2000}}
			peeked := w.peek(r, u)
			to, why := r.Route(w.now, w.view(), u)
			if to != peeked {
				t.Errorf("turn %d: peek %d, route %d", next, peeked, to)
			}
			return to, why
		}
		expect := func(to policies.ReplicaID, why policies.Reason) {
			t.Helper()
			if !on {
				to, why = 2, policies.BestScore
			}
			if got, reason := turn(); got != to || reason != why {
				t.Errorf("detector %v, turn %d: %d (%v), want %d (%v)", on, next, got, reason, to, why)
			}
		}
		expect(2, policies.BestScore) // nothing is recent yet
		expect(2, policies.BestScore)
		expect(2, policies.BestScore) // two in a row with alarm
		expect(0, policies.Hotspot)
		expect(2, policies.BestScore) // and from the beginning
		expect(2, policies.BestScore)
		expect(0, policies.Hotspot)
		if !on {
			continue
		}
		w.store(0, 100)
		for range 4 {
			expect(0, policies.BestScore) // the lower of the two holders
		}
		expect(1, policies.Hotspot)
		// Other prefixes drive it out of the window: no alarm.
		for range 10 {
			u := &policies.Turn{Attempt: 999, Thread: 9, Prompt: prefix.Prefix{Stream: w.tree.Root(), Tokens: 2000}}
			if _, why := r.Route(w.now, w.view(), u); why != policies.BestScore {
				t.Errorf("a prefix that nobody holds: %v", why)
			}
		}
		for range 5 {
			expect(0, policies.BestScore)
		}
	}
}

// A class is the content of the first 4 blocks, whatever stream names it.
func TestHotspotClasses(t *testing.T) {
	r := build(LMetric(), policies.Params{"hotspot_detector": boolean(true)}, policies.Capability{}).(*lmetric)
	w := newWorld(t, 2, r)
	root := w.tree.Root()
	late, early := w.tree.Fork(prefix.Prefix{Stream: root, Tokens: 64}), w.tree.Fork(prefix.Prefix{Stream: root, Tokens: 63})
	class := func(s prefix.StreamID) int32 {
		return r.hot.choose(r, w.view(), &policies.Turn{Prompt: prefix.Prefix{Stream: s, Tokens: 500}}).class
	}
	if class(root) != class(late) || class(root) == class(early) {
		t.Errorf("classes %d, %d and %d", class(root), class(late), class(early))
	}
	// With the detector and without, the product is the same.
	g, u := golden(t, nil)
	for _, on := range []bool{false, true} {
		if got := g.peek(build(LMetric(), policies.Params{"hotspot_detector": boolean(on)}, policies.Capability{}), u); got != 3 {
			t.Errorf("detector %v: golden winner %d, want 3", on, got)
		}
	}
}
