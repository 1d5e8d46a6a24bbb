package policies_test

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/routing"
	"github.com/sluice-sim/sluice/prefix"
)

// TestANumberThatIsUsedAgainHasNoPast runs a thread on replica 0, ends it and lets another thread have its number while
// replica 0 is busy: it must be placed as a new one by every router that remembers threads or sessions.
func TestANumberThatIsUsedAgainHasNoPast(t *testing.T) {
	for _, d := range []policies.Declaration{routing.Sticky(), routing.StickyLeastLoaded(), routing.StickyBounded()} {
		tree := &prefix.Tree{}
		for range 3 {
			tree.Root()
		}
		c := policies.NewController(policies.ControllerConfig{
			Tree: tree, Replicas: 2, Gate: none(), Router: d.NewRouter(policies.Env{}, d.Resolve(nil)),
		})
		now := policies.Time(0)
		step := func(facts ...policies.Fact) []policies.Command {
			now += policies.Second
			return c.Step(now, facts, nil)
		}
		arrive := func(a policies.AttemptID, thread policies.ThreadID, number int32) policies.ReplicaID {
			f := turn(a, thread)
			f.Turn.Number, f.Turn.Prompt = number, prefix.Prefix{Stream: prefix.StreamID(a % 3), Tokens: 100}
			out := step(f)
			return out[len(out)-1].Replica
		}
		step(policies.Fact{Kind: policies.ReplicaUp, Replica: 0})
		if r := arrive(1, 0, 1); r != 0 {
			t.Fatalf("%s: the only replica is 0, got %d", d.Name, r)
		}
		end := about(policies.Finished, 1)
		end.OutputTokens = 50
		step(end)
		step(policies.Fact{Kind: policies.ReplicaUp, Replica: 1})
		if v := c.View(); v.LastReplica(0) != 0 || v.History(0) != 150 || v.FinishedTurns(0) != 1 {
			t.Errorf("%s: thread 0 went to %d and left %d tokens in %d turns", d.Name, v.LastReplica(0), v.History(0), v.FinishedTurns(0))
		}
		step(policies.Fact{Kind: policies.ReplicaDraining, Replica: 1})
		arrive(2, 1, 1) // keeps replica 0 busy
		step(policies.Fact{Kind: policies.ReplicaDown, Replica: 1}, policies.Fact{Kind: policies.ReplicaUp, Replica: 1})
		step(policies.Fact{Kind: policies.ThreadFinished, Thread: 0, Session: 0}, policies.Fact{Kind: policies.SessionFinished, Session: 0})
		if r := arrive(3, 0, 1); r != 1 {
			t.Errorf("%s: a new thread under an old number went to %d, where that one was; expected the idle replica", d.Name, r)
		}
		if v := c.View(); v.History(0) != 0 || v.FinishedTurns(0) != 0 {
			t.Errorf("%s: a new thread under an old number begins with %d tokens of %d turns", d.Name, v.History(0), v.FinishedTurns(0))
		}
	}
}
