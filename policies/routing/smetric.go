package routing

import (
	"math"

	"github.com/sluice-sim/sluice/policies"
)

// Reads resident prefixes, the ledger's queued prefill tokens with their attention moment, decode tokens, the number of
// requests, the history of the thread and, with the decode mask, the progress of decodes. Keeps a counter for ties, and the
// replicas in groups of equal hits, in the order of what the spill score rests on. The home is the lowest replica among equal
// hits; equal spill scores are taken in turn.
// Source: arXiv 2607.08565 and a public evaluation harness of it; spec: policies 3.11. There is no global store, and so no
// rescue from one: no fact says what a store holds.

// SMetric declares the session-centric router with the choices of its co-located deployment.
func SMetric() policies.Declaration {
	return smetricDeclaration("smetric",
		"Keeps a later turn on the replica with the longest resident prefix while its own prefill backlog fits a TTFT budget; otherwise the least prefill work, attention included.",
		gateBudgetAttention, spillPrefillWorkAttention)
}

// SMetricFigure declares the session-centric router as its paper's figure draws it.
func SMetricFigure() policies.Declaration {
	return smetricDeclaration("smetric-figure",
		"The router smetric as its paper's figure draws it: a later turn stays on the replica with the longest resident prefix unless that is overloaded; otherwise the smallest load.",
		gateOverload, spillLoad)
}

// The variants of a part, in the order of their names.
type (
	smetricGate  uint8
	smetricSpill uint8
)

const (
	gateOverload smetricGate = iota
	gateBudget
	gateBudgetAttention
)

const (
	spillLoad smetricSpill = iota
	spillLMetric
	spillLMetricAttention
	spillPrefillWorkAttention
	spillDynamo
)

var (
	gateNames  = []string{"overload", "budget", "budget_attention"}
	spillNames = []string{"load", "lmetric", "lmetric_attention", "prefill_work_attention", "dynamo"}
)

