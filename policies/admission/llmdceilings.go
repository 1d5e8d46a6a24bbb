package admission

import (
	"math"

	"github.com/sluice-sim/sluice/policies"
)

// ceilings says for each band from which saturation on none of its turns goes. The first band's rank is 0.
type ceilings struct {
	kind     string
	max, min float64

	// For the reflective ones, which open and close with the cycles.
	tick   policies.Time // the last cycle that was not run for a turn that is queued
	shut   []bool        // by rank: the last cycle found the saturation too high for the band
	calls  []int64       // by rank: how many cycles did
	period int64         // in cycles, at the last cycle: how often such a band opens; 0 for never
}

// at is the ceiling of the band of a rank among n.
func (c *ceilings) at(rank, n int) float64 {
	switch c.kind {
	case ceilingHoldback:
		if n > 1 {
			return c.max - float64(float64(rank)*(c.max-c.min)/float64(n-1))
		}
	case ceilingReflective:
		if !c.shut[rank] || c.period > 0 && c.calls[rank]%c.period == 0 {
			return 1
		}
		return 0
	}
	return c.max
}

// due says whether a cycle would be one of the original's: it runs one each millisecond, and one for each turn that is
// queued. Only the reflective ceilings can tell.
func (c *ceilings) due(now policies.Time, queued bool) bool {
	return c.kind != ceilingReflective || queued || now-c.tick >= cycleTime
}

// advance takes in a cycle of n bands at a saturation, and those before it that were not run because they would not have let
// a turn go: of these the saturation is taken to be that of the cycle before.
func (c *ceilings) advance(now policies.Time, saturation float64, n int, queued bool) {
	if c.kind != ceilingReflective {
		return
	}
	for len(c.shut) < n {
		c.shut, c.calls = append(c.shut, false), append(c.calls, 0)
	}
	ticks := int64((now - c.tick) / cycleTime)
	c.tick += policies.Time(ticks) * cycleTime
	skipped := ticks
	if !queued {
		skipped-- // the last of them is this one
	}
	for i := range c.shut {
		if c.shut[i] && c.period > 0 {
			c.calls[i] += skipped
		}
		c.shut[i] = i > 0 && saturation >= reflected(saturation, i, n)
	}
	c.period = reflectedPeriod(saturation)
	for i := range c.shut {
		if c.shut[i] && c.period > 0 {
			c.calls[i]++
		}
	}
}

// reflected is the saturation from which on the band of a rank among n opens only now and then.
func reflected(saturation float64, rank, n int) float64 {
	return 1 - float64(float64(rank)*saturation/float64(n-1))
}

// reflectedPeriod is of how many cycles one finds such a band open; 0 for none.
func reflectedPeriod(saturation float64) int64 {
	if saturation >= 1 {
		return 0
	}
	return int64(max(1, math.Round(saturation/(1-saturation+1e-9))))
}

// opens is when a band that is shut now and then opens next if the saturation stays; Never if there is none.
func (c *ceilings) opens() policies.Time {
	next := policies.Never
	for i, shut := range c.shut {
		if shut && c.period > 0 {
			next = min(next, c.tick+policies.Time(c.period-c.calls[i]%c.period)*cycleTime)
		}
	}
	return next
}
