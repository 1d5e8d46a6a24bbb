package admission

import (
	"math"

	"github.com/sluice-sim/sluice/policies"
)

// ticker is a control loop's clock. It starts with the first turn that is judged, so that it does not depend on when the driver's time
// began.
type ticker struct {
	every policies.Time
	at    policies.Time
	runs  bool
}

func (t *ticker) start(now policies.Time) {
	if !t.runs {
		t.runs, t.at = true, now+t.every
	}
}

// due says whether a tick has come, and arms the next one. Ticks that were missed are not made up for.
func (t *ticker) due(now policies.Time) bool {
	if !t.runs || t.at > now {
		return false
	}
	t.at = now + t.every
	return true
}

func (t *ticker) next() policies.Time {
	if !t.runs {
		return policies.Never
	}
	return t.at
}

// sampledUsage is the KV usage over the replicas that are up and have reported it; ok is false if none has.
func sampledUsage(v *policies.View) (mean, most float64, ok bool) {
	sum, n, least := 0.0, 0, math.Inf(1)
	for _, r := range v.Up() {
		s := v.Sample(r)
		if s.Has&policies.HasUsage == 0 {
			continue
		}
		sum, n, least, most = sum+s.Usage, n+1, min(least, s.Usage), max(most, s.Usage)
	}
	if n == 0 {
		return 0, 0, false
	}
	return max(least, min(most, sum/float64(n))), most, true // rounding must not move the mean of equal values off a threshold
}
