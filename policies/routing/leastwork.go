package routing

import "github.com/sluice-sim/sluice/policies"

// Reads resident prefixes, the ledger's uncached tokens that are queued (Q), their attention moment and turns in flight.
// Keeps nothing. Ties go to the fewest turns in flight, then to the lowest replica.
// Source: LPWL of the agentic-kvc benchmark; spec: papers, routing policies; policies 3.11 for the moment.

// LeastWork declares the router that takes the replica that would have computed this prompt first (LPWL).
func LeastWork() policies.Declaration {
	return policies.Declaration{
		Name:   "least-work",
		Doc:    "Takes the least pending prefill work, this prompt's uncached tokens included; fewest turns in flight, then lowest replica, on a tie.",
		Source: "agentic-kvc, LPWL; spec: policies 0, 3.11",
		Needs:  policies.NeedsKVEvents,
		Missing: "Without KV events a thread's last turn is taken to be resident where it went, and nothing else. " +
			"Without the context at which attention doubles, attention costs nothing.",
		Knobs: []policies.Knob{
			{Name: "attention", Kind: policies.BoolKnob, Default: policies.Value{Bool: true},
				Doc: "whether a token with much context before it counts for more; false is the published rule, which counts tokens"},
			{Name: "attention_doubling_tokens", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e9, Unit: "tokens",
				Doc: "context at which attention doubles the cost of a prefill token (L_eq); 0 takes the replica's own"},
		},
		NewRouter: func(e policies.Env, p policies.Params) policies.Router {
			return &leastWork{attention: p["attention"].Bool, doubling: p["attention_doubling_tokens"].Number, fallback: e.Capability}
		},
	}
}

type leastWork struct {
	attention bool
	doubling  float64
	fallback  policies.Capability
	hits      []int32
}

func (*leastWork) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (m *leastWork) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return m.Peek(now, v, t), policies.LeastLoaded
}

func (m *leastWork) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	m.hits = hitsOf(v, t, m.hits)
	best, least := policies.NoReplica, 0.0
	for _, r := range v.Up() {
		work := m.work(v, t, r)
		if best == policies.NoReplica || work < least || work == least && v.InFlight(r) < v.InFlight(best) {
			best, least = r, work
		}
	}
	return best
}

// work is what r has to compute until t has its first token; m.hits are t's.
func (m *leastWork) work(v *policies.View, t *policies.Turn, r policies.ReplicaID) float64 {
	doubling := 0.0
	if m.attention {
		doubling = firstPositive(m.doubling, v.Capability(r).AttentionDoubling, m.fallback.AttentionDoubling)
	}
	return pendingWork(v.QueuedTokens(r), v.QueuedMoment(r), t.Prompt.Tokens-m.hits[r], t.Prompt.Tokens, doubling)
}

// pendingWork is what a replica has to compute until the last n of a prompt's l tokens are done, in tokens at the cost of
// an empty context.
func pendingWork(queued, moment int64, n, l int32, doubling float64) float64 {
	return queuedWork(queued, moment, doubling) + prefillWork(n, l, doubling)
}

// ScoreTerms implements policies.Scored.
func (*leastWork) ScoreTerms() ([]string, bool) {
	return []string{"hit_tokens", "uncached_tokens", "queued_tokens", "in_flight"}, true
}

// Scores implements policies.Scored.
func (m *leastWork) Scores(_ policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	m.hits = hitsOf(v, t, m.hits)
	for _, r := range v.Up() {
		s := policies.ReplicaScore{Replica: r, Score: m.work(v, t, r)}
		s.Terms = [policies.MaxScoreTerms]float64{float64(m.hits[r]), float64(t.Prompt.Tokens - m.hits[r]), float64(v.QueuedTokens(r)), float64(v.InFlight(r))}
		dst = append(dst, s)
	}
	return dst
}
