package admission

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// Constants of llm-d's program-aware fairness; spec: policies 3.5.
const (
	serviceShare    = .8
	waitShare       = .2
	serviceHalfLife = 60 * policies.Second
)

// service is what a session has had, as of a moment.
type service struct {
	tokens float64
	at     policies.Time
}

func (s *service) add(now policies.Time, tokens float64) {
	s.tokens = s.now(now) + tokens
	s.at = now
}

// now is the service decayed to a moment.
func (s *service) now(now policies.Time) float64 {
	if s.tokens == 0 {
		return 0
	}
	return float64(s.tokens * exact.Exp2(-float64(now-s.at)/float64(serviceHalfLife)))
}

func (g *saturation) serviceOf(s policies.SessionID) *service {
	for int(s) >= len(g.service) {
		g.service = append(g.service, service{})
	}
	return &g.service[s]
}

// first takes the turn of b that goes first out of its queue; b must have one.
func (g *saturation) first(now policies.Time, b *band) policies.AttemptID {
	best := b.active[0]
	g.prune(b)
	if g.byProgram {
		best = g.leastServed(now, b)
	}
	return b.flows[best].queue.pop().attempt
}

// trim drops the turns that have left from the head of f's queue.
func (g *saturation) trim(f *flow) {
	for f.queue.len() > 0 {
		if _, ok := g.turns[f.queue.front().attempt]; ok {
			return
		}
		f.queue.pop()
	}
}

// prune trims the queues of b and drops those without a turn from its active list.
func (g *saturation) prune(b *band) {
	for i := len(b.active) - 1; i >= 0; i-- {
		f := &b.flows[b.active[i]]
		g.trim(f)
		if f.queue.len() == 0 {
			f.listed = false
			b.active[i] = b.active[len(b.active)-1]
			b.active = b.active[:len(b.active)-1]
		}
	}
}

// leastServed is the active flow with the best score.
func (g *saturation) leastServed(now policies.Time, b *band) int32 {
	var least, most, shortest, longest float64
	for i, s := range b.active {
		had, wait := g.serviceOf(policies.SessionID(s)).now(now), g.headWait(now, b, s)
		if i == 0 {
			least, most, shortest, longest = had, had, wait, wait
		}
		least, most, shortest, longest = min(least, had), max(most, had), min(shortest, wait), max(longest, wait)
	}
	best, score := int32(-1), 0.0
	for _, s := range b.active {
		x := float64(serviceShare*(1-scaled(g.service[s].now(now), least, most))) + float64(waitShare*scaled(g.headWait(now, b, s), shortest, longest))
		if best < 0 || x > score || x == score && s < best {
			best, score = s, x
		}
	}
	return best
}

func (g *saturation) headWait(now policies.Time, b *band, s int32) float64 {
	return float64(now - g.turns[b.flows[s].queue.front().attempt].arrived)
}

// scaled is where x lies between lo and hi, 0 if they are equal.
func scaled(x, lo, hi float64) float64 {
	if hi <= lo {
		return 0
	}
	return (x - lo) / (hi - lo)
}
