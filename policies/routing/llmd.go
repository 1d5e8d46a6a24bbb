package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Reads samples (waiting, running, usage) as they are, without its own dispatches; the ledger's turns in flight and
// tokens in flight; with prefix events KV events. Keeps what it sent where, which replica each session went to, and which
// replicas took prompts that nobody held. Filters leave candidates, scorers score all, and the picker takes a candidate by
// the weighted sums; ties are drawn from, as everything that is drawn, by a hash of the seed and the attempt.
// Source: llm-d/llm-d-router, pkg/epp/framework/plugins/scheduling and requestcontrol/dataproducer; spec: policies 3.4.
//
// Filters come in the order utilization, session, strict affinity, affinity. What a replica that went down held is
// forgotten at once; the original looks every 2 minutes whether a replica is still there.

// LLMD declares the scheduler of llm-d: filters, weighted scorers and a picker.
func LLMD() policies.Declaration {
	return policies.Declaration{
		Name: "llm-d",
		Doc: "Takes the largest weighted sum of scores from 0 to 1, drawn on a tie, of the replicas that its filters leave. Preset default weighs queue 2, KV usage 2 and prefix 3; precise-prefix weighs 1, 1 and 2 and goes by KV events; " +
			"payload-agnostic weighs turns in flight 1 and session affinity 1.",
		Source:    "llm-d/llm-d-router, pkg/epp; spec: policies 3.4",
		Needs:     policies.NeedsSamples | policies.NeedsKVEvents,
		NeedsWith: withoutEvents(policies.NeedsSamples|policies.NeedsKVEvents, llmdEvents),
		Missing: "A replica without a sample counts its turns in flight as waiting and as running, and the mean usage of the others as its own; the utilization filter drops it. " +
			"With prefix events, a replica that sends none is taken to hold what was sent there.",
		Omits: "the latency scorer, the filter by SLO headroom and so the predicted-latency profile are not built: they ask llm-d's trained latency predictor. " +
			"Nor is the burst-prefix producer, which keeps turns for 100 ms to place them together: a router must place a turn at once. " +
			"A second turn of a burst finds what the first left in the approximate index or, with speculative_indexing, beside KV events. autotune is on in llm-d where engines tell their block size.",
		Knobs:     llmdKnobs(),
		NewRouter: newLLMD,
	}
}

type llmd struct {
	maxPrefix int32
	terms     []policies.Weighted
	names     []string // of terms
	lookup    llmdLookup
	loads     llmdLoads
	noHit     *noHitLRU
	sessions  *sessionAffinity

	utilization utilizationFilter
	session     sessionFilter
	affinity    affinityFilters
	picker      llmdPicker

	totals, scratch []int64
	candidates      []policies.ReplicaID
}

func newLLMD(e policies.Env, p policies.Params) policies.Router {
	m := &llmd{
		maxPrefix: int32(p["max_prefix_tokens"].Number), lookup: newLLMDLookup(e, p),
		utilization: newUtilizationFilter(p), affinity: newAffinityFilters(e, p), picker: llmdPicker{kind: p["picker"].Text, seed: e.Seed},
	}
	m.noHit = &noHitLRU{lookup: &m.lookup}
	m.sessions = &sessionAffinity{places{idle: secondsOrNever(p["session_ttl_s"].Number)}}
	m.session = sessionFilter{p["session_filter"].Bool, m.sessions}
	scorers := []policies.Scorer{
		queueScorer{&m.loads}, runningScorer{&m.loads}, kvUsageScorer{&m.loads}, loadAwareScorer{&m.loads, int64(p["load_threshold"].Number)},
		activeRequestScorer{&m.loads, int64(p["idle_threshold"].Number), int64(p["max_busy_score"].Number * float64(policies.ScoreOne))},
		tokenLoadScorer{int64(p["token_load_tokens"].Number), &m.lookup}, newPrefixScorer(p, &m.lookup), m.noHit, m.sessions,
	}
	for i, s := range scorers {
		weight := p[llmdScorers[i]+"_weight"].Number
		if weight < 0 {
			weight = llmdWeights[p["preset"].Text][i]
		}
		if n, _ := exact.RoundToInt64(float64(weight * 1000)); n > 0 {
			m.terms = append(m.terms, policies.Weighted{Scorer: s, Weight: n})
			m.names = append(m.names, llmdScorers[i])
		}
	}
	return m
}

func (m *llmd) Observe(_ policies.Time, _ *policies.View, f *policies.Fact) {
	m.lookup.observe(f)
	if f.Kind == policies.SessionFinished {
		m.sessions.forget(int32(f.Session))
	}
}

func (m *llmd) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to := m.Peek(now, v, t)
	if to == policies.NoReplica {
		return to, policies.NoReplicaUp
	}
	m.lookup.sent(now, v, m.looked(t.Prompt), to)
	if m.lookup.nowhere {
		m.noHit.used(to)
	}
	if !v.SessionEnded(t.Session) { // its number may be given to another
		m.sessions.put(now, int32(t.Session), to)
	}
	return to, m.picker.reason()
}

// looked is as much of p as is looked up.
func (m *llmd) looked(p prefix.Prefix) prefix.Prefix {
	p.Tokens = min(p.Tokens, m.maxPrefix)
	return p
}

func (m *llmd) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	m.filter(now, v, t)
	if len(m.candidates) == 1 {
		return m.candidates[0]
	}
	m.score(now, v, t)
	return m.picker.pick(m.candidates, m.totals, t.Attempt)
}

// filter looks the prompt up and leaves the candidates.
func (m *llmd) filter(now policies.Time, v *policies.View, t *policies.Turn) {
	m.lookup.find(now, v, m.looked(t.Prompt))
	m.candidates = m.utilization.keep(now, v, append(m.candidates[:0], v.Up()...))
	m.candidates = m.session.keep(now, t, m.candidates)
	m.candidates = m.affinity.keep(v, &m.lookup, t.Attempt, m.candidates)
}

// score sums up what the scorers say of every replica.
func (m *llmd) score(now policies.Time, v *policies.View, t *policies.Turn) {
	for len(m.totals) < v.Replicas() {
		m.totals, m.scratch = append(m.totals, 0), append(m.scratch, 0)
	}
	m.loads.read(v)
	policies.AddScores(now, v, t, m.terms, m.totals, m.scratch)
}

// ScoreTerms implements policies.Scored: the scorers that have a weight, as many as a log takes.
func (m *llmd) ScoreTerms() ([]string, bool) {
	return m.names[:min(len(m.names), policies.MaxScoreTerms)], false
}

// Scores implements policies.Scored: the weighted sum, and what each scorer says before it is weighted.
func (m *llmd) Scores(now policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	m.filter(now, v, t)
	m.score(now, v, t)
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
