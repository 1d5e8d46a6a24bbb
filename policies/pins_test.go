package policies_test

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/retention"
	"github.com/sluice-sim/sluice/policies/routing"
	"github.com/sluice-sim/sluice/prefix"
)

// The turns of a thread are pinned until its end; one that finishes after that, of a client that had left, is not, and a thread
// that gets the number is pinned again.
func TestPinsOfThreadsThatEnd(t *testing.T) {
	tree := &prefix.Tree{}
	tree.Root()
	keep := retention.TTL()
	c := policies.NewController(policies.ControllerConfig{
		Tree: tree, Replicas: 1, Gate: none(), Router: routing.LeastRequests().NewRouter(policies.Env{}, nil),
		Retention: keep.NewRetention(policies.Env{}, keep.Resolve(nil)),
	})
	c.Step(0, []policies.Fact{up(0)}, nil)
	over := policies.Fact{Kind: policies.ThreadFinished, Thread: 5}
	for i, x := range []struct {
		fact policies.Fact
		want []policies.CommandKind
	}{
		{turn(1, 5), []policies.CommandKind{policies.Admit, policies.Dispatch}},
		{about(policies.Finished, 1), []policies.CommandKind{policies.Pin}},
		{turn(2, 5), []policies.CommandKind{policies.Admit, policies.Dispatch}},
		{over, []policies.CommandKind{policies.Unpin}},
		{about(policies.Finished, 2), nil},
		{turn(3, 5), []policies.CommandKind{policies.Admit, policies.Dispatch}},
		{about(policies.Finished, 3), []policies.CommandKind{policies.Pin}},
		{over, []policies.CommandKind{policies.Unpin}},
	} {
		out := c.Step(policies.Time(i+1), []policies.Fact{x.fact}, nil)
		same := len(out) == len(x.want)
		for k := range out {
			same = same && out[k].Kind == x.want[k]
		}
		if !same {
			t.Errorf("fact %d: commands %v, want the kinds %v", i, out, x.want)
		}
	}
}
