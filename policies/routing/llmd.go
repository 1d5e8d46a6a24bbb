package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Reads samples (waiting, running, usage) as they are, without its own dispatches; the ledger's turns in flight and
// uncached tokens that are queued; with prefix events KV events. Keeps what it sent where, which replica each session went
// to, and which replicas took prompts that nobody held. The largest weighted sum wins; equal ones are drawn from, by a hash
// of the seed and the attempt. The predicted-latency scorer and the producer for bursts of one prefix are not here.
// Source: llm-d/llm-d-router, pkg/epp/framework/plugins/scheduling; spec: policies 3.4.

// LLMD declares the scheduler of llm-d: weighted scorers, a filter and a picker.
func LLMD() policies.Declaration {
	return policies.Declaration{
		Name: "llm-d",
		Doc: "Takes the largest weighted sum of scores from 0 to 1, drawn on a tie. Preset default weighs queue 2, KV usage 2 and prefix 3; precise-prefix weighs 1, 1 and 2 and goes by KV events; " +
			"payload-agnostic weighs turns in flight 1 and session affinity 1.",
		Source:    "llm-d/llm-d-router, pkg/epp; spec: policies 3.4",
		Needs:     policies.NeedsSamples | policies.NeedsKVEvents,
		NeedsWith: withoutEvents(policies.NeedsSamples|policies.NeedsKVEvents, llmdEvents),
		Missing: "A replica without a sample counts its turns in flight as waiting and as running, and the mean usage of the others as its own. " +
			"With prefix events, a replica that sends none is taken to hold what was sent there.",
		Knobs:     append(llmdKnobs(), llmdWeightKnobs()...),
		NewRouter: newLLMD,
	}
}

func llmdKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "preset", Kind: policies.EnumKnob, Default: policies.Value{Text: "default"}, Enum: []string{"default", "precise-prefix", "payload-agnostic"}, Doc: "which profile the weights and the prefix index come from"},
		{Name: "prefix", Kind: policies.EnumKnob, Default: policies.Value{Text: "preset"}, Enum: []string{"preset", "approximate", "events"}, Doc: "what says where a prefix is: what was sent, or KV events"},
		{Name: "block_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 64}, Min: 1, Max: 1e6, Unit: "tokens", Doc: "prefix approximate: size of a block"},
		{Name: "lru_blocks", Kind: policies.IntKnob, Default: policies.Value{Number: 31250}, Min: 1, Max: 1e9, Unit: "blocks", Doc: "prefix approximate: blocks remembered for each replica"},
		{Name: "max_prefix_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 131072}, Min: 1, Max: 1e9, Unit: "tokens", Doc: "how much of a prompt is looked up"},
		{Name: "load_threshold", Kind: policies.IntKnob, Default: policies.Value{Number: 128}, Min: 1, Max: 1e6, Unit: "requests", Doc: "load-aware: requests waiting that score 0"},
		{Name: "idle_threshold", Kind: policies.IntKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e6, Unit: "turns", Doc: "active-request: turns in flight that score 1"},
		{Name: "max_busy_score", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1, Doc: "active-request: what a replica that is not idle scores at most"},
		{Name: "token_load_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 1 << 22}, Min: 1, Max: 1e9, Unit: "tokens", Doc: "token-load: uncached tokens that score 0"},
		{Name: "session_ttl_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 300}, Min: 0, Max: 1e6, Unit: "s", Doc: "session-affinity: how long a session may be idle and keep its replica; 0 for ever"},
		{Name: "affinity_filter", Kind: policies.BoolKnob, Default: policies.Value{Bool: false}, Doc: "whether only replicas with enough of the prefix are scored, if there are any"},
		{Name: "affinity_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: .8}, Min: 0, Max: 1, Unit: "fraction", Doc: "affinity filter: prefix score that is enough"},
		{Name: "affinity_penalty_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 18}, Min: 0, Max: 1e6, Unit: "s", Doc: "affinity filter: all are scored if the best of these is later than the best of all by more"},
		{Name: "affinity_rate", Kind: policies.FloatKnob, Default: policies.Value{Number: 15928}, Min: 1, Max: 1e9, Unit: "tokens/s", Doc: "affinity filter: prefill rate that turns queued tokens into time"},
	}
}

// llmdScorers are the names of the scorers, in the order of llmdWeights.
var llmdScorers = []string{
	"queue", "running_requests", "kv_cache_utilization", "load_aware", "active_request", "token_load", "prefix_cache", "no_hit_lru", "session_affinity",
}

// llmdWeights are the weights of the presets.
var llmdWeights = map[string][]float64{
	"default":          {2, 0, 2, 0, 0, 0, 3, 0, 0},
	"precise-prefix":   {1, 0, 1, 0, 0, 0, 2, 0, 0},
	"payload-agnostic": {0, 0, 0, 0, 1, 0, 0, 0, 1},
}

func llmdWeightKnobs() []policies.Knob {
	var knobs []policies.Knob
	for _, name := range llmdScorers {
		knobs = append(knobs, policies.Knob{Name: name + "_weight", Kind: policies.FloatKnob, Default: policies.Value{Number: -1}, Min: -1, Max: 1000,
			Doc: "weight of this scorer, in steps of 0.001; 0 leaves it out and -1 takes the preset's"})
	}
	return knobs
}

type llmd struct {
	seed      uint64
	maxPrefix int32
	terms     []policies.Weighted
	names     []string // of terms
	filter    affinityFilter
	resident  residency
	lookup    llmdLookup
	noHit     *noHitLRU
	sessions  *sessionAffinity

	totals, scratch []int64
	candidates      []policies.ReplicaID
	ties            ties[int64]
}

// llmdLookup is what the turn that is being scored finds where; scorers share it.
type llmdLookup struct {
	block   int32
	hits    []int32 // tokens, by replica
	total   int64   // full blocks that were looked up
	nowhere bool    // no replica that is up holds any of it
}

// part is the prefix score of r.
func (l *llmdLookup) part(r policies.ReplicaID) int64 {
	if l.total == 0 {
		return 0
	}
	return policies.Part(int64(l.hits[r]/l.block), l.total)
}

// llmdEvents says whether the knobs have KV events say where a prefix is.
func llmdEvents(p policies.Params) bool {
	return p["prefix"].Text == "events" || p["prefix"].Text == "preset" && p["preset"].Text == "precise-prefix"
}

func newLLMD(e policies.Env, p policies.Params) policies.Router {
	preset := p["preset"].Text
	events := llmdEvents(p)
	block, capacity := int32(p["block_tokens"].Number), int64(p["lru_blocks"].Number)
	if events {
		block, capacity = blockTokensOf(e), 0
	}
	m := &llmd{
		seed: e.Seed, maxPrefix: int32(p["max_prefix_tokens"].Number),
		filter: affinityFilter{
			on: p["affinity_filter"].Bool, least: int64(p["affinity_threshold"].Number * float64(policies.ScoreOne)),
			penalty: p["affinity_penalty_s"].Number, rate: p["affinity_rate"].Number,
		},
		resident: residency{events: events, sent: policies.NewApproxIndex(block, capacity, policies.Never)},
		lookup:   llmdLookup{block: block},
	}
	m.noHit = &noHitLRU{lookup: &m.lookup}
	m.sessions = &sessionAffinity{places{idle: secondsOrNever(p["session_ttl_s"].Number)}}
	scorers := []policies.Scorer{
		queueScorer{}, runningScorer{}, kvUsageScorer{}, loadAwareScorer{int64(p["load_threshold"].Number)},
		activeRequestScorer{int32(p["idle_threshold"].Number), int64(p["max_busy_score"].Number * float64(policies.ScoreOne))},
		tokenLoadScorer{int64(p["token_load_tokens"].Number), &m.lookup}, prefixScorer{&m.lookup}, m.noHit, m.sessions,
	}
	for i, s := range scorers {
		weight := p[llmdScorers[i]+"_weight"].Number
		if weight < 0 {
			weight = llmdWeights[preset][i]
		}
		if n, _ := exact.RoundToInt64(float64(weight * 1000)); n > 0 {
			m.terms = append(m.terms, policies.Weighted{Scorer: s, Weight: n})
			m.names = append(m.names, llmdScorers[i])
		}
	}
	return m
}

func (m *llmd) Observe(_ policies.Time, _ *policies.View, f *policies.Fact) {
	m.resident.observe(f)
	if f.Kind == policies.SessionFinished {
		m.sessions.forget(int32(f.Session))
	}
}

func (m *llmd) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to := m.Peek(now, v, t)
	if to != policies.NoReplica {
		m.resident.sent.Insert(now, v, m.looked(t.Prompt), to)
		if m.lookup.nowhere {
			m.noHit.used(to)
		}
		m.sessions.put(now, int32(t.Session), to)
	}
	return to, policies.BestScore
}

// looked is as much of p as is looked up.
func (m *llmd) looked(p prefix.Prefix) prefix.Prefix {
	p.Tokens = min(p.Tokens, m.maxPrefix)
	return p
}

func (m *llmd) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	for len(m.totals) < v.Replicas() {
		m.totals, m.scratch = append(m.totals, 0), append(m.scratch, 0)
	}
	up, l := v.Up(), &m.lookup
	p := m.looked(t.Prompt)
	l.hits, l.total, l.nowhere = m.resident.hits(now, v, p), int64(p.Tokens/l.block), true
	for _, r := range up {
		l.nowhere = l.nowhere && l.hits[r] < l.block
	}
	m.candidates = m.filter.keep(v, l, append(m.candidates[:0], up...))
	policies.AddScores(now, v, t, m.terms, m.totals, m.scratch)
	m.ties.reset()
	for _, r := range m.candidates {
		m.ties.offer(r, -m.totals[r])
	}
	return m.ties.draw(m.seed, llmdDraw, t.Attempt)
}

// llmdDraw parts these draws from others with the same seed.
const llmdDraw = 0x6c6c6d64

// affinityFilter keeps the replicas that hold enough of a prompt.
type affinityFilter struct {
	on            bool
	least         int64 // prefix score
	penalty, rate float64
}

// keep drops from candidates, which it overwrites, those with too little of the prompt; none if all have too little or
// the best of the others would start so much later.
func (f *affinityFilter) keep(v *policies.View, l *llmdLookup, candidates []policies.ReplicaID) []policies.ReplicaID {
	if !f.on {
		return candidates
	}
	n := 0
	var least, leastKept int64
	for i, r := range candidates {
		queued := v.QueuedTokens(r)
		if i == 0 || queued < least {
			least = queued
		}
		if l.part(r) >= f.least && (n == 0 || queued < leastKept) {
			leastKept = queued
		}
		if l.part(r) >= f.least {
			n++
		}
	}
	if n == 0 || float64(leastKept-least)/f.rate > f.penalty {
		return candidates
	}
	kept := candidates[:0]
	for _, r := range candidates {
		if l.part(r) >= f.least {
			kept = append(kept, r)
		}
	}
	return kept
}

// ScoreTerms implements policies.Scored: the scorers that have a weight, as many as a log takes.
func (m *llmd) ScoreTerms() ([]string, bool) {
	return m.names[:min(len(m.names), policies.MaxScoreTerms)], false
}

// Scores implements policies.Scored: the weighted sum, and what each scorer says before it is weighted.
func (m *llmd) Scores(now policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	m.Peek(now, v, t)
	first := len(dst)
	for _, r := range m.candidates {
		dst = append(dst, policies.ReplicaScore{Replica: r, Score: float64(m.totals[r]) / 1000 / float64(policies.ScoreOne)})
	}
	for i, term := range m.terms[:min(len(m.terms), policies.MaxScoreTerms)] {
		clear(m.scratch)
		term.Scorer.Score(now, v, t, m.scratch)
		for k := range dst[first:] {
			s := &dst[first+k]
			s.Terms[i] = float64(m.scratch[s.Replica]) / float64(policies.ScoreOne)
		}
	}
	return dst
}
