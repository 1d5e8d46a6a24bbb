package traces

import (
	"fmt"
	"math"

	"github.com/sluice-sim/sluice/prefix"
)

// maxPrompt keeps fixed-length presets inside int32 arithmetic, tokens.
const maxPrompt = 1 << 30

// prepareBench makes what vLLM's `vllm bench serve` sends from its random data set: independent prompts with lengths
// in a range, behind an optional shared prefix. With several turns, every turn adds another input of that range.
func prepareBench(g *generation) (plan, error) {
	n, turns := int(g.int("sessions")), g.int("turns")
	r := g.float("range_ratio")
	input, output := g.int("input_tokens"), g.int("output_tokens")
	longest := g.float("prefix_tokens") + float64(g.float("turns")*2*(g.float("input_tokens")+g.float("output_tokens")))
	if longest > maxPrompt {
		return plan{}, fmt.Errorf("prompts of up to %.0f tokens exceed %d: lower turns, input_tokens or output_tokens", longest, maxPrompt)
	}
	if err := g.checkTurns(float64(n)*float64(turns), "sessions or turns"); err != nil {
		return plan{}, err
	}
	shared := newPool(g.streams, g.int("prefixes"), 0, lognormal{median: g.float("prefix_tokens")}, g.int("prefix_tokens"))
	return plan{n, func(i int) Session {
		d := g.dice(i)
		b := sessionBuilder{streams: g.streams}
		c := b.open(shared.pick(d.u(drawPrefix, 0, 0)))
		for k := range turns {
			key := uint64(k + 1)
			in := between(d, drawAppend, key, input, r)
			out := between(d, drawOutput, key, output, r)
			gap := int64(0)
			if k > 0 {
				gap = nanoseconds(g.float("gap_s"), math.Inf(1))
			}
			b.say(&c, c.end()+in, out, gap)
		}
		return b.finish(fmt.Sprintf("s%06d", i), -1)
	}}, nil
}

// between draws a whole number of floor(n(1-r)) to ceil(n(1+r)) tokens, at least 1.
func between(d dice, p purpose, key uint64, n int32, r float64) int32 {
	lo := max(1, int(math.Floor(float64(n)*(1-r))))
	hi := max(lo, int(math.Ceil(float64(n)*(1+r))))
	return int32(lo + d.pick(p, key, 0, hi-lo+1))
}

// prepareSteady makes equal sessions without randomness, for loads whose working set is known exactly.
func prepareSteady(g *generation) (plan, error) {
	n, turns := int(g.int("sessions")), g.int("turns")
	sharedTokens, limit := g.int("shared_tokens"), g.int("max_context")
	first, add, output := g.int("first_tokens"), g.int("append_tokens"), g.int("output_tokens")
	if need := int64(sharedTokens) + int64(first) + int64(output); need > int64(limit) {
		return plan{}, fmt.Errorf("the first turn takes %d tokens (shared_tokens + first_tokens + output_tokens), above max_context = %d",
			need, limit)
	}
	if need := int64(sharedTokens) + int64(add) + int64(output); need > int64(limit) {
		return plan{}, fmt.Errorf("a turn takes %d tokens (shared_tokens + append_tokens + output_tokens), above max_context = %d",
			need, limit)
	}
	if err := g.checkTurns(float64(n)*float64(turns), "sessions or turns"); err != nil {
		return plan{}, err
	}
	shared := newPool(g.streams, 1, 0, lognormal{median: float64(sharedTokens)}, sharedTokens).prefixes[0]
	gap := nanoseconds(g.float("gap_s"), math.Inf(1))
	return plan{n, func(i int) Session {
		b := sessionBuilder{streams: g.streams}
		c := b.open(shared)
		for prompt := sharedTokens + first; ; {
			b.say(&c, prompt, output, gap)
			if c.number == turns {
				break
			}
			if c.end()+add+output <= limit {
				prompt = c.end() + add
				continue
			}
			g.notes["turn at the context limit"]++
			rule := g.knob("at_limit").Text
			if rule == "end" {
				break
			}
			prompt = b.atLimit(&c, rule, shared, first, add, limit-output)
		}
		return b.finish(fmt.Sprintf("s%06d", i), -1)
	}}, nil
}

// atLimit rewinds a thread that cannot grow and returns the length of its next prompt, at most longest.
func (b *sessionBuilder) atLimit(c *conversation, rule string, shared prefix.Prefix, first, add, longest int32) int32 {
	switch rule {
	case "restart": // a new conversation
		b.rewind(c, shared)
		return shared.Tokens + first
	case "slide": // the oldest turns leave, so everything behind the shared prefix moves
		b.rewind(c, shared)
		return longest
	default: // hold: the newest tokens are replaced
		kept := c.prompt
		kept.Tokens = min(kept.Tokens, longest-add)
		b.rewind(c, kept)
		return longest
	}
}
