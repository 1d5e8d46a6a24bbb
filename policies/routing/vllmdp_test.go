package routing

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func TestGoldenVLLMDP(t *testing.T) {
	for i, want := range []int64{3, 8, 21, 0} {
		if got := rankScore(goldenW[i], goldenR[i]); got != want {
			t.Errorf("score of %d is %d, want %d", i, got, want)
		}
	}
	r := build(VLLMDP(), nil, policies.Capability{})
	w, u := golden(t, r)
	if to, why := r.Route(w.now, w.view(), u); to != 3 || why != policies.LeastLoaded {
		t.Errorf("went to %d (%v), want 3", to, why)
	}
	// The dispatch counts 4 on replica 3, so 0 with 3 is next, and then 3 with 4 before 0 with 7.
	for i, want := range []policies.ReplicaID{0, 3, 0, 1, 3} {
		if to, _ := r.Route(w.now, w.view(), u); to != want {
			t.Errorf("dispatch %d went to %d, want %d", i, to, want)
		}
	}
	w.sample(3, 0, 0)
	if to := w.peek(r, u); to != 3 {
		t.Errorf("a sample did not overwrite the local count: %d", to)
	}
}

func TestVLLMDPStartsAtTheClientsShare(t *testing.T) {
	for client, want := range []policies.ReplicaID{0, 2} {
		r := build(VLLMDP(), policies.Params{"client_count": number(2), "client_index": number(float64(client))}, policies.Capability{})
		w := newWorld(t, 4, r)
		if got := w.peek(r, &policies.Turn{Prompt: prefix.Prefix{Tokens: 10}}); got != want {
			t.Errorf("client %d starts at %d, want %d", client, got, want)
		}
	}
}
