package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// llmdPicker takes one of the candidates by their sums.
type llmdPicker struct {
	kind string
	seed uint64
	ties ties[int64]
}

// llmdDraw parts these draws from others with the same seed.
const llmdDraw = 0x6c6c6d64

// reason is why a replica was taken.
func (p *llmdPicker) reason() policies.Reason {
	if p.kind == pickMaxScore {
		return policies.BestScore
	}
	return policies.Sampled
}

func (p *llmdPicker) pick(candidates []policies.ReplicaID, totals []int64, a policies.AttemptID) policies.ReplicaID {
	if p.kind == pickWeightedRandom {
		if to := p.weighted(candidates, totals, a); to != policies.NoReplica {
			return to
		}
	}
	p.ties.reset()
	for _, r := range candidates {
		score := int64(0) // random, or no sum is above 0
		if p.kind == pickMaxScore {
			score = -totals[r]
		}
		p.ties.offer(r, score)
	}
	return p.ties.draw(p.seed, llmdDraw, a)
}

// weighted draws a candidate with a chance in proportion to its sum; none if all are 0. (The original gives each candidate
// the key u^(1/sum) for a uniform u of its own and takes the largest, which gives the same chances.)
func (p *llmdPicker) weighted(candidates []policies.ReplicaID, totals []int64, a policies.AttemptID) policies.ReplicaID {
	sum := int64(0)
	for _, r := range candidates {
		sum += weightOf(totals[r])
	}
	if sum == 0 {
		return policies.NoReplica
	}
	u := exact.UniformInt(exact.Hash2(p.seed, llmdDraw, uint64(a)), sum)
	for _, r := range candidates {
		if u -= weightOf(totals[r]); u < 0 {
			return r
		}
	}
	return policies.NoReplica // not reached: u is below the sum
}

// weightOf is a sum in units of 1e-8, so that those of any number of replicas can be added.
func weightOf(total int64) int64 { return total / 10_000 }
