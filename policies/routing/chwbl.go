package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Reads the ledger's in-flight counts (F). Keeps nothing: the order of replicas for a key is that of its hashes with them
// (rendezvous), so a replica that leaves moves only its own keys. If nobody is below the bound the first of the order
// takes it. Source: Dynamo's chwbl plugin; SMG, prefix_hash.rs and consistent_hashing.rs; spec: policies 3.2.

// CHWBL declares the router of consistent hashing with bounded loads.
func CHWBL() policies.Declaration {
	return policies.Declaration{
		Name:    "chwbl",
		Doc:     "Consistent hashing with bounded loads: a key goes to the first replica of its own order whose turns in flight are within a factor of the mean, this turn counted; to the very first if none is.",
		Source:  "Dynamo, lib/kv-router; SMG, prefix_hash.rs; spec: policies 3.2",
		Missing: "It reads no signal.",
		Knobs: []policies.Knob{
			{Name: "key", Kind: policies.EnumKnob, Default: policies.Value{Text: "prefix"}, Enum: []string{"prefix", "thread", "session"},
				Doc: "what is hashed: the content of the prompt's first tokens, the thread or the session"},
			{Name: "key_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 256}, Min: 1, Max: 1e9, Unit: "tokens", Doc: "key prefix: how many tokens are hashed"},
			{Name: "load_factor", Kind: policies.FloatKnob, Default: policies.Value{Number: 1.25}, Min: 1, Max: 1e9,
				Doc: "bound, as a multiple of the mean; a huge one is plain consistent hashing"},
		},
		NewRouter: func(e policies.Env, p policies.Params) policies.Router {
			return &chwbl{seed: e.Seed, key: p["key"].Text, tokens: int32(p["key_tokens"].Number), factor: p["load_factor"].Number}
		},
	}
}

type chwbl struct {
	seed   uint64
	key    string
	tokens int32
	factor float64
}

func (*chwbl) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (m *chwbl) Route(_ policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return m.choose(v, t)
}

func (m *chwbl) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	to, _ := m.choose(v, t)
	return to
}

// choose needs no sorted order: the first within the bound is the one with the largest hash among those within it.
func (m *chwbl) choose(v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	up := v.Up()
	total := int64(0)
	for _, r := range up {
		total += int64(v.InFlight(r))
	}
	key := m.keyOf(v, t)
	owner, best := policies.NoReplica, policies.NoReplica
	var ownerHash, bestHash uint64
	for _, r := range up {
		h := exact.Hash2(m.seed, key, uint64(r))
		if owner == policies.NoReplica || h > ownerHash {
			owner, ownerHash = r, h
		}
		if boundFits(int64(v.InFlight(r)), total, len(up), m.factor) && (best == policies.NoReplica || h > bestHash) {
			best, bestHash = r, h
		}
	}
	if best == policies.NoReplica || best == owner {
		return owner, policies.Affinity
	}
	return best, policies.LoadBound
}

// boundFits says whether a replica with inFlight of total turns on n replicas may take one more: F <= factor (total+1)/n.
func boundFits(inFlight, total int64, n int, factor float64) bool {
	return float64(inFlight*int64(n)) <= factor*float64(total+1)
}

func (m *chwbl) keyOf(v *policies.View, t *policies.Turn) uint64 {
	switch m.key {
	case "thread":
		return exact.Hash1(chwblThread, uint64(t.Thread))
	case "session":
		if t.Key != 0 {
			return exact.Hash1(chwblSession, uint64(t.Key))
		}
		return exact.Hash1(chwblSession, uint64(t.Session))
	}
	p := v.Owner(prefix.Prefix{Stream: t.Prompt.Stream, Tokens: min(t.Prompt.Tokens, m.tokens)})
	return exact.Hash2(chwblPrefix, uint64(p.Stream), uint64(p.Tokens))
}

// The kinds of keys, so that a thread and a session of the same number are different keys.
const (
	chwblThread  = 0x7468
	chwblSession = 0x7365
	chwblPrefix  = 0x7072
)
