// Package retention holds the policies that pin content: how long a finished turn's prompt and output stay on their
// replica although nobody uses them. One policy is one file. All but none need an engine that can pin blocks, which
// stock vLLM cannot.
package retention

import "github.com/sluice-sim/sluice/policies"

// Reads nothing. Keeps nothing.
// Source: what vLLM does.

// None declares the policy that pins nothing: the engine evicts least recently used content.
func None() policies.Declaration {
	return policies.Declaration{
		Name:         "none",
		Doc:          "Pins nothing: the engine evicts what was used longest ago.",
		Source:       "vLLM",
		Missing:      "It reads no signal.",
		NewRetention: func(policies.Env, policies.Params) policies.Retention { return nil },
	}
}
