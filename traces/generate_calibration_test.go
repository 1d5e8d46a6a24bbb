package traces

import (
	"cmp"
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
)

// reuse is what an infinite cache would serve of a trace's prompts, in tokens, by where the content came from.
type reuse struct {
	prompts             int64 // all prompt tokens
	intra, first, cross int64 // by the session's own turns; the system prompt on first turns; other sessions' content
	within10, within100 int64 // last used at most so many seconds before
}

func (r reuse) total() int64 { return r.intra + r.first + r.cross }

// infiniteCache replays the trace with Poisson session arrivals at a rate in sessions a second. Turns use their content
// when they arrive, so reuse intervals are from arrival to arrival. The content of a stream was last used the more recently the nearer it is to the
// stream's beginning, so a stream's history is a stack of (end, time of last use), ends falling.
func infiniteCache(tr *Trace, rate float64, seed uint64) reuse {
	type use struct {
		end int32
		ns  int64
	}
	type event struct {
		ns      int64
		session int
		turn    *Turn
	}
	var events []event
	now := 0.0
	for i := range tr.Sessions {
		now -= exact.Log(exact.Uniform(exact.Hash1(seed, uint64(i)))) / rate
		for k := range tr.Sessions[i].Turns {
			u := &tr.Sessions[i].Turns[k]
			events = append(events, event{int64(now*1e9) + u.StartNS, i, u})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.ns, b.ns) })
	history := make([][]use, tr.Tree.Len())
	own := func(s prefix.StreamID) bool { return tr.Tree.Stream(s).Parent != prefix.None }
	var r reuse
	for _, e := range events {
		p := e.turn.Prompt
		r.prompts += int64(p.Tokens)
		hi := p.Tokens
		for s := p.Stream; s != prefix.None; s = tr.Tree.Stream(s).Parent {
			lo := tr.Tree.Stream(s).ForkAt
			for i := len(history[s]) - 1; i >= 0 && lo < hi; i-- {
				u := history[s][i]
				n := int64(min(u.end, hi) - lo)
				if n <= 0 {
					continue
				}
				switch {
				case e.turn.Number > 1:
					r.intra += n
				case own(s):
					r.cross += n
				default:
					r.first += n
				}
				if e.ns-u.ns <= 10e9 {
					r.within10 += n
				}
				if e.ns-u.ns <= 100e9 {
					r.within100 += n
				}
				lo = max(lo, u.end)
			}
			touched := min(hi, p.Tokens)
			if s == p.Stream {
				touched += e.turn.OutputTokens
			}
			if touched > tr.Tree.Stream(s).ForkAt {
				h := history[s]
				for len(h) > 0 && h[len(h)-1].end <= touched {
					h = h[:len(h)-1]
				}
				history[s] = append(h, use{touched, e.ns})
			}
			hi = min(hi, tr.Tree.Stream(s).ForkAt)
		}
	}
	return r
}

// A prompt that is reused twice, by hand: a system prompt of 100, two sessions of two turns.
func TestInfiniteCacheByHand(t *testing.T) {
	tr := mustGenerate(t, "steady", 1, Params{"sessions": Num(2), "turns": Num(2), "shared_tokens": Num(100),
		"first_tokens": Num(10), "append_tokens": Num(20), "output_tokens": Num(5), "gap_s": Num(20)})
	r := infiniteCache(tr, 1e-6, 1)
	want := reuse{prompts: 2 * (110 + 135), intra: 2 * 115, first: 100, within100: 2 * 115}
	if r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

// sample collects values and answers with their mean and percentiles.
type sample []float64

func (s sample) mean() float64 {
	sum := 0.0
	for _, x := range s {
		sum += x
	}
	return sum / float64(len(s))
}

func (s sample) at(p float64) float64 {
	slices.Sort(s)
	return s[int(p*float64(len(s)-1)+.5)]
}

// bands holds statistics against what was published; every row can fail.
type bands struct{ t *testing.T }

func (b bands) check(what string, got, lo, hi float64) {
	b.t.Helper()
	b.t.Logf("%-45s %10.4g  (%g to %g)", what, got, lo, hi)
	if !(got >= lo && got <= hi) {
		b.t.Errorf("%s = %.4g, want %g to %g", what, got, lo, hi)
	}
}

// The infinite-cache statistics of family A1 (spec: papers 9.3), at two seeds.
func TestBailianCalibration(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		const n = 20_000
		tr := mustGenerate(t, "bailian-agentic", seed, Params{"sessions": Num(n)})
		r := infiniteCache(tr, 8, seed)
		total := float64(r.total())
		b := bands{t}
		b.check("reusable token share", total/float64(r.prompts), .79, .86)
		b.check("intra-session share of reuse", float64(r.intra)/total, .74, .84)
		b.check("first-turn share of reuse", float64(r.first)/total, .15, .22)
		b.check("cross-session share of reuse", float64(r.cross)/total, .01, .04)
		b.check("reuse within 100 s", float64(r.within100)/total, .88, .96)
		b.check("reuse within 10 s", float64(r.within10)/total, .62, .75)
		var input, output, gap, weight sample
		for i := range tr.Sessions {
			s, sum := &tr.Sessions[i], 0.0
			for _, u := range s.Turns {
				input = append(input, float64(u.Prompt.Tokens))
				output = append(output, float64(u.OutputTokens))
				sum += float64(u.Prompt.Tokens)
			}
			for _, d := range s.Deps {
				gap = append(gap, float64(d.DelayNS)/1e9)
			}
			weight = append(weight, sum)
		}
		b.check("turns per session", float64(len(input))/n, 1.80, 2.15)
		b.check("input mean", input.mean(), 29_000, 37_000)
		b.check("input p50", input.at(.5), 18_000, 25_000)
		b.check("input p90", input.at(.9), 62_000, 88_000)
		b.check("output mean", output.mean(), 390, 500)
		b.check("output p50", output.at(.5), 75, 86)
		b.check("gap p50, s", gap.at(.5), 1.2, 2.4)
		b.check("gap mean, s", gap.mean(), 34, 48)
		slices.Sort(weight)
		slices.Reverse(weight)
		all := weight.mean() * n
		for _, c := range []struct{ top, lo, hi float64 }{{.25, .78, .86}, {.10, .66, .78}, {.01, .34, .52}} {
			b.check("tokens of the heaviest sessions", weight[:int(c.top*n)].mean()*c.top*n/all, c.lo, c.hi)
		}
	}
}

