package policies

// Instances is several router instances as one Machine: each is a Controller of its own, with its own gate, router and
// ledger, and nothing is shared between them. An instance sees only the turns of its own sessions, but every fact about a
// replica. Gateways that stand side by side are so (spec: gateway 4.5).
type Instances struct {
	controllers []*Controller
	of          func(SessionID) int
	at          map[AttemptID]place
	facts       [][]Fact // by controller
}

// place is the instance that an attempt went to, and whether it was admitted there.
type place struct {
	instance int32
	leased   bool
}

// NewInstances makes one Machine of controllers; of says which of them a session's turns go to, always the same.
func NewInstances(controllers []*Controller, of func(SessionID) int) *Instances {
	return &Instances{controllers: controllers, of: of, at: map[AttemptID]place{}, facts: make([][]Fact, len(controllers))}
}

// Step implements Machine: it steps every instance, in order, that has something to do.
func (x *Instances) Step(now Time, in []Fact, out []Command) []Command {
	before := len(out)
	for i := range x.facts {
		x.facts[i] = x.facts[i][:0]
	}
	for k := range in {
		x.share(&in[k])
	}
	for i, c := range x.controllers {
		if len(x.facts[i]) > 0 || c.NextWake() <= now {
			out = c.Step(now, x.facts[i], out)
		}
	}
	for k := before; k < len(out); k++ {
		c := &out[k]
		switch p := x.at[c.Attempt]; {
		case c.Kind == Admit:
			x.at[c.Attempt] = place{p.instance, true}
		case c.Kind == Reject || c.Kind == Abort && !p.leased:
			delete(x.at, c.Attempt)
		}
	}
	return out
}

// share hands a fact to the instance whose turn it is about, or to all.
func (x *Instances) share(f *Fact) {
	switch f.Kind {
	case TurnArrived:
		i := x.of(f.Turn.Session)
		x.at[f.Turn.Attempt] = place{instance: int32(i)}
		x.facts[i] = append(x.facts[i], *f)
	case ThreadFinished, SessionFinished:
		i := x.of(f.Session)
		x.facts[i] = append(x.facts[i], *f)
	case AttemptSuperseded, ClientGone, UsageProbed, PrefixProbed, Dispatched, FirstToken, Finished, Failed, TokensProgressed:
		p, ok := x.at[f.Attempt]
		if !ok {
			return
		}
		x.facts[p.instance] = append(x.facts[p.instance], *f)
		if f.Kind == Finished || f.Kind == Failed || f.Kind == ClientGone && !p.leased {
			delete(x.at, f.Attempt)
		}
	default:
		for i := range x.facts {
			x.facts[i] = append(x.facts[i], *f)
		}
	}
}

// NextWake implements Machine.
func (x *Instances) NextWake() Time {
	next := Never
	for _, c := range x.controllers {
		next = min(next, c.NextWake())
	}
	return next
}

// Audit is the sum over the instances. A fact about a replica that is out of order counts once in each.
func (x *Instances) Audit() Audit {
	var sum Audit
	for _, c := range x.controllers {
		sum.add(c.Audit())
	}
	return sum
}

// Leases visits every live lease, by instance and replica.
func (x *Instances) Leases(visit func(*Lease)) {
	for _, c := range x.controllers {
		c.Leases(visit)
	}
}