func smetricDeclaration(name, doc string, gate smetricGate, spill smetricSpill) policies.Declaration {
	return policies.Declaration{
		Name:      name,
		Doc:       doc,
		Source:    "arXiv 2607.08565; spec: policies 3.11",
		Needs:     policies.NeedsSamples | policies.NeedsKVEvents | policies.NeedsProgress,
		NeedsWith: smetricSignals,
		Missing: "Without a sample the turns in flight count. Without KV events a thread's last turn is taken to be resident where it went, and nothing else. " +
			"Without a prefill rate the budget gates judge by overload, of queued tokens alone, and the decode mask is off; without the context at which attention doubles, attention costs nothing. " +
			"Without progress a decode counts as having produced one token.",
		Omits: "the rescue of a follow-up from a global store, which the paper's co-located deployment has on, is not built: there is no global store, and no fact that says what one holds. Nothing here stands in for it. " +
			"Nor are the experiments that the evaluation harness has off.",
		Knobs: []policies.Knob{
			{Name: "gate", Kind: policies.EnumKnob, Default: policies.Value{Text: gateNames[gate]}, Enum: gateNames, Doc: "what must hold of the home for a turn to stay"},
			{Name: "spill", Kind: policies.EnumKnob, Default: policies.Value{Text: spillNames[spill]}, Enum: spillNames, Doc: "what the others are chosen by"},
			{Name: "hit", Kind: policies.FloatKnob, Default: policies.Value{Number: .5}, Min: 0, Max: 1, Unit: "fraction", Doc: "share of the expected hit that must be exceeded at the home"},
			{Name: "expected_hit", Kind: policies.EnumKnob, Default: policies.Value{Text: "history"}, Enum: []string{"history", "prompt"},
				Doc: "what the expected hit is: the thread's previous prompt and output, or the whole prompt"},
			{Name: "gamma", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1000, Doc: "factor on the budget of 1 s + 62.5 ms for each 1000 prompt tokens"},
			{Name: "overload", Kind: policies.FloatKnob, Default: policies.Value{Number: 2}, Min: 0, Max: 1000, Doc: "gate overload: multiple of the mean load"},
			{Name: "request_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e6, Unit: "tokens", Doc: "gate overload, spill load: what a turn in flight adds to the load of queued and decode tokens"},
			{Name: "decode_mask", Kind: policies.BoolKnob, Default: policies.Value{Bool: false}, Doc: "avoid replicas where this prefill would make a decode late"},
			{Name: "tpot_s", Kind: policies.FloatKnob, Default: policies.Value{Number: .030}, Min: 0, Max: 60, Unit: "s", Doc: "decode mask: time per output token that a decode is due"},
			{Name: "drain_per_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e9, Unit: "tokens/s",
				Doc: "prefill rate, in the work units of the gate; 0 takes the replica's own"},
			{Name: "attention_doubling_tokens", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e9, Unit: "tokens",
				Doc: "context at which attention doubles the cost of a prefill token (L_eq); 0 takes the replica's own"},
			batchKnob(),
		},
		NewRouter: newSMetric,
	}
}

// smetricSignals is what is read with the knobs p: samples only for the number of requests, progress for the tokens that
// decode. Budget gates look at queued tokens alone, with a rate or without.
func smetricSignals(p policies.Params) policies.Signals {
	needs := policies.NeedsKVEvents
	spill := p["spill"].Text
	if (spill == spillNames[spillLMetric] || spill == spillNames[spillLMetricAttention]) && batchOf(p) != batchLedger {
		needs |= policies.NeedsSamples
	}
	loads := spill == spillNames[spillLoad] || spill == spillNames[spillDynamo]
	if loads || p["decode_mask"].Bool || p["gate"].Text == gateNames[gateOverload] {
		needs |= policies.NeedsProgress
	}
	return needs
}

type smetric struct {
	gate     smetricGate
	spill    smetricSpill
	hit      float64
	history  bool
	gamma    float64
	overload float64
	request  int64 // tokens
	mask     bool
	tpot     float64
	drain    float64
	doubling float64
	batch    batchSource
	fallback policies.Capability

	turns uint64 // ties that were broken
	rank  *policies.Ranking
	hits  []int32 // with the decode mask
	equal []policies.ReplicaID
}

func newSMetric(e policies.Env, p policies.Params) policies.Router {
	m := &smetric{
		hit: p["hit"].Number, history: p["expected_hit"].Text == "history", gamma: p["gamma"].Number, overload: p["overload"].Number, request: int64(p["request_tokens"].Number),
		mask: p["decode_mask"].Bool, tpot: p["tpot_s"].Number, drain: p["drain_per_s"].Number,
		doubling: p["attention_doubling_tokens"].Number, batch: batchOf(p), fallback: e.Capability,
	}
	for i, name := range gateNames {
		if name == p["gate"].Text {
			m.gate = smetricGate(i)
		}
	}
	for i, name := range spillNames {
		if name == p["spill"].Text {
			m.spill = smetricSpill(i)
		}
	}
	m.rank = policies.NewRanking(true, m.place)
	return m
}

func (*smetric) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (m *smetric) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to, why, ties := m.choose(now, v, t)
	if ties > 1 {
		m.turns++
	}
	return to, why
}

func (m *smetric) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	to, _, _ := m.choose(now, v, t)
	return to
}

// choose also says how many spill scores were equal to the winner's.
func (m *smetric) choose(now policies.Time, v *policies.View, t *policies.Turn) (to policies.ReplicaID, why policies.Reason, ties int) {
	m.rank.Ask(v, t)
	home, hit := m.rank.Longest()
	if home == policies.NoReplica {
		return policies.NoReplica, policies.NoReplicaUp, 0
	}
	if m.mask {
		m.hits = hitsOf(v, t, m.hits)
	}
	switch {
	case t.Number <= 1:
		why = policies.FirstPlacement
	case float64(hit) <= m.hit*float64(m.expected(v, t)):
		why = policies.HomeLost
	case m.fits(v, t, home, hit) && (!m.mask || m.safe(now, v, t, home)):
		return home, policies.HomeHit, 0
	default:
		why = policies.Spilled
	}
	to, ties = m.least(now, v, t)
	return to, why, ties
}

