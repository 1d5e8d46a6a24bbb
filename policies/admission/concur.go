package admission

import "github.com/sluice-sim/sluice/policies"

// Reads, at every tick, the sampled KV usage and the prefix hits since the last tick. Keeps the window, the active sessions
// in order of activation, the paused ones and the new ones in order of their pause and arrival.
// Source: CONCUR, arXiv 2601.22705; spec: policies C1, papers 3.1 (constants).
//
// Usage is the mean over the replicas that are up, the hit rate is over all their prompt tokens of the tick. Usage below
// low_usage adds increase to the window; usage above high_usage with a hit rate below hit_threshold multiplies it by
// decrease, rounded down; anything else leaves it: high usage with good hits is healthy. The window is 1 at least.
//
// A session is active from its first admitted turn to its end, across tool gaps and with its subagents, unless it is
// paused. Turns that wait when their session ends go without a place. While more are active than the window holds, the most recently activated are above it: their running turns
// finish, no new one starts, and a session without a running turn is paused. Room in the window goes to the session that
// was paused first, then to the new one that came first. The order of resumption and of pauses is ours, the paper leaves
// them open; so are the first window, the tick and max_window, without which an idle night would open the window wide.

// Concur declares CONCUR's window over active sessions.
func Concur() policies.Declaration {
	return policies.Declaration{
		Name: "concur",
		Doc: "Bounds the active sessions by a window that grows while KV usage is low and shrinks when usage is high and prefix hits are few. " +
			"Sessions above the window are paused at their next turn; paused sessions resume before new ones start. Turns that still wait when their session has ended go at once and take no place.",
		Source: "arXiv 2601.22705; spec: policies C1, papers 3.1",
		Needs:  policies.NeedsSamples,
		Missing: "A replica that never reported its usage is left out; while none has, the window stays. " +
			"Without prefix counters, or without a prompt in the tick, the hit rate is unknown and the window does not shrink.",
		Omits: "the tick, the first and the largest window, and who is paused and resumed first are ours: the paper does not say.",
		Knobs: []policies.Knob{
			{Name: "low_usage", Kind: policies.FloatKnob, Default: policies.Value{Number: .2}, Min: 0, Max: 1, Unit: "fraction",
				Doc: "usage below which the window grows"},
			{Name: "high_usage", Kind: policies.FloatKnob, Default: policies.Value{Number: .5}, Min: 0, Max: 1, Unit: "fraction",
				Doc: "usage above which the window shrinks if hits are few"},
			{Name: "hit_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: .2}, Min: 0, Max: 1, Unit: "fraction",
				Doc: "hit rate below which hits are few"},
			{Name: "increase", Kind: policies.IntKnob, Default: policies.Value{Number: 2}, Min: 0, Max: 1e6, Unit: "sessions",
				Doc: "added to the window"},
			{Name: "decrease", Kind: policies.FloatKnob, Default: policies.Value{Number: .5}, Min: 0, Max: 1, Unit: "fraction",
				Doc: "factor of the window"},
			{Name: "tick_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 5}, Min: 0.001, Max: 1e6, Unit: "s",
				Doc: "time between two decisions about the window"},
			{Name: "initial_window", Kind: policies.IntKnob, Default: policies.Value{Number: 8}, Min: 1, Max: 1e6, Unit: "sessions",
				Doc: "the window at first"},
			{Name: "max_window", Kind: policies.IntKnob, Default: policies.Value{Number: 256}, Min: 1, Max: 1e6, Unit: "sessions",
				Doc: "the window never exceeds this"},
		},
		NewGate: func(_ policies.Env, p policies.Params) policies.Gate {
			most := int(p["max_window"].Number)
			return &concur{
				window: min(int(p["initial_window"].Number), most), most: most, increase: int(p["increase"].Number), decrease: p["decrease"].Number,
				low: p["low_usage"].Number, high: p["high_usage"].Number, hits: p["hit_threshold"].Number,
				ticks: ticker{every: seconds(p["tick_s"].Number)},
			}
		},
	}
}

type stage uint8

const (
	unknown stage = iota
	isNew         // waits for its first place
	active
	paused
)

// agent is one session.
type agent struct {
	stage   stage
	held    bool            // it is active and a turn of it may be held
	why     policies.Reason // its next turn goes
	running int32           // turns
}

type concur struct {
	window, most int
	increase     int
	decrease     float64
	low, high    float64
	hits         float64
	ticks        ticker
	counters     hitCounters

	agents    []agent // by session
	active    []policies.SessionID
	paused    fifo[policies.SessionID]
	fresh     fifo[policies.SessionID] // new ones
	unsettled bool
}

func (g *concur) of(s policies.SessionID) *agent {
	for int(s) >= len(g.agents) {
		g.agents = append(g.agents, agent{})
	}
	return &g.agents[s]
}

func (g *concur) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	switch f.Kind {
	case policies.Finished, policies.Failed:
		g.of(f.Session).running--
		g.unsettled = true
	case policies.SessionFinished:
		g.end(v, f.Session)
		g.unsettled = true
	case policies.Woke:
		if g.ticks.due(now) {
			g.tick(v)
			g.unsettled = true
		}
		if g.unsettled {
			g.settle(v)
		}
	}
}

