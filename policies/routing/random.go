package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// Reads and keeps nothing. It draws by a hash of the seed and the attempt. Source: elementary; spec: policies 3.1.

// Random declares the router that draws a replica.
func Random() policies.Declaration {
	return policies.Declaration{
		Name:    "random",
		Doc:     "Draws one of the replicas that are up, each with the same chance.",
		Source:  "elementary; spec: policies 3.1",
		Missing: "It reads no signal.",
		NewRouter: func(e policies.Env, _ policies.Params) policies.Router {
			return random{e.Seed}
		},
	}
}

type random struct{ seed uint64 }

func (random) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (m random) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return m.Peek(now, v, t), policies.Sampled
}

func (m random) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	up := v.Up()
	if len(up) == 0 {
		return policies.NoReplica
	}
	return up[exact.UniformInt(exact.Hash2(m.seed, randomDraw, uint64(t.Attempt)), int64(len(up)))]
}

// randomDraw parts these draws from others with the same seed.
const randomDraw = 0x72616e646f6d