// expected is the hit that the turn would have where its thread ran last.
func (m *smetric) expected(v *policies.View, t *policies.Turn) int32 {
	if m.history {
		return min(v.History(t.Thread), t.Prompt.Tokens)
	}
	return t.Prompt.Tokens
}

// fits is the gate: whether the home, with its hit, has room for t.
func (m *smetric) fits(v *policies.View, t *policies.Turn, home policies.ReplicaID, hit int32) bool {
	n := len(v.Up())
	if m.gate == gateOverload {
		return overloadFits(m.load(v, home), m.loads(v), n, m.overload)
	}
	drain := m.drainOf(v, home, m.gate == gateBudgetAttention)
	switch {
	case drain <= 0:
		return overloadFits(v.QueuedTokens(home), v.UpQueuedTokens(), n, m.overload)
	case m.gate == gateBudget:
		return float64(v.QueuedTokens(home)+int64(t.Prompt.Tokens-hit))/drain <= m.gamma*ttftBudget(t.Prompt.Tokens)
	}
	doubling := m.doublingOf(v, home)
	return m.work(t, hit, queuedWork(v.QueuedTokens(home), v.QueuedMoment(home), doubling), doubling)/drain <= m.gamma*ttftBudget(t.Prompt.Tokens)
}

// safe is the decode mask: whether computing t's prompt on r would leave every decode there that is in time so.
func (m *smetric) safe(now policies.Time, v *policies.View, t *policies.Turn, r policies.ReplicaID) bool {
	drain := m.drainOf(v, r, true)
	if drain <= 0 {
		return true
	}
	took := prefillWork(t.Prompt.Tokens-m.hits[r], t.Prompt.Tokens, m.doublingOf(v, r)) / drain
	for le := v.FirstLease(r); le != nil; le = v.NextLease(le) {
		if !le.Decoding {
			continue
		}
		elapsed := float64(now-le.Admitted) / float64(policies.Second)
		if balance := decodeBalance(le.Prompt.Tokens, le.Output, m.tpot, elapsed); balance >= 0 && took > balance {
			return false
		}
	}
	return true
}

// least is the smallest spill score, among the safe replicas if the mask is on and there are any.
func (m *smetric) least(now policies.Time, v *policies.View, t *policies.Turn) (to policies.ReplicaID, ties int) {
	if m.mask {
		if to, ties = m.leastSafe(now, v, t); ties > 0 {
			return to, ties
		}
	}
	return m.rank.InTurn(func(g policies.Group, key int64) int64 { return ordered(m.spillScore(t, g, key)) }, m.turns)
}

// ordered is a whole number for every x from 0 on, in the same order.
func ordered(x float64) int64 { return int64(math.Float64bits(x)) }

// leastSafe is the smallest spill score among the safe replicas. Whether a replica is safe depends on every decode there
// and on the time, so it looks at all of them.
func (m *smetric) leastSafe(now policies.Time, v *policies.View, t *policies.Turn) (to policies.ReplicaID, ties int) {
	best, equal := 0.0, m.equal[:0]
	for _, r := range v.Up() {
		if !m.safe(now, v, t, r) {
			continue
		}
		switch s := m.score(v, t, r); {
		case len(equal) == 0 || s < best:
			best, equal = s, append(equal[:0], r)
		case s == best:
			equal = append(equal, r)
		}
	}
	m.equal = equal
	if len(equal) == 0 {
		return policies.NoReplica, 0
	}
	return equal[m.turns%uint64(len(equal))], len(equal)
}

