package example

import "github.com/sluice-sim/sluice/policies"

// Reads the ledger's prompt tokens in flight and where a thread's last turn went. Keeps nothing. Ties go to the lowest
// replica. Source: the walk-through of how to add a policy.

// FewestTokens declares the router that takes the replica with the fewest prompt tokens in flight, with a head start for
// the replica that the thread used last.
func FewestTokens() policies.Declaration {
	return policies.Declaration{
		Name:    "fewest-tokens",
		Doc:     "Takes the replica with the fewest prompt tokens in flight; the one that the thread used last counts head_start_tokens fewer; lowest replica on a tie.",
		Source:  "the walk-through of how to add a policy",
		Missing: "It reads no signal.",
		Knobs: []policies.Knob{{
			Name: "head_start_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 20_000}, Min: 0, Max: 1e9, Unit: "tokens",
			Doc: "how many tokens more the thread's last replica may have in flight and still be taken",
		}},
		NewRouter: func(_ policies.Env, p policies.Params) policies.Router {
			return &fewestTokens{headStart: int64(p["head_start_tokens"].Number)}
		},
	}
}

type fewestTokens struct {
	headStart int64 // tokens
}

// Observe implements policies.Router. The view has taken the fact in already, and there is nothing else to keep.
func (*fewestTokens) Observe(policies.Time, *policies.View, *policies.Fact) {}

// Route implements policies.Router.
func (f *fewestTokens) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to := f.Peek(now, v, t)
	if to != policies.NoReplica && to == v.LastReplica(t.Thread) {
		return to, policies.Affinity
	}
	return to, policies.LeastLoaded
}

// Peek implements policies.Router: what Route would say, without any side effect.
func (f *fewestTokens) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	best, least := policies.NoReplica, int64(0)
	for _, r := range v.Up() { // ascending, so that the first of equals is the lowest
		tokens := v.PromptTokens(r)
		if r == v.LastReplica(t.Thread) {
			tokens -= f.headStart
		}
		if best == policies.NoReplica || tokens < least {
			best, least = r, tokens
		}
	}
	return best
}
