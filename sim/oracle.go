package sim

import (
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
)

// oracle answers the router of that name from the simulator's own state: exact residency, exact queued work and true
// output lengths. Its prediction is greedy: the prefill work ahead of the turn, its own, then its decode at the batch
// size that the replica has now. It is a yardstick, not a bound.
type oracle struct{ r *run }

// Completion implements policies.Oracle.
func (o oracle) Completion(now policies.Time, id policies.ReplicaID, t *policies.Turn) policies.Time {
	r := o.r
	p := &r.replicas[id]
	x := &r.attempts[r.attemptOf(t.Attempt)]
	at := r.now
	if p.depth > 0 {
		at = max(at, p.freeAt)
	}
	rows, context := int32(1), int64(x.prompt.Tokens)+int64(x.outputTokens)/2
	for k := range r.attempts {
		y := &r.attempts[k]
		if (y.stage != sent && y.stage != inEngine) || y.row.Replica != int32(id) {
			continue
		}
		rows++
		context += int64(y.prompt.Tokens)
		if y.stage == inEngine {
			if output := p.slots[y.slot].output; output > 0 {
				context += int64(output)
				continue
			}
		}
		past := y.reached
		if y.row.ScheduledPS < 0 {
			past = p.loop.Hit(y.path, y.prompt.Tokens)
		}
		at += r.prefillPS(y.prompt.Tokens-past, past)
	}
	hit := p.loop.Hit(x.path, x.prompt.Tokens)
	at += r.prefillPS(x.prompt.Tokens-hit, hit)
	if x.outputTokens > 1 {
		a, b, c := r.cfg.Law.DecodeCoefficients(rows)
		windowed := context
		if w := r.cfg.Law.Window(); w > 0 {
			windowed = min(context, int64(rows)*int64(w))
		}
		at += int64(x.outputTokens-1) * (a + b*context + c*windowed)
	}
	return policies.Time(at / nsToPS)
}

// prefillPS is the time of computing n tokens after past in one piece.
func (r *run) prefillPS(n, past int32) int64 {
	if n <= 0 {
		return 0
	}
	r.chunk[0] = latency.Chunk{Tokens: n, Past: past}
	return r.cfg.Law.Picoseconds(&latency.Batch{Prefill: r.chunk[:], Sampled: 1})
}

// idleLatency works out what an attempt would take alone on an idle replica that holds everything the ceiling counts:
// its prefill in chunks of the token budget, then decode steps of one row at the mean context.
func (r *run) idleLatency(x *attempt) {
	past := x.row.CeilingTokens
	ttft := int64(0)
	for past < x.prompt.Tokens {
		n := min(x.prompt.Tokens-past, r.cfg.Engine.MaxBatchedTokens)
		ttft += r.prefillPS(n, past)
		past += n
	}
	x.row.IdleTTFTPS = ttft + r.apiPS
	if x.outputTokens > 1 {
		context := int64(x.prompt.Tokens) + int64(x.outputTokens)/2
		windowed := context
		if w := r.cfg.Law.Window(); w > 0 {
			windowed = min(context, int64(w))
		}
		a, b, c := r.cfg.Law.DecodeCoefficients(1)
		x.row.IdleTPOTPS = a + b*context + c*windowed
	}
}
