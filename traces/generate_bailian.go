package traces

import (
	"fmt"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
)

// continuation holds, from index 0 on, the probability that a session of at least 2, 3, ... turns goes on after
// them (spec: papers 8.1; 11, 13, 14, 16 and 17, which the table leaves out, interpolated). Later turns take the knob
// tail_continuation.
var continuation = []float64{.506, .735, .811, .872, .867, .909, .924, .902, .935, .939, .943, .941, .940, .938, .936, .933, .931}

// gapLaws are the alternatives for the time between a completion and the next turn, in seconds (spec: papers 9.1).
var gapLaws = map[string]mixture{
	"client":   {{.454, lognormal{.67, .49}}, {.322, lognormal{4.16, 1.0}}, {.224, lognormal{34.8, 1.8}}},
	"mori":     {{.891, lognormal{1.05, .32}}, {.109, lognormal{4.5, 1.12}}},
	"tracelab": {{.66, lognormal{.085, 1.84}}, {.17, lognormal{6.6, .21}}, {.17, lognormal{18.5, 1.58}}},
	"copilot":  {{1, lognormal{.166, 2.6}}},
}

// prepareBailian makes a production coding agent's sessions: most have one turn, few have very many.
func prepareBailian(g *generation) (plan, error) {
	n := int(g.int("sessions"))
	tail := g.float("tail_continuation")
	expected := 1 + float64((1-g.float("single_turn_share"))*min(5+.1/(1-tail), g.float("turn_cap")))
	if err := g.checkTurns(float64(n)*expected, "sessions, tail_continuation or turn_cap"); err != nil {
		return plan{}, err
	}
	systems, err := g.systemPool()
	if err != nil {
		return plan{}, err
	}
	limit := g.int("context_limit")
	rules := contextRules{
		limit:      limit,
		compactAt:  clampTokens(float64(limit)*g.float("compact_at"), 1, limit),
		compaction: g.law("compact_tokens", "compact_sigma"),
		strip:      g.float("thinking_strip"),
	}
	live := make([]liveContext, min(n, int(g.int("fork_window"))))
	return plan{n, func(i int) Session {
		d := g.dice(i)
		var c conversation
		b := sessionBuilder{streams: g.streams}
		first := g.law("first_tokens", "first_sigma")
		if d.u(drawFirst, 0, 0) < g.float("large_first_share") {
			first = g.law("large_first_tokens", "large_first_sigma")
		}
		added := first.at(d.u(drawFirst, 0, 1))
		if i > 0 && d.u(drawFork, 0, 0) < g.float("fork_share") {
			from, system := pickLive(live, d, i)
			rules.system = system
			added = min(g.bailianAppend(d, 1), float64(rules.compactAt/2))
			from.Tokens = min(from.Tokens, rules.compactAt-int32(added)-1)
			c = b.open(from)
			g.notes["session forked from another's context"]++
		} else {
			rules.system = systems.pick(d.u(drawPrefix, 0, 0))
			c = b.open(rules.system)
		}
		prompt := c.end() + clampTokens(added, 1, rules.compactAt-c.end())
		g.bailianTurns(&b, &c, &rules, d, prompt)
		live[i%len(live)].keep(rules.system, b.turns)
		return b.finish(fmt.Sprintf("s%06d", i), -1)
	}}, nil
}

// liveContext is what a later session may fork of a session.
type liveContext struct {
	system  prefix.Prefix
	prompts []prefix.Prefix // of its turns
}

func (c *liveContext) keep(system prefix.Prefix, turns []Turn) {
	c.system, c.prompts = system, c.prompts[:0]
	for i := range turns {
		c.prompts = append(c.prompts, turns[i].Prompt)
	}
}

// pickLive is the content that session i forks: the prompt of a turn of one of the sessions before it, of which live
// holds the last, each at its number modulo their count.
func pickLive(live []liveContext, d dice, i int) (from, system prefix.Prefix) {
	session := &live[(i-1-d.pick(drawFork, 0, 1, min(i, len(live))))%len(live)]
	return session.prompts[d.pick(drawFork, 0, 2, len(session.prompts))], session.system
}

// bailianAppend draws what a turn adds to the prompt besides the previous output.
func (g *generation) bailianAppend(d dice, key uint64) float64 {
	effect := exact.LogNormal(1, g.float("append_session_sigma"), d.u(drawSessionAppend, 0, 0))
	return g.law("append_tokens", "append_sigma").at(d.u(drawAppend, key, 0)) * effect
}

func (g *generation) bailianTurns(b *sessionBuilder, c *conversation, r *contextRules, d dice, prompt int32) {
	var (
		gaps    = gapLaws[g.knob("gap_law").Text]
		output  = g.law("output_tokens", "output_sigma")
		most    = g.int("output_cap")
		turns   = g.bailianTurnCount(d)
		stretch = g.float("gap_scale")
		longest = g.float("gap_cap_s")
	)
	for k := int32(1); ; k++ {
		key := uint64(k)
		gap := int64(0)
		if k > 1 {
			gap = nanoseconds(stretch*g.toolGap(d, key, gaps), longest)
		}
		out := clampTokens(output.at(d.u(drawOutput, key, 0)), 1, min(most, r.limit-prompt))
		b.say(c, prompt, out, gap)
		if k == turns {
			return
		}
		added := clampTokens(g.bailianAppend(d, key+1), 1, r.limit)
		prompt = g.grow(b, c, r, d, added)
	}
}

func (g *generation) bailianTurnCount(d dice) int32 {
	most := g.int("turn_cap")
	if most == 1 || d.u(drawTurns, 1, 0) < g.float("single_turn_share") {
		return 1
	}
	for turns := int32(2); ; turns++ {
		goOn := g.float("tail_continuation")
		if i := int(turns - 2); i < len(continuation) {
			goOn = continuation[i]
		}
		if turns >= most || d.u(drawTurns, uint64(turns), 0) >= goOn {
			return turns
		}
	}
}
