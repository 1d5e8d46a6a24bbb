package retention

import "github.com/sluice-sim/sluice/policies"

// Reads the ends of turns. Keeps nothing.
// Source: the fixed threshold of Continuum's public fork; spec: policies C2.

// TTL declares the policy that keeps the content of every finished turn for a fixed time.
func TTL() policies.Declaration {
	return policies.Declaration{
		Name:    "ttl",
		Doc:     "Pins the content of every finished turn for a fixed time, or until the thread's next turn has its first token.",
		Source:  "Continuum's public fork (fixed 2 s); spec: policies C2",
		Missing: "It reads no signal. The engine must be able to pin; stock vLLM cannot.",
		Knobs: []policies.Knob{{
			Name: "ttl_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 2}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "how long content is kept after its turn",
		}},
		NewRetention: func(_ policies.Env, p policies.Params) policies.Retention {
			return ttl(p["ttl_s"].Number * float64(policies.Second))
		},
	}
}

type ttl policies.Time

func (ttl) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (t ttl) Keep(now policies.Time, _ *policies.View, _ *policies.Fact) policies.Time {
	return now + policies.Time(t)
}
