package routing

import "github.com/sluice-sim/sluice/policies"

// Reads the ledger's in-flight counts (F). Keeps nothing. Ties go to the lowest replica.
// Source: verl's load balancer without its sticky map; spec: policies 3.1 (JSQ on F).

// LeastRequests declares the router that takes the replica with the fewest requests in flight.
func LeastRequests() policies.Declaration {
	return policies.Declaration{
		Name:      "least-requests",
		Doc:       "Takes the replica with the fewest turns in flight by the router's own count; lowest replica on a tie.",
		Source:    "elementary; spec: policies 3.1",
		Missing:   "It reads no signal.",
		NewRouter: func(policies.Env, policies.Params) policies.Router { return leastRequests{} },
	}
}

type leastRequests struct{}

func (leastRequests) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (leastRequests) Route(_ policies.Time, v *policies.View, _ *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return v.LeastInFlight(), policies.LeastLoaded
}

func (leastRequests) Peek(_ policies.Time, v *policies.View, _ *policies.Turn) policies.ReplicaID {
	return v.LeastInFlight()
}
