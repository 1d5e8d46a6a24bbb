package traces

import (
	"fmt"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
)

// prepareRollout makes the sessions of one step of reinforcement learning on software tasks: prompts x samples, in
// order of prompt. All share the system prompt, the samples of a prompt share its task text too. The context limit
// ends a session; there is no compaction.
func prepareRollout(g *generation) (plan, error) {
	prompts, samples := int(g.int("prompts")), int(g.int("samples"))
	system, limit := g.int("system_tokens"), g.int("context_limit")
	if system > limit/2 {
		return plan{}, fmt.Errorf("system_tokens = %d is over half of context_limit = %d: lower it or raise the limit", system, limit)
	}
	if g.float("environment_min_s") > g.float("environment_max_s") {
		return plan{}, fmt.Errorf("environment_min_s = %v is above environment_max_s = %v",
			g.knob("environment_min_s"), g.knob("environment_max_s"))
	}
	turns := float64(prompts) * float64(samples) * min(g.float("turns"), g.float("turn_cap"))
	if err := g.checkTurns(turns, "prompts, samples or turns"); err != nil {
		return plan{}, err
	}
	common := prefix.Prefix{Stream: g.streams.root(), Tokens: system}
	for p := range prompts {
		g.groups = append(g.groups, fmt.Sprintf("prompt%05d", p))
	}
	var shared prefix.Prefix // the prompt's
	var difficulty float64
	return plan{prompts * samples, func(i int) Session {
		p, s := i/samples, i%samples
		if s == 0 {
			// Draws of a prompt come from dice of their own, so that they do not hang on the number of samples.
			d := dice{exact.Hash1(g.seed, uint64(drawGroup)), uint64(p)}
			task := g.law("task_tokens", "task_sigma").at(d.u(drawFirst, 0, 0))
			shared = prefix.Prefix{Stream: g.streams.fork(common), Tokens: system + clampTokens(task, 1, limit/4)}
			difficulty = unitMean(g.float("prompt_sigma"), d.u(drawDifficulty, 0, 0))
		}
		// The sample's dice are keyed by (prompt, sample), so more samples do not shift another prompt's.
		sample := dice{g.seed, uint64(p)<<32 | uint64(s)}
		own := unitMean(g.float("sample_sigma"), sample.u(drawDifficulty, 0, 0))
		turns := clampTokens(g.float("turns")*difficulty*own, 1, g.int("turn_cap"))
		session := g.rollout(sample, shared, turns)
		session.Name = fmt.Sprintf("p%05d/s%05d", p, s)
		session.Group = int32(p)
		return session
	}}, nil
}

// unitMean is a log-normal effect of mean 1: it spreads a quantity and leaves its mean alone.
func unitMean(sigma, u float64) float64 {
	return exact.LogNormal(1, sigma, u) / lognormal{1, sigma}.mean()
}

// rollout is one sample's session of at most that many turns.
func (g *generation) rollout(d dice, shared prefix.Prefix, turns int32) Session {
	var (
		b       = sessionBuilder{streams: g.streams}
		c       = b.open(shared)
		limit   = g.int("context_limit")
		output  = g.law("output_tokens", "output_sigma")
		add     = g.law("append_tokens", "append_sigma")
		tool    = g.law("tool_s", "tool_sigma")
		slow    = g.law("slow_tool_s", "slow_tool_sigma")
		timeout = g.float("tool_timeout_s")
	)
	for prompt, gap := shared.Tokens, int64(0); ; {
		b.say(&c, prompt, clampTokens(output.at(d.u(drawOutput, c.key(), 0)), 1, limit-prompt), gap)
		if c.number == 1 {
			lo, hi := g.float("environment_min_s"), g.float("environment_max_s")
			b.turns[0].StartNS = nanoseconds(lo+float64((hi-lo)*d.u(drawEnvironment, 0, 0)), hi)
		}
		if c.number == turns {
			break
		}
		key := c.key()
		prompt = c.end() + clampTokens(add.at(d.u(drawAppend, key, 0)), 1, limit)
		if prompt >= limit {
			g.notes["session ended by the context limit"]++
			break
		}
		law := tool
		if d.u(drawGap, key, 0) < g.float("slow_tool_share") {
			law = slow
		}
		gap = nanoseconds(law.at(d.u(drawGap, key, 1)), timeout)
	}
	return b.finish("", -1)
}
