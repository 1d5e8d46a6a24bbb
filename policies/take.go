package policies

import "slices"

// take brings the view up to date with c.fact and fills in what the ledger knows of its attempt. It is false if the
// fact changes nothing: a duplicate, out of order, or about something unknown.
func (c *Controller) take() bool {
	f, v := &c.fact, c.view
	switch f.Kind {
	case TurnArrived:
		return c.arrive()
	case ClientGone:
		return c.takeClientGone()
	case UsageProbed:
		return c.answer(ProbeUsage)
	case PrefixProbed:
		return c.answer(ProbePrefix)
	case Dispatched, AttemptSuperseded:
		return c.identify()
	case FirstToken:
		return c.identify() && v.firstToken(f.Attempt)
	case TokensProgressed:
		return c.identify() && v.progress(f.Attempt, f.OutputTokens)
	case Finished, Failed:
		return v.close(f)
	case ThreadFinished:
		return v.endThread(f)
	case SessionFinished:
		return v.endSession(f)
	case MetricsSampled:
		return v.setSample(f.Replica, f.Sample)
	case BlocksStored, BlocksEvicted, BlocksCleared:
		return v.setBlocks(f)
	case ReplicaUp:
		if !v.setState(f.Replica, Up) {
			return false
		}
		v.Wake(noReplicaKey, -1)
		return true
	case ReplicaDraining:
		return v.State(f.Replica) == Up && v.setState(f.Replica, Draining)
	case ReplicaDown:
		if !v.setState(f.Replica, Down) {
			return false
		}
		c.loseProbes(f.Replica)
		return true
	case ReplicaRestarted:
		if !v.has(f.Replica) {
			return false
		}
		c.abandon(f.Replica)
		c.loseProbes(f.Replica)
		v.forget(f.Replica)
		return true
	}
	return false
}

// abandon ends the leases of a replica whose process is a new one: whatever they were, nobody will report their end. The
// policies see each fail.
func (c *Controller) abandon(r ReplicaID) {
	restarted := c.fact
	for le := c.view.FirstLease(r); le != nil; le = c.view.FirstLease(r) {
		c.fact = Fact{Kind: Failed, Attempt: le.Attempt, Replica: r}
		c.view.close(&c.fact)
		c.view.ledger.audit.Abandoned++
		c.observe()
	}
	c.fact = restarted
}

func (c *Controller) arrive() bool {
	t := &c.fact.Turn
	if t.Attempt <= c.seen || t.Thread < 0 || t.Session < 0 || t.Prompt.Tokens <= 0 {
		return false
	}
	if t.Attempt <= c.newSeen && slices.ContainsFunc(c.arrivals, func(k ticket) bool { return k.attempt == t.Attempt }) {
		return false // twice in one Step
	}
	c.newSeen = max(c.newSeen, t.Attempt)
	c.view.renew(t)
	c.fact.Attempt, c.fact.Thread, c.fact.Session = t.Attempt, t.Thread, t.Session
	c.arrivals = append(c.arrivals, c.view.waiters.add(t))
	return true
}

// takeSuperseded marks a waiting attempt, to be ended when the Step settles or, where attempts notice late, when it is
// next asked; false if it does not wait. The policies are told when it ends.
func (c *Controller) takeSuperseded() bool {
	q := &c.view.waiters
	slot, ok := q.find(c.fact.Attempt)
	if !ok {
		return false
	}
	if w := &q.slots[slot]; !w.superseded {
		w.superseded = true
		c.ending = append(c.ending, ticket{slot, w.turn.Attempt})
	}
	return true
}

// takeClientGone forgets a waiting attempt. A running one stays a lease until its end is reported.
func (c *Controller) takeClientGone() bool {
	q := &c.view.waiters
	if slot, ok := q.find(c.fact.Attempt); ok {
		t := &q.slots[slot].turn
		c.fact.Thread, c.fact.Session = t.Thread, t.Session
		c.drop(slot)
		return true
	}
	le := c.view.ledger.find(c.fact.Attempt)
	if le == nil || le.Cancelled {
		return false
	}
	le.Cancelled = true
	return c.identify()
}

// identify fills in what the ledger knows of the fact's attempt; false if it is no lease.
func (c *Controller) identify() bool {
	le := c.view.ledger.find(c.fact.Attempt)
	if le == nil {
		return false
	}
	c.fact.Thread, c.fact.Session, c.fact.Replica = le.Thread, le.Session, le.Replica
	return true
}

func (v *View) setBlocks(f *Fact) bool {
	if v.State(f.Replica) == Down {
		return false
	}
	if f.Kind == BlocksCleared {
		v.index.clear(f.Replica)
		return true
	}
	if f.BlockTokens <= 0 || f.Stream < 0 || int(f.Stream) >= v.tree.Len() || f.Lo < 0 || f.Lo >= f.Hi {
		return false
	}
	v.index.heard(f.Replica, f.BlockTokens)
	by := int32(1)
	if f.Kind == BlocksEvicted {
		by = -1
	}
	return v.index.change(f.Replica, f.Stream, f.Lo, f.Hi, by)
}
