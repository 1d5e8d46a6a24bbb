package routing

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// Reads resident prefixes, the ledger's uncached tokens that are queued (A), decode tokens and turns in flight. Keeps what
// it sent where, for replicas that send no KV events. At temperature 0 the smallest cost wins and equal ones are drawn from,
// by a hash of the seed and the attempt; above, all are drawn from. The tiers below the GPU's memory are not here, nor is
// the queue in front of workers that are overloaded, which is a gate.
// Source: ai-dynamo/dynamo, lib/kv-router, scheduling/selector; spec: policies 3.8.

// Dynamo declares the KV router of NVIDIA Dynamo.
func Dynamo() policies.Declaration {
	return policies.Declaration{
		Name:      "dynamo",
		Doc:       "Takes the smallest cost in KV blocks: prefill pending and of this prompt, less what is resident, and blocks that decode; draws on a tie.",
		Source:    "ai-dynamo/dynamo, lib/kv-router; spec: policies 3.8",
		Needs:     policies.NeedsKVEvents | policies.NeedsProgress,
		NeedsWith: withoutEvents(policies.NeedsKVEvents|policies.NeedsProgress, dynamoEvents),
		Missing:   dynamoMissing,
		Omits:     dynamoOmits,
		Knobs:     dynamoKnobs(),
		NewRouter: func(e policies.Env, p policies.Params) policies.Router {
			return &dynamo{newDynamoCost(e, p)}
		},
	}
}

const dynamoMissing = "A replica without KV events is taken to hold what was sent there within ttl_s. Without progress a decode counts as having produced one token."

const dynamoOmits = "there is no credit for blocks in host memory, on disk or in a shared store, of which no fact tells, and no queue before workers that are overloaded, which would be a gate."

func dynamoKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "overlap_score_credit", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1000, Doc: "credit for a resident block (k)"},
		{Name: "prefill_load_scale", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1000, Doc: "weight of a block to prefill (S)"},
		{Name: "overlap_decay", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1000,
			Doc: "how fast the credit falls with the prefill pending beyond the least of all, relative to the prompt (delta)"},
		{Name: "request_weight", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e6, Unit: "blocks", Doc: "cost of a turn in flight"},
		{Name: "temperature", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1000,
			Doc: "above 0 replicas are drawn with a chance of exp(-cost/temperature), costs relative to their range"},
		{Name: "kv_events", Kind: policies.BoolKnob, Default: policies.Value{Bool: true}, Doc: "whether KV events say what is resident; if not, what was sent"},
		{Name: "ttl_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 120}, Min: 0, Max: 1e6, Unit: "s", Doc: "how long what was sent counts as resident; 0 for ever"},
	}
}

// dynamoEvents says whether the knobs have KV events say what is resident.
func dynamoEvents(p policies.Params) bool { return p["kv_events"].Bool }

type dynamo struct{ cost dynamoCost }

func (d *dynamo) Observe(_ policies.Time, _ *policies.View, f *policies.Fact) {
	d.cost.resident.observe(f)
}

func (d *dynamo) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to := d.cost.pick(now, v, t)
	d.cost.sent(now, v, t, to)
	if d.cost.temperature > 0 {
		return to, policies.Sampled
	}
	return to, policies.BestScore
}

func (d *dynamo) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	return d.cost.pick(now, v, t)
}

// dynamoCost is the cost of Dynamo and the choice by it, which other routers of Dynamo fall back to.
type dynamoCost struct {
	credit, scale, decay, requests, temperature float64
	block                                       float64 // tokens
	seed                                        uint64
	resident                                    residency
	ties                                        ties[float64]
	costs                                       []float64 // of the replicas that are up
}

func newDynamoCost(e policies.Env, p policies.Params) dynamoCost {
	block := blockTokensOf(e)
	return dynamoCost{
		credit: p["overlap_score_credit"].Number, scale: p["prefill_load_scale"].Number, decay: p["overlap_decay"].Number,
		requests: p["request_weight"].Number, temperature: p["temperature"].Number, block: float64(block), seed: e.Seed,
		resident: residency{events: dynamoEvents(p), sent: policies.NewApproxIndex(block, 0, secondsOrNever(p["ttl_s"].Number))},
	}
}

