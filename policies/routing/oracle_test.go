package routing

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/admission"
	"github.com/sluice-sim/sluice/prefix"
)

type fixedOracle []policies.Time

func (o fixedOracle) Completion(_ policies.Time, r policies.ReplicaID, _ *policies.Turn) policies.Time {
	return o[r]
}

func TestOracle(t *testing.T) {
	c := policies.NewController(policies.ControllerConfig{
		Tree: &prefix.Tree{}, Replicas: 4, Gate: admission.None().NewGate(policies.Env{}, nil), Router: oracle{},
		Oracle: fixedOracle{5, 9, 2, 2},
	})
	u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 10}}
	for r := range policies.ReplicaID(4) {
		c.Step(0, []policies.Fact{{Kind: policies.ReplicaUp, Replica: r}}, nil)
	}
	if to, why := (oracle{}).Route(0, c.View(), u); to != 2 || why != policies.Predicted {
		t.Errorf("went to %d %v, want 2", to, why)
	}
	c.Step(0, []policies.Fact{{Kind: policies.ReplicaDown, Replica: 2}}, nil)
	if to := (oracle{}).Peek(0, c.View(), u); to != 3 {
		t.Errorf("went to %d, want 3", to)
	}
}

// Without an oracle the fewest turns in flight decide, the lowest replica on a tie.
func TestOracleWithoutAnOracle(t *testing.T) {
	w := newWorld(t, 4, nil)
	for r, n := range []int{3, 2, 1, 1} {
		for range n {
			w.lease(policies.ReplicaID(r), 100)
		}
	}
	u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 10}}
	r := build(Oracle(), nil, policies.Capability{})
	for _, want := range []policies.ReplicaID{2, 3, 1, 0, policies.NoReplica} {
		p := w.peek(r, u)
		if to, why := r.Route(w.now, w.view(), u); p != want || to != want || why != policies.LeastLoaded {
			t.Errorf("went to %d (%v, peek %d), want %d", to, why, p, want)
		}
		if want != policies.NoReplica {
			w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: want})
		}
	}
}
