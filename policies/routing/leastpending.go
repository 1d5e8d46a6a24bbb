package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// Reads the ledger's uncached tokens that are queued (Q). With a half-life it keeps the prompt tokens dispatched to each
// replica, which fade. Ties go to the lowest replica. Source: elementary; spec: policies 0 and 3.1.

// LeastPendingTokens declares the router that takes the replica with the fewest tokens to prefill.
func LeastPendingTokens() policies.Declaration {
	return policies.Declaration{
		Name:    "least-pending-tokens",
		Doc:     "Takes the replica with the fewest uncached prompt tokens dispatched and not yet computed, by the router's own ledger; lowest replica on a tie.",
		Source:  "elementary; spec: policies 0 and 3.1",
		Needs:   policies.NeedsKVEvents,
		Missing: "Without KV events a thread's last turn is taken to be cached where it went, and nothing else.",
		Knobs: []policies.Knob{{
			Name: "half_life_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "prompt tokens of past dispatches count too, half as much after each such time; 0 counts only what is pending",
		}},
		NewRouter: func(_ policies.Env, p policies.Params) policies.Router {
			return &leastPending{halfLife: p["half_life_s"].Number}
		},
	}
}

type leastPending struct {
	halfLife float64 // s
	recent   []fading
}

// fading is an amount that halves with time.
type fading struct {
	amount float64
	at     policies.Time
}

// left is what is left of it at now.
func (f fading) left(now policies.Time, halfLife float64) float64 {
	if f.amount == 0 {
		return 0
	}
	return float64(f.amount * exact.Exp2(-float64(now-f.at)/(halfLife*float64(policies.Second))))
}

func (m *leastPending) Observe(_ policies.Time, _ *policies.View, f *policies.Fact) {
	if (f.Kind == policies.ReplicaDown || f.Kind == policies.ReplicaRestarted) && int(f.Replica) < len(m.recent) {
		m.recent[f.Replica] = fading{}
	}
}

func (m *leastPending) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to := m.Peek(now, v, t)
	if m.halfLife > 0 && to != policies.NoReplica {
		for len(m.recent) < v.Replicas() {
			m.recent = append(m.recent, fading{})
		}
		m.recent[to] = fading{m.recent[to].left(now, m.halfLife) + float64(t.Prompt.Tokens), now}
	}
	return to, policies.LeastLoaded
}

// load is what is pending on r and what is left of what was sent there.
func (m *leastPending) load(now policies.Time, v *policies.View, r policies.ReplicaID) float64 {
	load := float64(v.QueuedTokens(r))
	if int(r) < len(m.recent) {
		load += m.recent[r].left(now, m.halfLife)
	}
	return load
}

func (m *leastPending) Peek(now policies.Time, v *policies.View, _ *policies.Turn) policies.ReplicaID {
	best, least := policies.NoReplica, 0.0
	for _, r := range v.Up() {
		load := m.load(now, v, r)
		if best == policies.NoReplica || load < least {
			best, least = r, load
		}
	}
	return best
}

// ScoreTerms implements policies.Scored.
func (*leastPending) ScoreTerms() ([]string, bool) {
	return []string{"queued_tokens", "recent_tokens"}, true
}

// Scores implements policies.Scored.
func (m *leastPending) Scores(now policies.Time, v *policies.View, _ *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	for _, r := range v.Up() {
		s := policies.ReplicaScore{Replica: r, Score: m.load(now, v, r)}
		s.Terms[0] = float64(v.QueuedTokens(r))
		s.Terms[1] = s.Score - s.Terms[0]
		dst = append(dst, s)
	}
	return dst
}
