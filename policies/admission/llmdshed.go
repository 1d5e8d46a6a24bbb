package admission

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// shedding refuses sheddable turns, those of classes above 0, on arrival. (In the original a priority is below 0; class c is
// taken to be priority -c.)
type shedding struct {
	flowControl   bool // turns are queued; if not, the older rule holds
	probabilistic bool
	factor        float64
	seed          uint64
}

// refuses says whether the turn is refused.
func (s *shedding) refuses(now policies.Time, v *policies.View, d *detector, t *policies.Turn) bool {
	if t.Class <= 0 {
		return false
	}
	if s.probabilistic && s.draws(shedChance(s.factor, d.roofline(v)), t.Attempt) {
		return true
	}
	return !s.flowControl && d.saturation(now, v) >= 1
}

func (s *shedding) draws(chance float64, a policies.AttemptID) bool {
	return exact.Uniform(exact.Hash2(s.seed, shedDraw, uint64(a))) < chance
}

// shedDraw parts these draws from others with the same seed.
const shedDraw = 0x73686564

// shedChance is with what chance a sheddable turn is refused.
func shedChance(factor, saturation float64) float64 {
	square := float64(saturation * saturation)
	return min(1, float64(float64(square*square)*saturation*factor))
}
