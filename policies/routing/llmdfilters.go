package routing

import (
	"math"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// The filters of llm-d, in the order in which they come. Each leaves the candidates, which it overwrites, as they are if it
// would leave none. spec: policies 3.4 and 3.5.

// utilizationFilter drops replicas that are full, and those whose sample is too old or lacks a figure.
type utilizationFilter struct {
	on      bool
	waiting float64
	usage   float64
	stale   policies.Time
}

func newUtilizationFilter(p policies.Params) utilizationFilter {
	more := 1 + p["filter_headroom"].Number
	return utilizationFilter{
		on: p["utilization_filter"].Bool, waiting: float64(p["filter_queue_depth"].Number * more),
		usage: min(1, float64(p["filter_kv_usage"].Number*more)), stale: policies.Time(p["filter_stale_s"].Number * float64(policies.Second)),
	}
}

func (f *utilizationFilter) keep(now policies.Time, v *policies.View, candidates []policies.ReplicaID) []policies.ReplicaID {
	if !f.on {
		return candidates
	}
	return filtered(candidates, func(r policies.ReplicaID) bool { return f.free(now, v.Sample(r)) })
}

func (f *utilizationFilter) free(now policies.Time, s policies.Sample) bool {
	const both = policies.HasWaiting | policies.HasUsage
	return s.Has&both == both && now-s.At <= f.stale && float64(s.Waiting) < f.waiting && s.Usage < f.usage
}

// sessionFilter keeps the replica of the turn's session, if it has one.
type sessionFilter struct {
	on     bool
	places *sessionAffinity
}

func (f *sessionFilter) keep(now policies.Time, t *policies.Turn, candidates []policies.ReplicaID) []policies.ReplicaID {
	if !f.on {
		return candidates
	}
	home, ok := f.places.get(now, int32(t.Session))
	if !ok {
		return candidates
	}
	return filtered(candidates, func(r policies.ReplicaID) bool { return r == home })
}

// affinityFilters keep the replicas that hold enough of a prompt, unless the best of them would start so much later than
// the best of all.
type affinityFilters struct {
	on            bool
	thresholds    []int64 // prefix scores, one filter each
	penalty, rate float64 // penalty 0 never lets the others in
	exploration   float64 // chance that a turn skips a filter
	seed          uint64
}

func newAffinityFilters(e policies.Env, p policies.Params) affinityFilters {
	f := affinityFilters{
		on: p["affinity_filter"].Bool, penalty: p["affinity_penalty_s"].Number, rate: p["affinity_rate"].Number,
		exploration: p["affinity_exploration"].Number, seed: e.Seed,
	}
	for _, knob := range []string{"affinity_strict_threshold", "affinity_threshold"} {
		if x := p[knob].Number; x > 0 || knob == "affinity_threshold" {
			f.thresholds = append(f.thresholds, int64(x*float64(policies.ScoreOne)))
		}
	}
	return f
}

func (f *affinityFilters) keep(v *policies.View, l *llmdLookup, a policies.AttemptID, candidates []policies.ReplicaID) []policies.ReplicaID {
	if !f.on {
		return candidates
	}
	for i, least := range f.thresholds {
		if f.exploration == 0 || exact.Uniform(exact.Hash3(f.seed, explorationDraw, uint64(a), uint64(i))) >= f.exploration {
			candidates = f.sticky(v, l, least, candidates)
		}
	}
	return candidates
}

// explorationDraw parts these draws from others with the same seed.
const explorationDraw = 0x6578706c

func (f *affinityFilters) sticky(v *policies.View, l *llmdLookup, least int64, candidates []policies.ReplicaID) []policies.ReplicaID {
	best, bestSticky := int64(math.MaxInt64), int64(math.MaxInt64) // tokens in flight
	for _, r := range candidates {
		tokens := l.inFlight(v, r)
		best = min(best, tokens)
		if l.parts[r] >= least {
			bestSticky = min(bestSticky, tokens)
		}
	}
	if f.penalty > 0 && float64(bestSticky-best)/f.rate > f.penalty {
		return candidates
	}
	return filtered(candidates, func(r policies.ReplicaID) bool { return l.parts[r] >= least })
}

// filtered is the candidates that pass, in their order, in the same memory; all of them if none does.
func filtered(candidates []policies.ReplicaID, passes func(policies.ReplicaID) bool) []policies.ReplicaID {
	kept := candidates[:0]
	for _, r := range candidates {
		if passes(r) {
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 {
		return candidates
	}
	return kept
}
