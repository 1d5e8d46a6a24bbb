package policies_test

import (
	"testing"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/routing"
	"github.com/sluice-sim/sluice/prefix"
)

// TestLeakedLeasesDrawTrafficToARestartedReplica is acceptance case AC09 at the core, from vllm-project/router issue 215: four
// replicas, clients cancel 2 % of their turns, and where releases are lost the end of a cancelled turn is never reported,
// so its count stays. Replica 0 restarts: its counts go back to zero, the others keep what leaked, and the router that
// takes the fewest in flight sends at least nine tenths of the new threads there. Without the leak it gets at most 1.5 times its
// share. The audit names the leak: leases that live when nothing runs.
func TestLeakedLeasesDrawTrafficToARestartedReplica(t *testing.T) {
	for _, leak := range []bool{false, true} {
		tree := &prefix.Tree{}
		tree.Root()
		c := policies.NewController(policies.ControllerConfig{
			Tree: tree, Replicas: 4, Gate: none(), Router: routing.LeastRequests().NewRouter(policies.Env{}, nil),
		})
		c.Step(0, upAll(4), nil)
		l := &leaky{c: c, leak: leak}
		for range 4000 {
			l.turn()
		}
		leaked := l.leaked
		c.Step(l.now, []policies.Fact{{Kind: policies.ReplicaRestarted, Replica: 0}}, nil)
		l.restarted()
		l.sent = [4]int{}
		for range 400 {
			l.turn()
		}
		share := float64(l.sent[0]) / 400
		if leak && share < .9 || !leak && share > 1.5/4 {
			t.Errorf("leak %v: the restarted replica gets %.3f of the new threads", leak, share)
		}
		l.end()
		a := c.Audit()
		if a.Admitted != a.Finished+a.Failed+a.Cancelled+a.Live {
			t.Errorf("leak %v: leases are not conserved: %+v", leak, a)
		}
		if want := l.leaked - l.forgotten; a.Live != want || leak != (want > 0) || leak && leaked < 40 {
			t.Errorf("leak %v: %d leases live though nothing runs, expected %d: %+v", leak, a.Live, want, a)
		}
		var live int64
		c.Leases(func(le *policies.Lease) {
			live++
			if !le.Cancelled {
				t.Errorf("leak %v: lease %d was not cancelled and lives", leak, le.Attempt)
			}
		})
		if live != a.Live {
			t.Errorf("leak %v: %d leases named, %d live", leak, live, a.Live)
		}
	}
}

// leaky keeps eight turns running, each of a new thread, and loses the releases of those that are cancelled.
type leaky struct {
	c       *policies.Controller
	leak    bool
	now     policies.Time
	next    policies.AttemptID
	running []policies.Command
	lost    [4]int64 // releases, by replica
	sent    [4]int

	leaked, forgotten int64
}

func (l *leaky) turn() {
	l.next++
	l.now += policies.Second
	out := l.c.Step(l.now, []policies.Fact{turn(l.next, policies.ThreadID(l.next))}, nil)
	to := out[len(out)-1]
	l.sent[to.Replica]++
	l.running = append(l.running, to)
	if len(l.running) > 8 {
		l.finish(l.running[0])
		l.running = l.running[1:]
	}
}

func (l *leaky) finish(x policies.Command) {
	facts := []policies.Fact{about(policies.Finished, x.Attempt)}
	if exact.Uniform(exact.Hash1(1, uint64(x.Attempt))) < .02 {
		facts = []policies.Fact{about(policies.ClientGone, x.Attempt), about(policies.Failed, x.Attempt)}
		if l.leak {
			facts = facts[:1]
			l.leaked++
			l.lost[x.Replica]++
		}
	}
	l.c.Step(l.now, facts, nil)
}

// restarted forgets what was on replica 0.
func (l *leaky) restarted() {
	l.forgotten += l.lost[0]
	var left []policies.Command
	for _, x := range l.running {
		if x.Replica != 0 {
			left = append(left, x)
		}
	}
	l.running = left
}

func (l *leaky) end() {
	for _, x := range l.running {
		l.finish(x)
	}
}
