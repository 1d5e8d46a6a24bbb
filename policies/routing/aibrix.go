package routing

import (
	"math"

	"github.com/sluice-sim/sluice/policies"
)

// Reads the ledger's in-flight counts (R; AIBrix counts requests in real time, too). Keeps what it sent where, in one table
// for all replicas, of which each has an equal part here. Equal matches go to the fewest in flight; among equal ones of
// these it draws, by a hash of the seed and the attempt. Matches are whole per cent, as there.
// Source: vllm-project/aibrix, pkg/plugins/gateway/algorithms; spec: policies 3.6.

// AIBrixPrefixCache declares the prefix-cache router of AIBrix.
func AIBrixPrefixCache() policies.Declaration {
	return policies.Declaration{
		Name: "aibrix-prefix-cache",
		Doc: "Takes the replica that was sent most of the prompt among those whose turns in flight are within a standard deviation of the mean; " +
			"only those with the fewest are asked while the loads are too far apart.",
		Source:  "vllm-project/aibrix, pkg/plugins/gateway/algorithms; spec: policies 3.6",
		Missing: "It reads no signal.",
		Omits:   "blocks are of tokens, not of 4 characters; the one table for all replicas is an equal part for each.",
		Knobs: []policies.Knob{
			{Name: "imbalance", Kind: policies.IntKnob, Default: policies.Value{Number: 8}, Min: 0, Max: 1e6, Unit: "turns", Doc: "loads are too far apart if the most turns in flight exceed the fewest by more"},
			{Name: "deviations", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1000, Doc: "bound on turns in flight: the mean and so many standard deviations"},
			{Name: "block_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 1}, Min: 1, Max: 1e6, Unit: "tokens", Doc: "size of a block; AIBrix's own is 4 characters"},
			{Name: "table_blocks", Kind: policies.IntKnob, Default: policies.Value{Number: 200000}, Min: 1, Max: 1e9, Unit: "blocks", Doc: "blocks remembered over all replicas; the least recently sent are forgotten first"},
			{Name: "ttl_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1200}, Min: 0, Max: 1e6, Unit: "s", Doc: "how long what was sent is remembered; 0 for ever"},
		},
		NewRouter: func(e policies.Env, p policies.Params) policies.Router {
			return &aibrix{
				seed: e.Seed, imbalance: int32(p["imbalance"].Number), deviations: p["deviations"].Number,
				block: int32(p["block_tokens"].Number), table: int64(p["table_blocks"].Number), ttl: secondsOrNever(p["ttl_s"].Number),
			}
		},
	}
}

type aibrix struct {
	seed       uint64
	imbalance  int32
	deviations float64
	block      int32
	table      int64
	ttl        policies.Time
	resident   residency
	ties       ties[int64]
}

func (m *aibrix) Observe(_ policies.Time, v *policies.View, f *policies.Fact) {
	m.prepare(v)
	m.resident.observe(f)
}

// prepare makes the table once it is known how many share it.
func (m *aibrix) prepare(v *policies.View) {
	if m.resident.sent == nil {
		m.resident.sent = policies.NewApproxIndex(m.block, max(1, m.table/int64(max(1, v.Replicas()))), m.ttl)
	}
}

func (m *aibrix) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to, why := m.choose(now, v, t)
	if to != policies.NoReplica {
		m.resident.sent.Insert(now, v, t.Prompt, to)
	}
	return to, why
}

func (m *aibrix) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	to, _ := m.choose(now, v, t)
	return to
}

func (m *aibrix) choose(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	up := v.Up()
	if len(up) == 0 {
		return policies.NoReplica, policies.NoReplicaUp
	}
	m.prepare(v)
	hits := m.resident.hits(now, v, t.Prompt)
	least, most := v.InFlight(up[0]), v.InFlight(up[0])
	sum, squares := int64(0), int64(0)
	for _, r := range up {
		f := v.InFlight(r)
		least, most = min(least, f), max(most, f)
		sum, squares = sum+int64(f), squares+int64(f)*int64(f)
	}
	apart := most-least > m.imbalance
	bound := deviationBound(sum, squares, int64(len(up)), m.deviations)
	matched := false
	m.ties.reset()
	for _, r := range up {
		f := v.InFlight(r)
		if apart && f > least || float64(f) > bound {
			continue
		}
		percent := matchPercent(hits[r]/m.block, t.Prompt.Tokens/m.block)
		matched = matched || percent > 0
		m.ties.offer(r, int64(f)-percent<<32) // more matched first, then fewer in flight
	}
	why := policies.LeastLoaded
	switch {
	case len(m.ties.equal) == 0: // nobody is within the bound
		for _, r := range up {
			m.ties.offer(r, int64(v.InFlight(r)))
		}
	case apart:
		why = policies.Imbalanced
	case matched:
		why = policies.HomeHit
	}
	return m.ties.draw(m.seed, aibrixDraw, t.Attempt), why
}

// aibrixDraw parts these draws from others with the same seed.
const aibrixDraw = 0x616962726978

// matchPercent is matched of total blocks, in whole per cent.
func matchPercent(matched, total int32) int64 {
	if total == 0 {
		return 0
	}
	return 100 * int64(matched) / int64(total)
}

// deviationBound is the mean of n numbers with this sum and sum of squares, and k sample standard deviations.
func deviationBound(sum, squares, n int64, k float64) float64 {
	if n < 2 {
		return float64(sum)
	}
	variance := float64(n*squares-sum*sum) / float64(n*(n-1))
	return float64(sum)/float64(n) + float64(k*math.Sqrt(variance))
}

// ScoreTerms implements policies.Scored.
func (*aibrix) ScoreTerms() ([]string, bool) { return []string{"hit_tokens", "in_flight"}, false }

// Scores implements policies.Scored: the match in per cent, of all replicas, those that are over the bound included.
func (m *aibrix) Scores(now policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	m.prepare(v)
	hits := m.resident.hits(now, v, t.Prompt)
	for _, r := range v.Up() {
		s := policies.ReplicaScore{Replica: r, Score: float64(matchPercent(hits[r]/m.block, t.Prompt.Tokens/m.block))}
		s.Terms[0], s.Terms[1] = float64(hits[r]), float64(v.InFlight(r))
		dst = append(dst, s)
	}
	return dst
}
