// Package routing holds the routers: where a turn goes. One router is one file. Every file says first what it reads,
// what it keeps, how it breaks ties and where it comes from.
package routing

import "github.com/sluice-sim/sluice/policies"

// Reads nothing but which replicas are up. Keeps a counter. No ties.
// Source: elementary; spec: policies 3.1.

// RoundRobin declares the router that takes the replicas in turn.
func RoundRobin() policies.Declaration {
	return policies.Declaration{
		Name:      "round-robin",
		Doc:       "Takes the replicas that are up in turn, by a counter modulo their number.",
		Source:    "elementary; spec: policies 3.1",
		Missing:   "It reads no signal.",
		NewRouter: func(policies.Env, policies.Params) policies.Router { return &roundRobin{} },
	}
}

type roundRobin struct{ count uint64 }

func (*roundRobin) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (r *roundRobin) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to := r.Peek(now, v, t)
	r.count++
	return to, policies.InTurn
}

func (r *roundRobin) Peek(_ policies.Time, v *policies.View, _ *policies.Turn) policies.ReplicaID {
	up := v.Up()
	if len(up) == 0 {
		return policies.NoReplica
	}
	return up[r.count%uint64(len(up))]
}
