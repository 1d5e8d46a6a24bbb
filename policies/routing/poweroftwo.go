package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// Reads the ledger's in-flight counts (F). Keeps nothing. It draws by hashes of the seed and the attempt; a tie goes to
// the one drawn first. Source: elementary; spec: policies 3.1.

// PowerOfTwo declares the router that takes the less loaded of two replicas that it draws.
func PowerOfTwo() policies.Declaration {
	return policies.Declaration{
		Name:    "power-of-two",
		Doc:     "Draws two different replicas and takes the one with fewer turns in flight by the router's own count; the first drawn on a tie.",
		Source:  "elementary; spec: policies 3.1",
		Missing: "It reads no signal.",
		NewRouter: func(e policies.Env, _ policies.Params) policies.Router {
			return powerOfTwo{e.Seed}
		},
	}
}

type powerOfTwo struct{ seed uint64 }

func (powerOfTwo) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (m powerOfTwo) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return m.Peek(now, v, t), policies.LeastLoaded
}

func (m powerOfTwo) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	up := v.Up()
	switch len(up) {
	case 0:
		return policies.NoReplica
	case 1:
		return up[0]
	}
	i, j := twoOf(m.seed, t.Attempt, int64(len(up)))
	if first, second := up[i], up[j]; v.InFlight(first) > v.InFlight(second) {
		return second
	}
	return up[i]
}

// twoOf draws two different numbers below n, which is at least 2; all ordered pairs have the same chance.
func twoOf(seed uint64, a policies.AttemptID, n int64) (first, second int64) {
	first = exact.UniformInt(exact.Hash3(seed, powerOfTwoDraw, uint64(a), 0), n)
	second = exact.UniformInt(exact.Hash3(seed, powerOfTwoDraw, uint64(a), 1), n-1)
	if second >= first {
		second++
	}
	return first, second
}

// powerOfTwoDraw parts these draws from others with the same seed.
const powerOfTwoDraw = 0x7477
