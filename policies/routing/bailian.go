package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// Reads resident prefixes and the number of requests (BS). Keeps nothing. Form weights draws, by a hash of the seed and
// the attempt, so that one turn's draw does not depend on another's; among equal weights the lower replica is in the top K.
// Form linear takes the smallest sum, lowest replica on a tie.
// Source: arXiv 2603.15202 and 2607.08565 (the production scheduler they compare with); spec: policies 3.10.

// Bailian declares the router that draws from the best few by hit ratio and batch size.
func Bailian() policies.Declaration {
	return policies.Declaration{
		Name: "bailian",
		Doc: "Form weights: weighs each replica 2^(a x hit ratio + b x (mean batch - batch)), batches relative to the largest, and draws one of the K heaviest. " +
			"Form linear: takes the smallest lambda x (1 - hit ratio) + (1 - lambda) x batch.",
		Source:  "arXiv 2603.15202, 2607.08565; spec: policies 3.10",
		Needs:   policies.NeedsSamples | policies.NeedsKVEvents,
		Missing: "Without a sample the turns in flight count. Without KV events a thread's last turn is taken to be resident where it went, and nothing else.",
		Knobs: []policies.Knob{
			{Name: "form", Kind: policies.EnumKnob, Default: policies.Value{Text: "weights"}, Enum: []string{"weights", "linear"}, Doc: "which of the two published forms"},
			{Name: "lambda", Kind: policies.FloatKnob, Default: policies.Value{Number: .7}, Min: 0, Max: 1, Doc: "form linear: weight of the miss ratio; published are 0.7 for chat and 0.55 for an API"},
			{Name: "a", Kind: policies.FloatKnob, Default: policies.Value{Number: 50}, Min: 0, Max: 1000, Doc: "weight of the hit ratio, in powers of two"},
			{Name: "b", Kind: policies.FloatKnob, Default: policies.Value{Number: 20}, Min: 0, Max: 1000, Doc: "weight of the relative batch size, in powers of two"},
			{Name: "top_k", Kind: policies.IntKnob, Default: policies.Value{Number: 3}, Min: 1, Max: 1024, Unit: "replicas", Doc: "how many are drawn from; 1 takes the best"},
			batchKnob(),
		},
		NewRouter: func(e policies.Env, p policies.Params) policies.Router {
			return &bailian{seed: e.Seed, linear: p["form"].Text == "linear", lambda: p["lambda"].Number, a: p["a"].Number, b: p["b"].Number, k: int(p["top_k"].Number), batch: batchOf(p)}
		},
	}
}

type bailian struct {
	seed    uint64
	linear  bool
	lambda  float64
	a, b    float64
	k       int
	batch   batchSource
	hits    []int32
	batches []int64
	top     []weighted
}

type weighted struct {
	replica  policies.ReplicaID
	exponent float64
}

func (*bailian) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (m *bailian) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	if m.linear {
		return m.Peek(now, v, t), policies.BestScore
	}
	return m.Peek(now, v, t), policies.Sampled
}

func (m *bailian) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	up := v.Up()
	if len(up) == 0 {
		return policies.NoReplica
	}
	m.hits = hitsOf(v, t, m.hits)
	m.batches = m.batches[:0]
	sum, largest := int64(0), int64(1)
	for _, r := range up {
		b := m.batch.of(v, r)
		m.batches = append(m.batches, b)
		sum, largest = sum+b, max(largest, b)
	}
	if m.linear {
		best, least := policies.NoReplica, 0.0
		for i, r := range up {
			if s := bailianSum(m.lambda, m.hits[r], t.Prompt.Tokens, m.batches[i], largest); best == policies.NoReplica || s < least {
				best, least = r, s
			}
		}
		return best
	}
	m.top = m.top[:0]
	for i, r := range up {
		below := float64(sum-int64(len(up))*m.batches[i]) / float64(int64(len(up))*largest)
		m.top = keepTop(m.top, m.k, weighted{r, bailianExponent(m.a, m.b, m.hits[r], t.Prompt.Tokens, below)})
	}
	return draw(m.top, exact.Uniform(exact.Hash2(m.seed, bailianDraw, uint64(t.Attempt))))
}

// bailianDraw parts these draws from others with the same seed.
const bailianDraw = 0x6261696c69616e

// bailianExponent is a min(1, c/L) + b below, where below is how far the replica's batch is below the mean, both
// relative to the largest batch.
func bailianExponent(a, b float64, hit, prompt int32, below float64) float64 {
	return float64(a*min(1, float64(hit)/float64(prompt))) + float64(b*below)
}

// bailianSum is lambda (1 - min(1, c/L)) + (1 - lambda) batch/largest.
func bailianSum(lambda float64, hit, prompt int32, batch, largest int64) float64 {
	miss := 1 - min(1, float64(hit)/float64(prompt))
	return float64(lambda*miss) + float64((1-lambda)*(float64(batch)/float64(largest)))
}

// keepTop inserts w into the k heaviest so far, heaviest first, behind its equals.
func keepTop(top []weighted, k int, w weighted) []weighted {
	if len(top) < k {
		top = append(top, w)
	} else if w.exponent > top[k-1].exponent {
		top[k-1] = w
	} else {
		return top
	}
	for i := len(top) - 1; i > 0 && top[i].exponent > top[i-1].exponent; i-- {
		top[i], top[i-1] = top[i-1], top[i]
	}
	return top
}

// draw takes one of top with a chance proportional to 2^exponent; u is uniform in (0, 1).
func draw(top []weighted, u float64) policies.ReplicaID {
	total := 0.0
	for _, w := range top {
		total += exact.Exp2(w.exponent - top[0].exponent)
	}
	left := float64(u * total)
	for _, w := range top {
		if left -= exact.Exp2(w.exponent - top[0].exponent); left < 0 {
			return w.replica
		}
	}
	return top[0].replica
}
