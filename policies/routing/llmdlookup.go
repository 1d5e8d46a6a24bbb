package routing

import (
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// llmdLookup finds where the prompt of the turn that is being scored is; scorers and filters share what it found.
type llmdLookup struct {
	block    int32
	resident residency
	guesses  *policies.ApproxIndex // what was sent lately and counts beside KV events; nil for nothing
	guessed  []int32

	hits    []int32 // tokens, by replica
	parts   []int64 // share of the full blocks looked up that are there, as a score, by replica that is up
	nowhere bool    // no replica that is up holds any of it

	outputRatio float64
}

func newLLMDLookup(e policies.Env, p policies.Params) llmdLookup {
	block, capacity := int32(p["block_tokens"].Number), int64(p["lru_blocks"].Number)
	events := llmdEvents(p)
	switch engine := e.Capability; {
	case events:
		block, capacity = blockTokensOf(e), 0
	case p["autotune"].Bool && engine.BlockTokens > 0:
		block = max(block, engine.BlockTokens)
		if engine.KVTokens > 0 {
			capacity = max(1, engine.KVTokens/int64(engine.BlockTokens))
		}
	}
	l := llmdLookup{block: block, outputRatio: p["output_ratio"].Number,
		resident: residency{events: events, sent: policies.NewApproxIndex(block, capacity, policies.Never)}}
	if events && p["speculative_indexing"].Bool {
		l.guesses = policies.NewApproxIndex(block, 0, secondsOrNever(p["speculative_ttl_s"].Number))
	}
	return l
}

// llmdEvents says whether the knobs have KV events say where a prefix is.
func llmdEvents(p policies.Params) bool {
	return p["prefix"].Text == "events" || p["prefix"].Text == "preset" && p["preset"].Text == "precise-prefix"
}

func (l *llmdLookup) observe(f *policies.Fact) {
	l.resident.observe(f)
	if l.guesses != nil && forgets(f) {
		l.guesses.Forget(f.Replica)
	}
}

// find looks p up.
func (l *llmdLookup) find(now policies.Time, v *policies.View, p prefix.Prefix) {
	l.hits, l.nowhere = l.resident.hits(now, v, p), true
	if l.guesses != nil {
		for len(l.guessed) < len(l.hits) {
			l.guessed = append(l.guessed, 0)
		}
		l.guesses.Hits(now, v, p, l.guessed)
		for r, n := range l.guessed {
			l.hits[r] = max(l.hits[r], n)
		}
	}
	for len(l.parts) < len(l.hits) {
		l.parts = append(l.parts, 0)
	}
	total := int64(p.Tokens / l.block)
	hit, part := int32(0), int64(0) // of the replica before: few are different
	for _, r := range v.Up() {
		if h := l.hits[r]; h != hit {
			hit, part = h, blockShare(int64(h/l.block), total)
		}
		l.nowhere = l.nowhere && hit < l.block
		l.parts[r] = part
	}
}

// sent remembers where p went.
func (l *llmdLookup) sent(now policies.Time, v *policies.View, p prefix.Prefix, to policies.ReplicaID) {
	l.resident.sent.Insert(now, v, p, to)
	if l.guesses != nil {
		l.guesses.Insert(now, v, p, to)
	}
}

// blockShare is found of total blocks, as a score.
func blockShare(found, total int64) int64 {
	if found == 0 {
		return 0
	}
	return policies.Part(found, total)
}

// inFlight is the tokens in flight on r: uncached prompt tokens until the first token and, with an output ratio, output.
func (l *llmdLookup) inFlight(v *policies.View, r policies.ReplicaID) int64 {
	if l.outputRatio == 0 {
		return v.QueuedTokens(r)
	}
	return v.QueuedTokens(r) + int64(float64(l.outputRatio*float64(v.PromptTokens(r))))
}
