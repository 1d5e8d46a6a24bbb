package routing

import "github.com/sluice-sim/sluice/policies"

// Reads exact residency, exact queued work and true output lengths through View.Oracle. Keeps nothing. Ties go to the
// lowest replica.
// Source: a yardstick of ours; spec: decided "Policy defaults".

// Oracle declares the router that knows each replica's completion time.
func Oracle() policies.Declaration {
	return policies.Declaration{
		Name:      "oracle",
		Doc:       "Takes the replica that would finish this turn first, by exact knowledge that only a simulator has. A greedy yardstick, not a bound.",
		Source:    "spec: decided, policy defaults",
		Needs:     policies.NeedsOracle,
		Missing:   "Where there is no oracle it takes the fewest turns in flight.",
		NewRouter: func(policies.Env, policies.Params) policies.Router { return oracle{} },
	}
}

type oracle struct{}

func (oracle) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (o oracle) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	if v.Oracle() == nil {
		return v.LeastInFlight(), policies.LeastLoaded
	}
	return o.Peek(now, v, t), policies.Predicted
}

func (oracle) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	known := v.Oracle()
	if known == nil {
		return v.LeastInFlight()
	}
	best, first := policies.NoReplica, policies.Never
	for _, r := range v.Up() {
		if done := known.Completion(now, r, t); best == policies.NoReplica || done < first {
			best, first = r, done
		}
	}
	return best
}
