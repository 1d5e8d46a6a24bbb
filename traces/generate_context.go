package traces

import (
	"fmt"

	"github.com/sluice-sim/sluice/prefix"
)

// contextRules say how long a thread may grow and what happens then.
type contextRules struct {
	system     prefix.Prefix // survives a compaction
	limit      int32         // prompt and output together
	compactAt  int32         // a longer prompt is compacted; above system.Tokens, below limit
	compaction lognormal     // tokens after the system prefix in a compacted prompt
	strip      float64       // fraction of an output (its thinking) that the next prompt leaves out
}

// grow prepares the thread's next prompt, which adds tokens to everything said so far, and returns its length. Stripped
// thinking stands before the rest of its output, so content agrees up to the end of the previous prompt only. A
// compaction agrees with the past up to the system prefix only.
func (g *generation) grow(b *sessionBuilder, c *conversation, r *contextRules, d dice, tokens int32) int32 {
	next := c.end() + min(tokens, r.limit)
	if dropped := clampTokens(r.strip*float64(c.output), 0, c.output-1); dropped > 0 {
		b.rewind(c, c.prompt)
		next -= dropped
		g.notes["thinking stripped"]++
	}
	if next > r.compactAt {
		fresh := r.compaction.at(d.u(drawCompaction, c.key(), 0))
		b.rewind(c, r.system)
		next = r.system.Tokens + clampTokens(fresh, 1, r.compactAt-r.system.Tokens)
		g.notes["context compacted"]++
	}
	return next
}

// systemPool makes the system prompts of a preset with knobs prefixes, prefix_zipf, prefix_tokens and prefix_sigma. A
// system prompt takes at most a quarter of the context.
func (g *generation) systemPool() (pool, error) {
	quarter := g.int("context_limit") / 4
	if size := g.int("prefix_tokens"); size > quarter {
		return pool{}, fmt.Errorf("prefix_tokens = %d is over a quarter of context_limit = %d: lower it or raise the limit",
			size, g.int("context_limit"))
	}
	return newPool(g.streams, g.int("prefixes"), g.float("prefix_zipf"), g.law("prefix_tokens", "prefix_sigma"),
		quarter), nil
}

// toolGap draws the gap in seconds before a turn. With parallel tools it is the longest of two or three draws.
func (g *generation) toolGap(d dice, key uint64, m mixture) float64 {
	gap := m.at(d.u(drawGap, key, 0), d.u(drawGap, key, 1))
	if share := g.float("parallel_tools_share"); share > 0 && d.u(drawParallel, key, 0) < share {
		tools := 2
		if d.u(drawParallel, key, 1) < 0.5 {
			tools = 3
		}
		for k := 1; k < tools; k++ {
			gap = max(gap, m.at(d.u(drawGap, key, 2*k), d.u(drawGap, key, 2*k+1)))
		}
	}
	return gap
}