// sent remembers where t went.
func (d *dynamoCost) sent(now policies.Time, v *policies.View, t *policies.Turn, to policies.ReplicaID) {
	if to != policies.NoReplica {
		d.resident.sent.Insert(now, v, t.Prompt, to)
	}
}

// pick chooses by cost; NoReplica if none is up.
func (d *dynamoCost) pick(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	hits, up := d.resident.hits(now, v, t.Prompt), v.Up()
	least := leastQueued(v)
	d.ties.reset()
	d.costs = d.costs[:0]
	for _, r := range up {
		cost := d.of(v, t, r, hits[r], least)
		d.ties.offer(r, cost)
		d.costs = append(d.costs, cost)
	}
	if d.temperature > 0 && len(up) > 0 {
		return up[softmax(d.costs, d.temperature, exact.Uniform(exact.Hash2(d.seed, dynamoDraw, uint64(t.Attempt))))]
	}
	return d.ties.draw(d.seed, dynamoDraw, t.Attempt)
}

// leastQueued is the smallest prefill pending of all replicas that are up, in tokens.
func leastQueued(v *policies.View) int64 {
	least := int64(0)
	for i, r := range v.Up() {
		if q := v.QueuedTokens(r); i == 0 || q < least {
			least = q
		}
	}
	return least
}

// dynamoDraw parts these draws from others with the same seed.
const dynamoDraw = 0x64796e616d6f

// of is what t costs on r, where hit tokens of its prompt are resident; least is the smallest prefill pending of all.
func (d *dynamoCost) of(v *policies.View, t *policies.Turn, r policies.ReplicaID, hit int32, least int64) float64 {
	pending, prompt := v.QueuedTokens(r), int64(t.Prompt.Tokens)
	credit := float64(d.credit * overlapDecay(d.decay, pending-least, prompt) * float64(hit) / d.block)
	prefill := dynamoPrefill(float64(pending+prompt)/d.block, credit)
	return float64(d.scale*prefill) + float64(v.DecodeTokens(r))/d.block + float64(d.requests*float64(v.InFlight(r)))
}

// dynamoPrefill is the blocks to prefill, of which credit are not.
func dynamoPrefill(blocks, credit float64) float64 { return max(0, blocks-credit) }

// overlapDecay is the part of the credit that is left where beyond more tokens are pending than on the least pending
// replica: 1/(1 + delta beyond/prompt).
func overlapDecay(delta float64, beyond, prompt int64) float64 {
	return 1 / (1 + float64(delta*float64(beyond)/float64(prompt)))
}

// softmax takes one of costs with a chance proportional to exp(-cost/temperature), where costs are relative to their
// range; u is uniform in (0, 1). Costs that are all equal are equally likely. It overwrites costs.
func softmax(costs []float64, temperature, u float64) int {
	low, high := costs[0], costs[0]
	for _, c := range costs {
		low, high = min(low, c), max(high, c)
	}
	total := 0.0
	for i, c := range costs {
		costs[i] = 1
		if high > low {
			costs[i] = exact.Exp(-(c - low) / (high - low) / temperature)
		}
		total += costs[i]
	}
	left := float64(u * total)
	for i, c := range costs {
		if left -= c; left < 0 {
			return i
		}
	}
	return len(costs) - 1
}

// ScoreTerms implements policies.Scored.
func (*dynamo) ScoreTerms() ([]string, bool) {
	return []string{"hit_tokens", "queued_tokens", "decode_tokens", "in_flight"}, true
}

// Scores implements policies.Scored: the cost, in blocks.
func (d *dynamo) Scores(now policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	hits, least := d.cost.resident.hits(now, v, t.Prompt), leastQueued(v)
	for _, r := range v.Up() {
		s := policies.ReplicaScore{Replica: r, Score: d.cost.of(v, t, r, hits[r], least)}
		s.Terms = [policies.MaxScoreTerms]float64{float64(hits[r]), float64(v.QueuedTokens(r)), float64(v.DecodeTokens(r)), float64(v.InFlight(r))}
		dst = append(dst, s)
	}
	return dst
}
