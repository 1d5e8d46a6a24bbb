package retention

import (
	"slices"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// Reads arrivals, first tokens and ends of turns, and the prefill rate of the replica. Keeps the most recent tool gaps
// and the mean delay of turns that had lost their content. Ties go to the shorter time.
// Source: Continuum, arXiv 2511.02230; spec: policies C2. The tools are not told apart, since traces do not name them,
// and a gateway cannot know a session's last turn, which the paper never pins.

// Continuum declares the policy that pins for the time whose expected gain is largest.
func Continuum() policies.Declaration {
	return policies.Declaration{
		Name:    "continuum",
		Doc:     "Pins the content of a finished turn for tau, the tool time t that maximises P(tool done by t) x (queue delay x eta + reload time) - t.",
		Source:  "arXiv 2511.02230; spec: policies C2",
		Missing: "Without a known prefill rate reloading counts as free. The engine must be able to pin; stock vLLM cannot.",
		Omits:   "tools are not told apart, since traces do not name them; a session's last turn, which the paper never pins, is not known beforehand; and pinned sessions do not jump the engine's queue.",
		Knobs: []policies.Knob{
			{Name: "samples", Kind: policies.IntKnob, Default: policies.Value{Number: 100}, Min: 0, Max: 1000, Unit: "gaps",
				Doc: "up to this many observed tool gaps the law of gaps is taken as exponential with mean 1 s"},
			{Name: "eta", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1000,
				Doc: "weight of the queue delay that a turn without its content suffers"},
		},
		NewRetention: func(e policies.Env, p policies.Params) policies.Retention {
			return &continuum{samples: int(p["samples"].Number), eta: p["eta"].Number, capability: e.Capability}
		},
	}
}

// recentGaps is how many tool gaps are remembered.
const recentGaps = 1000

type continuum struct {
	samples    int
	eta        float64
	capability policies.Capability

	gaps   []policies.Time // sorted
	recent []policies.Time // in order of observation, a ring
	oldest int

	threads []lastTurn
	delays  policies.Time // sum over the follow-ups that had lost their content
	lost    int64
}

// lastTurn is where a thread stands; moments are one more than the time, 0 for none.
type lastTurn struct{ ended, arrived policies.Time }

func (c *continuum) thread(t policies.ThreadID) *lastTurn {
	for int(t) >= len(c.threads) {
		c.threads = append(c.threads, lastTurn{})
	}
	return &c.threads[t]
}

func (c *continuum) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	switch f.Kind {
	case policies.TurnArrived:
		x := c.thread(f.Thread)
		if x.ended > 0 && f.Turn.Retry == 0 {
			c.note(now + 1 - x.ended)
		}
		x.arrived = now + 1
	case policies.FirstToken:
		x := c.thread(f.Thread)
		if x.ended > 0 && x.arrived > 0 && 2*f.HitTokens < v.History(f.Thread) {
			own := policies.Time(reload(c.capability, f.PromptTokens-f.HitTokens) * float64(policies.Second))
			c.delays += max(now+1-x.arrived-own, 0)
			c.lost++
		}
		x.ended = 0
	case policies.ThreadFinished:
		*c.thread(f.Thread) = lastTurn{}
	}
}

// note takes a tool gap in; the oldest of the remembered ones goes.
func (c *continuum) note(gap policies.Time) {
	if len(c.recent) < recentGaps {
		c.recent = append(c.recent, gap)
	} else {
		old, _ := slices.BinarySearch(c.gaps, c.recent[c.oldest])
		c.gaps = slices.Delete(c.gaps, old, old+1)
		c.recent[c.oldest] = gap
		c.oldest = (c.oldest + 1) % recentGaps
	}
	at, _ := slices.BinarySearch(c.gaps, gap)
	c.gaps = slices.Insert(c.gaps, at, gap)
}

func (c *continuum) Keep(now policies.Time, _ *policies.View, f *policies.Fact) policies.Time {
	c.thread(f.Thread).ended = now + 1
	delay := 0.0
	if c.lost > 0 {
		delay = float64(c.delays) / float64(c.lost) / float64(policies.Second)
	}
	benefit := float64(delay*c.eta) + reload(c.capability, f.PromptTokens+f.OutputTokens)
	if len(c.gaps) <= c.samples {
		return now + priorTau(benefit)
	}
	return now + tau(c.gaps, benefit)
}

// reload is the time in seconds to compute n tokens anew, attention included; 0 where the replica's rate is unknown.
func reload(c policies.Capability, n int32) float64 {
	if c.PrefillTokensPerSec <= 0 || n <= 0 {
		return 0
	}
	t := float64(n) / c.PrefillTokensPerSec
	if c.AttentionDoubling > 0 {
		// The rate is that of a cold prompt of 8,192 tokens.
		t = float64(t * (1 + float64(n)/float64(2*c.AttentionDoubling)) / (1 + 8192/float64(2*c.AttentionDoubling)))
	}
	return t
}

// priorTau is tau where gaps are exponential with mean 1 s: the derivative of (1 - exp(-t)) B - t is 0 at ln B.
func priorTau(benefit float64) policies.Time {
	if benefit <= 1 {
		return 0
	}
	return policies.Time(exact.Log(benefit) * float64(policies.Second))
}

// tau is the observed gap, or 0, with the largest P(gap <= tau) x benefit - tau; the shortest of equals. gaps is sorted
// and not empty.
func tau(gaps []policies.Time, benefit float64) policies.Time {
	best, most := policies.Time(0), 0.0
	n := float64(len(gaps))
	for i, t := range gaps {
		if i+1 < len(gaps) && gaps[i+1] == t {
			continue
		}
		if gain := float64(float64(i+1)/n*benefit) - float64(t)/float64(policies.Second); gain > most {
			best, most = t, gain
		}
	}
	return best
}
