package routing

import (
	"slices"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// residency is where a router takes its hits from: a replica's KV events, where it may use them and the replica has sent
// any; otherwise the router's own memory of what it sent there.
type residency struct {
	events bool
	sent   *policies.ApproxIndex
	dst    []int32
	known  []int32
	heard  bool // some replica has sent KV events; as of the last hits
}

// hits returns how many leading tokens of p every replica holds. The slice is overwritten by the next call.
func (x *residency) hits(now policies.Time, v *policies.View, p prefix.Prefix) []int32 {
	for len(x.dst) < v.Replicas() {
		x.dst = append(x.dst, 0)
		x.known = append(x.known, 0)
	}
	x.heard = false
	if !x.events {
		x.sent.Hits(now, v, p, x.dst)
		return x.dst
	}
	v.AllHitTokens(p, x.known)
	if slices.Contains(x.known, -1) {
		x.sent.Hits(now, v, p, x.dst)
	}
	for i, h := range x.known {
		if h >= 0 {
			x.dst[i], x.heard = h, true
		}
	}
	return x.dst
}

// observe forgets what a replica held when that is lost.
func (x *residency) observe(f *policies.Fact) {
	if forgets(f) {
		x.sent.Forget(f.Replica)
	}
}

// forgets says whether the replica of f has lost what it held.
func forgets(f *policies.Fact) bool {
	return f.Kind == policies.ReplicaDown || f.Kind == policies.ReplicaRestarted || f.Kind == policies.BlocksCleared
}

// withoutEvents narrows needs by what a knob says of KV events.
func withoutEvents(needs policies.Signals, events func(policies.Params) bool) func(policies.Params) policies.Signals {
	return func(p policies.Params) policies.Signals {
		if events(p) {
			return needs
		}
		return needs &^ policies.NeedsKVEvents
	}
}

// secondsOrNever is a knob's value as a time; never for 0.
func secondsOrNever(s float64) policies.Time {
	if s == 0 {
		return policies.Never
	}
	return policies.Time(s * float64(policies.Second))
}

// blockTokensOf is the size of the cluster's KV blocks in tokens; vLLM's default where it is not known.
func blockTokensOf(e policies.Env) int32 {
	if e.Capability.BlockTokens > 0 {
		return e.Capability.BlockTokens
	}
	return 16
}
