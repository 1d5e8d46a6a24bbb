package admission

import "github.com/sluice-sim/sluice/policies"

// Reads the sampled KV usage of every replica. Keeps the limit on turns in flight. Order: first come, first served.
// Source: the concurrency controllers of RL trainers, which move a limit on requests by KV usage. No constants are
// published; these are ours. spec: policies C1 has the window over sessions.
//
// At every tick the usage decides: below the soft cap the limit rises by the increase, if it was reached since the last
// tick, because a limit that nobody feels has not been tested; at or above the hard cap it is multiplied by the decrease
// and rounded down; in between it stays. A limit that falls below what is in flight takes nothing back: turns run to
// their ends and none follows until the limit is above them.

// AIMDKV declares the gate that moves a limit on turns in flight by KV usage.
func AIMDKV() policies.Declaration {
	return policies.Declaration{
		Name: "aimd-kv",
		Doc: "Bounds the turns in flight by a limit that rises by a constant while KV usage is below the soft cap and falls by a factor when it is at or above the hard cap; " +
			"the others wait in order of arrival.",
		Source:  "RL trainers' concurrency controllers, constants ours; spec: policies C1",
		Needs:   policies.NeedsSamples,
		Missing: "A replica that never reported its usage is left out; while none has, the limit stays as it is.",
		Knobs: []policies.Knob{
			{Name: "soft_usage", Kind: policies.FloatKnob, Default: policies.Value{Number: .70}, Min: 0, Max: 10, Unit: "fraction",
				Doc: "usage below which the limit rises"},
			{Name: "hard_usage", Kind: policies.FloatKnob, Default: policies.Value{Number: .90}, Min: 0, Max: 10, Unit: "fraction",
				Doc: "usage from which on the limit falls, inclusive"},
			{Name: "initial_requests", Kind: policies.IntKnob, Default: policies.Value{Number: 16}, Min: 1, Max: 1e6, Unit: "turns",
				Doc: "the limit at first"},
			{Name: "max_requests", Kind: policies.IntKnob, Default: policies.Value{Number: 1024}, Min: 1, Max: 1e6, Unit: "turns",
				Doc: "the limit never exceeds this"},
			{Name: "increase", Kind: policies.IntKnob, Default: policies.Value{Number: 4}, Min: 0, Max: 1e6, Unit: "turns",
				Doc: "added at a tick below the soft cap"},
			{Name: "decrease", Kind: policies.FloatKnob, Default: policies.Value{Number: .5}, Min: 0, Max: 1, Unit: "fraction",
				Doc: "factor at a tick at or above the hard cap; the limit never falls below 1"},
			{Name: "tick_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 5}, Min: 0.001, Max: 1e6, Unit: "s",
				Doc: "time between two looks at the usage"},
			{Name: "usage", Kind: policies.EnumKnob, Default: policies.Value{Text: "max"}, Enum: []string{"max", "mean"},
				Doc: "whose usage counts: the maximum or the mean over the replicas that are up"},
		},
		NewGate: func(_ policies.Env, p policies.Params) policies.Gate {
			most := int(p["max_requests"].Number)
			return &aimdKV{
				maxRequests: maxRequests{limit: min(int(p["initial_requests"].Number), most)}, most: most,
				soft: p["soft_usage"].Number, hard: p["hard_usage"].Number, increase: int(p["increase"].Number), decrease: p["decrease"].Number,
				ticks: ticker{every: seconds(p["tick_s"].Number)}, mean: p["usage"].Text == "mean",
			}
		},
	}
}

type aimdKV struct {
	maxRequests
	ticks      ticker
	most       int
	increase   int
	soft, hard float64
	decrease   float64
	mean       bool
	felt       bool // the limit was reached since the last tick
}

func (g *aimdKV) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	if f.Kind == policies.Woke && g.ticks.due(now) {
		g.tick(v)
	}
	g.maxRequests.Observe(now, v, f)
}

func (g *aimdKV) tick(v *policies.View) {
	mean, most, ok := sampledUsage(v)
	if g.mean {
		most = mean
	}
	switch {
	case !ok:
	case most >= g.hard:
		g.limit = max(1, int(g.decrease*float64(g.limit)))
	case most < g.soft && g.felt:
		g.limit = min(g.most, g.limit+g.increase)
		g.pass(v)
	}
	g.felt = g.inFlight >= g.limit
}

func (g *aimdKV) Admit(now policies.Time, v *policies.View, t *policies.Turn, p *policies.Probes) policies.Verdict {
	g.ticks.start(now)
	d := g.maxRequests.Admit(now, v, t, p)
	g.felt = g.felt || g.inFlight >= g.limit
	return d
}

func (g *aimdKV) NextWake() policies.Time { return g.ticks.next() }
