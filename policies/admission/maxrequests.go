package admission

import "github.com/sluice-sim/sluice/policies"

// Reads nothing from the engine. Keeps how many turns it has let go that have not ended. Order: first come, first served;
// a turn that its client sends again queues anew.
// Source: the static bound that every adaptive gate must beat; spec: policies C12.

// MaxRequests declares the gate that bounds the number of turns in flight.
func MaxRequests() policies.Declaration {
	return policies.Declaration{
		Name:    "max-requests",
		Doc:     "Lets a fixed number of turns be in flight over all replicas; the others wait in order of arrival. A session gives its slot back with every turn.",
		Source:  "baseline; spec: policies C12",
		Missing: "It reads no signal.",
		Knobs: []policies.Knob{{
			Name: "max_requests", Kind: policies.IntKnob, Default: policies.Value{Number: 64}, Min: 1, Max: 1e6,
			Unit: "turns", Doc: "turns in flight at a time",
		}},
		NewGate: func(_ policies.Env, p policies.Params) policies.Gate {
			return &maxRequests{limit: int(p["max_requests"].Number)}
		},
	}
}

// maxRequests is also the inside of gates that move the limit.
type maxRequests struct {
	limit    int
	inFlight int
}

func (g *maxRequests) Observe(_ policies.Time, v *policies.View, f *policies.Fact) {
	switch f.Kind {
	case policies.Finished, policies.Failed:
		g.inFlight--
		g.pass(v)
	case policies.ClientGone, policies.AttemptSuperseded: // it may have been woken for a slot
		g.pass(v)
	}
}

// pass has the first waiter asked if there is a slot for it; a waiter that is admitted passes on.
func (g *maxRequests) pass(v *policies.View) {
	if g.inFlight < g.limit {
		v.Wake(0, 1)
	}
}

func (g *maxRequests) Admit(_ policies.Time, v *policies.View, t *policies.Turn, _ *policies.Probes) policies.Verdict {
	why := policies.NoSlot
	if g.inFlight < g.limit {
		if first, ok := v.FirstWaiter(0); !ok || t.Attempt < first {
			g.inFlight++
			g.pass(v)
			return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.SlotFree}
		}
		why = policies.BehindWaiter
		g.pass(v)
	}
	return policies.Verdict{Kind: policies.VerdictHold, Reason: why, Until: policies.Never}
}

// Inherit implements policies.Inheritor.
func (g *maxRequests) Inherit(policies.Time, *policies.View, *policies.Lease) { g.inFlight++ }

func (g *maxRequests) NextWake() policies.Time { return policies.Never }
