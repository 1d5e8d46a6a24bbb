package admission

import "github.com/sluice-sim/sluice/policies"

// Values of the knobs of the detector.
const (
	detectUtilization = "utilization"
	detectConcurrency = "concurrency"

	countRequests = "requests"
	countTokens   = "tokens"
	countHybrid   = "hybrid"
)

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

func newDetector(p policies.Params) detector {
	d := detector{
		utilization: p["detector"].Text == detectUtilization, queueDepth: p["queue_depth"].Number, kvUsage: p["kv_usage"].Number,
		stale: seconds(p["stale_s"].Number), requests: p["max_requests"].Number, tokens: p["max_tokens"].Number,
	}
	switch p["mode"].Text {
	case countRequests:
		d.tokens = 0
	case countTokens:
		d.requests = 0
	}
	return d
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
		if s := v.Sample(r); now-s.At > d.stale {
			sum++
		} else {
			sum += d.utilizationOf(s)
		}
	}
	return sum / float64(len(pool))
}

// roofline is the saturation by utilization whatever the age of the samples. Some replica is up when a turn is judged.
func (d *detector) roofline(v *policies.View) float64 {
	pool, sum := v.Up(), 0.0
	for _, r := range pool {
		sum += d.utilizationOf(v.Sample(r))
	}
	return sum / float64(len(pool))
}

// utilizationOf is 1 where a figure is unknown.
func (d *detector) utilizationOf(s policies.Sample) float64 {
	if s.Has&policies.HasWaiting == 0 || s.Has&policies.HasUsage == 0 {
		return 1
	}
	return max(float64(s.Waiting)/d.queueDepth, s.Usage/d.kvUsage)
}

// concurrency counts tokens as the original's load producer does: those that are not cached, until the first token.
func (d *detector) concurrency(v *policies.View) float64 {
	requests, tokens, pool := d.granted, d.grantedTokens, float64(len(v.Up()))
	for _, r := range v.Up() {
		requests += int64(v.InFlight(r))
		tokens += v.QueuedTokens(r)
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