// end takes s out; turns of it that wait go without a place.
func (g *concur) end(v *policies.View, s policies.SessionID) {
	a, same := g.of(s), func(q policies.SessionID) bool { return q == s }
	switch a.stage {
	case active:
		i := g.place(s)
		g.active = append(g.active[:i], g.active[i+1:]...)
	case isNew:
		g.fresh.remove(same)
	case paused:
		g.paused.remove(same)
	}
	*a = agent{running: a.running}
	v.Wake(policies.WakeKey(s), -1)
}

// place is how many sessions were activated before s.
func (g *concur) place(s policies.SessionID) int {
	for i, x := range g.active {
		if x == s {
			return i
		}
	}
	return len(g.active)
}

// tick moves the window.
func (g *concur) tick(v *policies.View) {
	hit, hitKnown := g.counters.rate(v)
	usage, _, ok := sampledUsage(v)
	switch {
	case !ok:
	case usage < g.low:
		g.window = min(g.most, g.window+g.increase)
	case usage > g.high && hitKnown && hit < g.hits:
		g.window = max(1, int(g.decrease*float64(g.window)))
	}
}

// settle pauses the sessions above the window that are between turns, gives room to those that wait for it, and has the
// turns asked that may go now. It runs once all facts of a moment are in.
func (g *concur) settle(v *policies.View) {
	g.unsettled = false
	for i := len(g.active) - 1; i >= g.window; i-- {
		if s := g.active[i]; g.agents[s].running == 0 {
			g.active = append(g.active[:i], g.active[i+1:]...)
			g.agents[s] = agent{stage: paused}
			g.paused.push(s)
		}
	}
	for len(g.active) < g.window && g.next() {
	}
	for i, s := range g.active {
		if i < g.window && g.agents[s].held {
			g.agents[s].held = false
			v.Wake(policies.WakeKey(s), -1)
		}
	}
}

// next activates the first paused session, else the first new one; false if there is none.
func (g *concur) next() bool {
	switch {
	case g.paused.len() > 0:
		g.activate(g.paused.pop())
	case g.fresh.len() > 0:
		g.activate(g.fresh.pop())
	default:
		return false
	}
	return true
}

func (g *concur) activate(s policies.SessionID) {
	a := &g.agents[s]
	a.why = policies.SlotFree
	if a.stage == paused {
		a.why = policies.Resumed
	}
	a.stage, a.held = active, true
	g.active = append(g.active, s)
}

func (g *concur) Admit(now policies.Time, v *policies.View, t *policies.Turn, _ *policies.Probes) policies.Verdict {
	g.ticks.start(now)
	a := g.of(t.Session)
	if v.SessionEnded(t.Session) {
		a.why = policies.SessionOver
		return g.admit(a)
	}
	if a.stage == unknown {
		a.stage = isNew
		if len(g.active) < g.window && g.paused.len() == 0 && g.fresh.len() == 0 {
			g.activate(t.Session)
			return g.admit(a)
		}
		g.fresh.push(t.Session)
		g.unsettled = true
	}
	why := policies.Paused
	switch a.stage {
	case isNew:
		why = policies.NoSlot
	case active:
		if len(g.active) <= g.window || g.place(t.Session) < g.window {
			return g.admit(a)
		}
		a.held = true
		g.unsettled = g.unsettled || a.running == 0
	}
	return policies.Verdict{Kind: policies.VerdictHold, Reason: why, Until: policies.Never, WakeOn: policies.WakeKey(t.Session)}
}

func (g *concur) admit(a *agent) policies.Verdict {
	why := a.why
	a.why = policies.SlotOwned
	a.running++
	return policies.Verdict{Kind: policies.VerdictAdmit, Reason: why}
}

// Inherit implements policies.Inheritor: a session that has not ended and has a running turn is active.
func (g *concur) Inherit(_ policies.Time, v *policies.View, l *policies.Lease) {
	a := g.of(l.Session)
	if a.running++; a.stage == unknown && !v.SessionEnded(l.Session) {
		g.activate(l.Session)
		a = g.of(l.Session)
		a.held, a.why = false, policies.SlotOwned
	}
}

// NextWake is the next tick, or at once when something is to be settled.
func (g *concur) NextWake() policies.Time {
	if g.unsettled {
		return 0
	}
	return g.ticks.next()
}

// hitCounters turns the replicas' prefix counters into rates.
type hitCounters struct {
	seen []policies.Sample // by replica, at the last tick
}

// rate is the share of the prompt tokens looked up since the last call that were found, over all replicas; ok is false
// if none is known. The counters of a replica that was not seen at the last call, or restarted since, do not count.
func (h *hitCounters) rate(v *policies.View) (x float64, ok bool) {
	for v.Replicas() > len(h.seen) {
		h.seen = append(h.seen, policies.Sample{})
	}
	var query, hit int64
	for r := range h.seen {
		was, is := h.seen[r], v.Sample(policies.ReplicaID(r))
		h.seen[r] = is
		if was.Has&is.Has&policies.HasPrefixCounters == 0 || is.QueryTokens < was.QueryTokens || is.HitTokens < was.HitTokens {
			continue
		}
		query += is.QueryTokens - was.QueryTokens
		hit += is.HitTokens - was.HitTokens
	}
	if query == 0 {
		return 0, false
	}
	return float64(hit) / float64(query), true
}