// The laws of family A2 (spec: papers 8.2): most bands are the measured value and a fifth around it. The measured
// sessions mix context limits of 200,000 and 1,000,000.
func TestClaudeCodeCalibration(t *testing.T) {
	tr := mustGenerate(t, "claude-code", 1, Params{"sessions": Num(3000), "large_window_share": Num(.3)})
	var turns, first, input, output, growth, gap, agents sample
	compacted := 0
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		n, last := 0.0, (*Turn)(nil)
		agents = append(agents, float64(s.Threads-1))
		for k := range s.Turns {
			u := &s.Turns[k]
			if u.Thread != 0 {
				continue
			}
			n++
			input = append(input, float64(u.Prompt.Tokens))
			output = append(output, float64(u.OutputTokens))
			switch {
			case last == nil:
				first = append(first, float64(u.Prompt.Tokens))
			case u.Prompt.Tokens < last.Prompt.Tokens:
				compacted++
				fallthrough
			default:
				gap = append(gap, float64(s.Deps[u.DepLo].DelayNS)/1e9)
				if u.Prompt.Tokens > last.Prompt.Tokens {
					growth = append(growth, float64(u.Prompt.Tokens-last.Prompt.Tokens))
				}
			}
			last = u
		}
		turns = append(turns, n)
	}
	b := bands{t}
	b.check("requests per session p50", turns.at(.5), 41, 49)
	b.check("requests per session p90", turns.at(.9), 156, 230)
	b.check("requests per session mean", turns.mean(), 68, 92)
	b.check("first input p25", first.at(.25), 17_000, 20_000)
	b.check("first input p50", first.at(.5), 22_000, 36_000)
	b.check("first input p75", first.at(.75), 90_000, 120_000)
	b.check("first input p90", first.at(.9), 150_000, 280_000)
	b.check("input p10", input.at(.1), 30_000, 55_000)
	b.check("input p25", input.at(.25), 52_000, 84_000)
	b.check("input p50", input.at(.5), 84_000, 126_000)
	b.check("input p75", input.at(.75), 120_000, 180_000)
	b.check("input p90", input.at(.9), 190_000, 310_000)
	b.check("output p50", output.at(.5), 195, 260)
	b.check("output p90", output.at(.9), 750, 1100)
	b.check("output mean", output.mean(), 400, 500)
	b.check("growth p25", growth.at(.25), 300, 370)
	b.check("growth p50", growth.at(.5), 620, 740)
	b.check("growth p90", growth.at(.9), 2800, 4000)
	b.check("growth mean", growth.mean(), 1400, 2000)
	b.check("gap p50, s", gap.at(.5), 8, 15)
	b.check("gap mean, s", gap.mean(), 100, 220)
	b.check("subagents per session", agents.mean(), .07, .11)
	// 261 compactions in 48,658 requests were measured. The log-normal law of turns has more very long sessions than
	// were seen (p90 156, mean 68.5), and those are where contexts fill.
	b.check("compactions per 1,000 requests", 1000*float64(compacted)/float64(len(input)), 4, 11)
}

// User turns of family A2: 50 % of one or two steps, few very long.
func TestClaudeCodeSteps(t *testing.T) {
	var steps sample
	for i := range 20_000 {
		steps = append(steps, float64(int(claudeSteps.at(exact.Uniform(exact.Hash1(3, uint64(i)))))))
	}
	b := bands{t}
	b.check("steps p25", steps.at(.25), 1, 1)
	b.check("steps p50", steps.at(.5), 1, 2)
	b.check("steps p75", steps.at(.75), 3, 4)
	b.check("steps p90", steps.at(.9), 15, 18)
	b.check("steps p99", steps.at(.99), 72, 84)
	b.check("steps mean", steps.mean(), 6.2, 7.4)
}

// The shape of family B (spec: papers 8.5 and 9.2).
func TestRolloutCalibration(t *testing.T) {
	tr := mustGenerate(t, "swe-rollout", 1, Params{"prompts": Num(250), "samples": Num(4)})
	var turns, output, added, gap, whole sample
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		turns = append(turns, float64(len(s.Turns)))
		for k, u := range s.Turns {
			output = append(output, float64(u.OutputTokens))
			if k > 0 {
				before := s.Turns[k-1]
				added = append(added, float64(u.Prompt.Tokens-before.Prompt.Tokens-before.OutputTokens))
				gap = append(gap, float64(s.Deps[u.DepLo].DelayNS)/1e9)
			}
		}
		whole = append(whole, float64(s.Turns[len(s.Turns)-1].Prompt.Tokens))
	}
	b := bands{t}
	b.check("turns mean", turns.mean(), 56, 64)
	b.check("turns p90/p50", turns.at(.9)/turns.at(.5), 1.5, 2.0)
	b.check("append mean", added.mean(), 500, 600)
	b.check("output mean", output.mean(), 155, 185)
	b.check("tool time mean, s", gap.mean(), .80, 1.00)
	b.check("last prompt mean", whole.mean(), 42_000, 58_000)
}
