package routing

import (
	"cmp"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// ties collects the replicas with the smallest score, in the order in which they are offered.
type ties[S cmp.Ordered] struct {
	least S
	equal []policies.ReplicaID
}

func (x *ties[S]) reset() { x.equal = x.equal[:0] }

func (x *ties[S]) offer(r policies.ReplicaID, score S) {
	switch {
	case len(x.equal) == 0 || score < x.least:
		x.least, x.equal = score, append(x.equal[:0], r)
	case score == x.least:
		x.equal = append(x.equal, r)
	}
}

// draw takes one of them, each with the same chance, by a hash of the seed, of what the draw is for and of the attempt, so
// that one turn's draw does not depend on another's; NoReplica if there are none.
func (x *ties[S]) draw(seed, purpose uint64, a policies.AttemptID) policies.ReplicaID {
	switch len(x.equal) {
	case 0:
		return policies.NoReplica
	case 1:
		return x.equal[0]
	}
	return x.equal[exact.UniformInt(exact.Hash2(seed, purpose, uint64(a)), int64(len(x.equal)))]
}
