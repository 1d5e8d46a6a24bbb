package admission

import "github.com/sluice-sim/sluice/policies"

// detector measures how saturated the pool is; 1 is full.
type detector struct {
	utilization bool
	queueDepth  float64
	kvUsage     float64
	stale       policies.Time

	requests float64 // of a saturated replica, 0 if they do not count
	tokens   float64

	granted       int64 // turns let go that are no lease yet, and their prompt tokens
	grantedTokens int64
}

func (d *detector) grant(tokens int32)   { d.granted++; d.grantedTokens += int64(tokens) }
func (d *detector) release(tokens int32) { d.granted--; d.grantedTokens -= int64(tokens) }

func (d *detector) saturation(now policies.Time, v *policies.View) float64 {
	pool := v.Up()
	if len(pool) == 0 {
		return 1
	}
	if !d.utilization {
		return d.concurrency(v)
	}
	sum := 0.0
	for _, r := range pool {
		sum += d.utilizationOf(now, v.Sample(r))
	}
	return sum / float64(len(pool))
}

func (d *detector) utilizationOf(now policies.Time, s policies.Sample) float64 {
	if s.Has&policies.HasWaiting == 0 || s.Has&policies.HasUsage == 0 || now-s.At > d.stale {
		return 1
	}
	return max(float64(s.Waiting)/d.queueDepth, s.Usage/d.kvUsage)
}

func (d *detector) concurrency(v *policies.View) float64 {
	requests, tokens, pool := d.granted, d.grantedTokens, float64(len(v.Up()))
	for _, r := range v.Up() {
		requests += int64(v.InFlight(r))
		tokens += v.PromptTokens(r)
	}
	full := 0.0
	if d.requests > 0 {
		full = float64(requests) / float64(d.requests*pool)
	}
	if d.tokens > 0 {
		full = max(full, float64(tokens)/float64(d.tokens*pool))
	}
	return full
}
