package routing

import "github.com/sluice-sim/sluice/policies"

// Reads resident prefixes, the ledger's uncached tokens that are queued (Q) and the number of requests (BS). Keeps the
// replicas in groups of equal hits and batch size, by Q; with the detector, the classes of recent turns instead. Ties go to
// the lowest replica.
// Source: arXiv 2603.15202; Dynamo's lmetric plugin; spec: policies 3.9.

// LMetric declares the router that takes the smallest product of new tokens and batch size.
func LMetric() policies.Declaration {
	return policies.Declaration{
		Name:    "lmetric",
		Doc:     "Takes the smallest (queued prefill tokens + this prompt's uncached tokens) x (requests + 1); lowest replica on a tie.",
		Source:  "arXiv 2603.15202; spec: policies 3.9",
		Needs:   policies.NeedsSamples | policies.NeedsKVEvents,
		Missing: "Without a sample the turns in flight count. Without KV events a thread's last turn is taken to be resident where it went, and nothing else.",
		Knobs: []policies.Knob{
			{Name: "include_queue", Kind: policies.BoolKnob, Default: policies.Value{Bool: true}, Doc: "whether tokens of turns that are queued count, not only this turn's"},
			{Name: "bs_plus_one", Kind: policies.BoolKnob, Default: policies.Value{Bool: true}, Doc: "whether this turn counts as a request; if not, an idle replica scores 0 whatever it holds"},
			{Name: "hotspot_detector", Kind: policies.BoolKnob, Default: policies.Value{Bool: false},
				Doc: "whether a prefix that is asked for far more often than replicas hold it is sent to another one now and then"},
			{Name: "hotspot_window_turns", Kind: policies.IntKnob, Default: policies.Value{Number: 1000}, Min: 1, Max: 1e6, Unit: "turns", Doc: "detector: how many turns are recent"},
			batchKnob(),
		},
		NewRouter: func(e policies.Env, p policies.Params) policies.Router {
			m := &lmetric{queue: p["include_queue"].Bool, plusOne: p["bs_plus_one"].Bool, batch: batchOf(p)}
			m.rank = policies.NewRanking(true, m.place)
			if p["hotspot_detector"].Bool {
				m.hot = &hotspots{window: int(p["hotspot_window_turns"].Number), block: blockTokensOf(e)}
			}
			return m
		},
	}
}

type lmetric struct {
	queue, plusOne bool
	batch          batchSource
	rank           *policies.Ranking
	hits           []int32
	hot            *hotspots // nil without the detector
}

func (*lmetric) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (m *lmetric) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	if m.hot == nil {
		return m.Peek(now, v, t), policies.BestScore
	}
	d := m.hot.choose(m, v, t)
	if d.to != policies.NoReplica {
		m.hot.note(d)
	}
	return d.to, d.why
}

func (m *lmetric) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	if m.hot != nil {
		return m.hot.choose(m, v, t).to
	}
	m.rank.Ask(v, t)
	return m.rank.Lowest(func(g policies.Group, queued int64) int64 {
		return lmetricScore(queued, t.Prompt.Tokens-g.Hit, g.A)
	})
}

// place puts r into the group of its batch size.
func (m *lmetric) place(v *policies.View, r policies.ReplicaID) policies.Place {
	p := policies.Place{A: m.batch.of(v, r)}
	if m.plusOne {
		p.A++
	}
	if m.queue {
		p.Key = v.QueuedTokens(r)
	}
	return p
}

// lmetricScore is (queued + n) x batch, with at least one new token.
func lmetricScore(queued int64, n int32, batch int64) int64 {
	return (queued + int64(max(n, 1))) * batch
}
