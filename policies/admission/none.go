// Package admission holds the gates: when a turn may go. One gate is one file.
package admission

import "github.com/sluice-sim/sluice/policies"

// Reads nothing. Keeps nothing. No ties.
// Source: the baseline of every admission study.

// None declares the gate that admits every turn on arrival.
func None() policies.Declaration {
	return policies.Declaration{
		Name:    "none",
		Doc:     "Admits every turn as soon as it arrives.",
		Source:  "baseline",
		Missing: "It reads no signal.",
		NewGate: func(policies.Env, policies.Params) policies.Gate { return none{} },
	}
}

type none struct{}

func (none) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (none) Admit(policies.Time, *policies.View, *policies.Turn, *policies.Probes) policies.Verdict {
	return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.Ungated}
}

func (none) NextWake() policies.Time { return policies.Never }
