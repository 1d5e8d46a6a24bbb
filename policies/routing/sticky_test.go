package routing

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestStickyForgetsTheLeastRecentlyRouted(t *testing.T) {
	r := build(Sticky(), policies.Params{"capacity_threads": number(2)}, policies.Capability{})
	w := newWorld(t, 3, r)
	route := func(thread policies.ThreadID, to policies.ReplicaID, why policies.Reason) {
		t.Helper()
		u := &policies.Turn{Thread: thread, Prompt: prefix.Prefix{Tokens: 10}}
		peeked := w.peek(r, u)
		got, gotWhy := r.Route(w.now, w.view(), u)
		if got != to || gotWhy != why || peeked != to {
			t.Errorf("thread %d: %d %v (peek %d), want %d %v", thread, got, gotWhy, peeked, to, why)
		}
	}
	route(1, 0, policies.FirstPlacement)
	w.lease(0, 10)
	route(2, 1, policies.FirstPlacement)
	w.lease(1, 10)
	route(1, 0, policies.Affinity) // refreshes 1
	route(3, 2, policies.FirstPlacement)
	w.lease(2, 10)
	w.lease(0, 10)
	route(2, 1, policies.FirstPlacement) // was forgotten; now 1 is
	route(3, 2, policies.Affinity)
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: 2})
	route(3, 1, policies.HomeLost)
	w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: 2})
	route(3, 1, policies.Affinity)
	route(1, 1, policies.FirstPlacement)
}

// Homes against an obvious list, oldest first.
func TestHomesAgainstAList(t *testing.T) {
	for capacity := 1; capacity <= 4; capacity++ {
		h := newHomes(capacity)
		type pair struct {
			t policies.ThreadID
			r policies.ReplicaID
		}
		var list []pair
		x := uint32(capacity)
		for range 3000 {
			x = x*1664525 + 1013904223
			thread, r := policies.ThreadID(x>>20%7), policies.ReplicaID(x>>10%5)
			for i := range list {
				if list[i].t == thread {
					list = append(list[:i], list[i+1:]...)
					break
				}
			}
			list = append(list, pair{thread, r})
			if len(list) > capacity {
				list = list[1:]
			}
			h.put(thread, r)
			for q := range policies.ThreadID(7) {
				want, known := policies.NoReplica, false
				for _, p := range list {
					if p.t == q {
						want, known = p.r, true
					}
				}
				if got, ok := h.get(q); ok != known || got != want {
					t.Fatalf("capacity %d, thread %d: %d %v, want %d %v", capacity, q, got, ok, want, known)
				}
			}
		}
	}
}
