package traces

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
)

// purpose keeps the draws of one turn apart. Values are part of the format: changing one changes every trace.
type purpose uint64

const (
	drawTurns purpose = iota + 1
	drawPrefix
	drawGroup
	drawFirst
	drawAppend
	drawOutput
	drawGap
	drawParallel
	drawCompaction
	drawFork
	drawRewrite
	drawSubagents
	drawUserTurn
	drawWindow
	drawSessionAppend
	drawSessionOutput
	drawSessionGap
	drawDifficulty
	drawEnvironment
)

// dice gives the draws of one session. key is the turn's number (0 for draws that belong to the session), k counts
// draws of one purpose within a turn. u is uniform on (0, 1).
type dice struct{ seed, session uint64 }

func (d dice) u(p purpose, key uint64, k int) float64 {
	return exact.Uniform(exact.Hash4(d.seed, uint64(p), d.session, key, uint64(k)))
}

// pick is uniform on 0 to n-1.
func (d dice) pick(p purpose, key uint64, k, n int) int {
	return int(exact.UniformInt(exact.Hash4(d.seed, uint64(p), d.session, key, uint64(k)), int64(n)))
}

// lognormal is LN(m, s): log-normal with median m and standard deviation s of the logarithm.
type lognormal struct{ median, sigma float64 }

func (l lognormal) at(u float64) float64 { return exact.LogNormal(l.median, l.sigma, u) }

func (l lognormal) mean() float64 { return l.median * exact.Exp(float64(l.sigma*l.sigma)/2) }

// component is one log-normal of a mixture.
type component struct {
	weight float64 // weights of a mixture add up to 1
	law    lognormal
}

type mixture []component

// at picks a component by one uniform and its quantile by another.
func (m mixture) at(pick, u float64) float64 {
	last := len(m) - 1
	for _, c := range m[:last] {
		if pick < c.weight {
			return c.law.at(u)
		}
		pick -= c.weight
	}
	return m[last].law.at(u)
}

// within shrinks the mixture about its mean logarithm until the logarithm's standard deviation is sigma. A law fitted
// to the pooled turns of many sessions thereby leaves room for an effect per session.
func (m mixture) within(sigma float64) mixture {
	mean, square := 0.0, 0.0
	for _, c := range m {
		x := exact.Log(c.law.median)
		mean += float64(c.weight * x)
		square += float64(c.weight * (float64(x*x) + float64(c.law.sigma*c.law.sigma)))
	}
	variance := square - float64(mean*mean)
	f := exact.Pow(float64(sigma*sigma)/variance, 0.5)
	out := make(mixture, len(m))
	for i, c := range m {
		x := mean + float64(f*(exact.Log(c.law.median)-mean))
		out[i] = component{c.weight, lognormal{exact.Exp(x), f * c.law.sigma}}
	}
	return out
}

// quantiles is a distribution given by points of its quantile function, log-linear between them.
type quantiles []struct{ p, x float64 }

func (q quantiles) at(u float64) float64 {
	i := 1
	for i < len(q)-1 && u > q[i].p {
		i++
	}
	a, b := q[i-1], q[i]
	t := (u - a.p) / (b.p - a.p)
	return a.x * exact.Pow(b.x/a.x, t)
}

// ranks draws from n ranks with probability proportional to (rank+1)^-s (Zipf).
type ranks []float64 // cumulative, not normalised

func zipf(n int32, s float64) ranks {
	r := make(ranks, n)
	sum := 0.0
	for i := range r {
		sum += exact.Pow(float64(i+1), -s)
		r[i] = sum
	}
	return r
}

func (r ranks) at(u float64) int {
	x := u * r[len(r)-1]
	lo, hi := 0, len(r)-1
	for lo < hi {
		if mid := (lo + hi) / 2; x < r[mid] {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// pool is a set of system and tool prompts of fixed sizes, some more popular than others.
type pool struct {
	popularity ranks
	prefixes   []prefix.Prefix
}

// newPool makes n root streams. Sizes are not draws: the most popular prompt has the law's mean, the others
// are quantiles in golden-ratio order, so that popular ones cover the law evenly and a workload's mean prompt does not
// hang on the luck of a few draws that all sessions share. No size exceeds limit; a median of 0 means that there are
// no shared prompts.
func newPool(streams *growth, n int32, s float64, size lognormal, limit int32) pool {
	const golden = 0.6180339887498949
	p := pool{popularity: zipf(n, s), prefixes: make([]prefix.Prefix, n)}
	tokens := size.mean()
	u := 0.5
	for i := range p.prefixes {
		p.prefixes[i] = prefix.Prefix{Stream: prefix.None}
		if size.median > 0 {
			p.prefixes[i] = prefix.Prefix{Stream: streams.root(), Tokens: clampTokens(tokens, 1, limit)}
		}
		if u += golden; u >= 1 {
			u--
		}
		tokens = size.at(u)
	}
	return p
}

func (p pool) pick(u float64) prefix.Prefix { return p.prefixes[p.popularity.at(u)] }

// clampTokens rounds x to a whole number of tokens in [lo, hi]; lo wins when the two cross. (The conversion keeps a
// product in x from being fused with the rounding.)
func clampTokens(x float64, lo, hi int32) int32 {
	v, _ := exact.RoundToInt64(float64(x))
	return int32(max(min(v, int64(hi)), int64(lo)))
}

// nanoseconds converts seconds, at most limit of them.
func nanoseconds(seconds, limit float64) int64 {
	ns, _ := exact.RoundToInt64(float64(min(seconds, limit) * 1e9))
	return ns
}
