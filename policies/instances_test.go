package policies_test

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
)

// TestRestartEndsWhatNobodyReported: leases of a replica whose process is a new one end, and the gate sees them fail.
func TestRestartEndsWhatNobodyReported(t *testing.T) {
	g := &scripted{verdict: admitAll, wake: policies.Never}
	c, _ := newController(2, g)
	step(t, c, 1, join(sent(1, 0, policies.Open), sent(2, 1, policies.Open), sent(3, 0, policies.Open)), up(0), up(1), turn(1, 1), turn(2, 2), turn(3, 3))
	live := func() (n int) {
		c.Leases(func(le *policies.Lease) { n++ })
		return n
	}
	if live() != 3 {
		t.Fatalf("%d live leases, expected 3", live())
	}
	g.observed = nil
	step(t, c, 2, nil, policies.Fact{Kind: policies.ReplicaRestarted, Replica: 0})
	kinds := map[policies.FactKind]int{}
	for _, f := range g.observed {
		kinds[f.Kind]++
	}
	if kinds[policies.Failed] != 2 || kinds[policies.ReplicaRestarted] != 1 {
		t.Errorf("the gate saw %v, expected two failures and the restart", g.observed)
	}
	if a := c.Audit(); a.Live != 1 || a.Failed != 2 || a.Abandoned != 2 || live() != 1 || c.View().InFlight(0) != 0 || c.View().InFlight(1) != 1 {
		t.Errorf("audit %+v", a)
	}
	step(t, c, 3, sent(4, 0, policies.Open), about(policies.Failed, 1), turn(4, 4))
}

// TestInstancesShareNothing: each instance routes by its own ledger, so two of them send their first turns to the same
// replica; a fact about an attempt reaches the one that has it, a fact about a replica all of them.
func TestInstancesShareNothing(t *testing.T) {
	var all []*policies.Controller
	for range 2 {
		c, _ := newController(2, none())
		all = append(all, c)
	}
	x := policies.NewInstances(all, func(s policies.SessionID) int { return int(s) % 2 })
	out := x.Step(1, []policies.Fact{up(0), up(1), turn(1, 1), turn(2, 2), turn(3, 3)}, nil)
	where := map[policies.AttemptID]policies.ReplicaID{}
	for _, c := range out {
		if c.Kind == policies.Dispatch {
			where[c.Attempt] = c.Replica
		}
	}
	if where[1] != 0 || where[2] != 0 || where[3] != 1 {
		t.Errorf("routed to %v, expected 1 and 2 on replica 0 and 3 on replica 1", where)
	}
	x.Step(2, []policies.Fact{about(policies.Finished, 1), about(policies.Failed, 2), about(policies.Finished, 9), about(policies.Finished, 1)}, nil)
	if a := x.Audit(); a.Admitted != 3 || a.Finished != 1 || a.Failed != 1 || a.Live != 1 || a.Ignored != 0 {
		t.Errorf("audit %+v", a)
	}
	var live []policies.AttemptID
	x.Leases(func(le *policies.Lease) { live = append(live, le.Attempt) })
	if len(live) != 1 || live[0] != 3 {
		t.Errorf("live leases %v, expected that of attempt 3", live)
	}
	if x.NextWake() != policies.Never {
		t.Errorf("next wake %d, expected none", x.NextWake())
	}
}