// score is the spill score of r, whose hit is in m.hits.
func (m *smetric) score(v *policies.View, t *policies.Turn, r policies.ReplicaID) float64 {
	p := m.place(v, r)
	return m.spillScore(t, policies.Group{A: p.A, B: p.B, Hit: m.hits[r]}, p.Key)
}

// place puts r where its spill score depends on the hit and the key alone: the group of the batch size (A) and of the
// context at which attention doubles (B), as far as the score goes by them.
func (m *smetric) place(v *policies.View, r policies.ReplicaID) policies.Place {
	p := policies.Place{}
	if m.spill == spillLMetric || m.spill == spillLMetricAttention {
		p.A = m.batch.of(v, r)
	}
	switch m.spill {
	case spillLoad:
		p.Key = m.load(v, r)
	case spillDynamo:
		p.Key = v.QueuedTokens(r) + v.DecodeTokens(r)
	case spillLMetric:
		p.Key = v.QueuedTokens(r)
	case spillLMetricAttention, spillPrefillWorkAttention:
		doubling := m.doublingOf(v, r)
		p.B = ordered(doubling)
		p.Key = ordered(queuedWork(v.QueuedTokens(r), v.QueuedMoment(r), doubling))
	}
	return p
}

func (m *smetric) spillScore(t *policies.Turn, g policies.Group, key int64) float64 {
	switch m.spill {
	case spillLMetric:
		return float64(lmetricScore(key, t.Prompt.Tokens-g.Hit, g.A))
	case spillLMetricAttention:
		return float64(m.workOf(t, g, key) * float64(g.A))
	case spillPrefillWorkAttention:
		return m.workOf(t, g, key)
	case spillDynamo: // its cost at the default knobs, in tokens
		return float64(key + int64(t.Prompt.Tokens-g.Hit))
	}
	return float64(key)
}

func (m *smetric) workOf(t *policies.Turn, g policies.Group, key int64) float64 {
	return m.work(t, g.Hit, math.Float64frombits(uint64(key)), math.Float64frombits(uint64(g.B)))
}

// load is the load of the figure: prefill tokens that are queued, tokens that decode and so much for each turn in flight. The
// figure divides all by the block size, which changes no comparison.
func (m *smetric) load(v *policies.View, r policies.ReplicaID) int64 {
	return v.QueuedTokens(r) + v.DecodeTokens(r) + m.request*int64(v.InFlight(r))
}

// loads is the sum of all loads.
func (m *smetric) loads(v *policies.View) int64 {
	sum := v.UpQueuedTokens() + v.UpDecodeTokens()
	if m.request > 0 {
		for _, r := range v.Up() {
			sum += m.request * int64(v.InFlight(r))
		}
	}
	return sum
}

// work is what a replica with a hit has to compute until t has its first token, in tokens at the cost of an empty context.
func (m *smetric) work(t *policies.Turn, hit int32, queued, doubling float64) float64 {
	return queued + prefillWork(t.Prompt.Tokens-hit, t.Prompt.Tokens, doubling)
}

func (m *smetric) doublingOf(v *policies.View, r policies.ReplicaID) float64 {
	return firstPositive(m.doubling, v.Capability(r).AttentionDoubling, m.fallback.AttentionDoubling)
}

// drainOf is how much r computes in a second: tokens, or tokens at the cost of an empty context with work set. The
// capability is the rate of a cold prompt of 8192 tokens, whose mean token has 4096 before it.
func (m *smetric) drainOf(v *policies.View, r policies.ReplicaID, work bool) float64 {
	if m.drain > 0 {
		return m.drain
	}
	rate := firstPositive(v.Capability(r).PrefillTokensPerSec, m.fallback.PrefillTokensPerSec)
	if doubling := m.doublingOf(v, r); work && doubling > 0 {
		return rate * (1 + 4096/doubling)
	}
	return rate
}

func firstPositive(xs ...float64) float64 {
	for _, x := range xs {
		if x > 0 {
			return x
		}
	}
	return 0
}
