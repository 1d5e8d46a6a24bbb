package policies

import "math"

// In waiter.answers: what stands for no usage.
const (
	unanswered float64 = -1
	unasked    float64 = -2 // or without a value
)

// probe sends a probe for the waiter in slot. If there is nobody to answer it counts as answered without a value, and
// probe returns false.
func (c *Controller) probe(slot int32, kind CommandKind, to ReplicaID) bool {
	w := &c.view.waiters.slots[slot]
	w.probe, w.target, w.unheard = kind, to, 0
	switch {
	case to == AllReplicas && kind == ProbeUsage:
		w.answers = w.answers[:0]
		for r := range c.view.replicas {
			if !c.view.IsUp(ReplicaID(r)) {
				w.answers = append(w.answers, unasked)
				continue
			}
			w.answers = append(w.answers, unanswered)
			w.unheard++
			c.emit(kind, w.turn.Attempt, ReplicaID(r), NoReason)
		}
	case c.view.IsUp(to):
		w.unheard = 1
		c.emit(kind, w.turn.Attempt, to, NoReason)
	}
	if w.unheard == 0 {
		w.conclude(ProbeUnsupported, Fact{})
		return false
	}
	w.state = probing
	return true
}

// answer takes in a probe's answer; false if none was expected of this replica for this attempt.
func (c *Controller) answer(kind CommandKind) bool {
	f := &c.fact
	slot, ok := c.view.waiters.find(f.Attempt)
	if !ok {
		return false
	}
	w := &c.view.waiters.slots[slot]
	f.Thread, f.Session = w.turn.Thread, w.turn.Session
	return w.state == probing && w.probe == kind && c.hear(slot, f.Replica, f.Outcome, *f)
}

// hear records that replica r answered the waiter in slot; false if it was not asked.
func (c *Controller) hear(slot int32, r ReplicaID, outcome ProbeOutcome, f Fact) bool {
	w := &c.view.waiters.slots[slot]
	if w.probe == ProbeUsage && !(f.Usage >= 0) { // NaN too
		outcome = ProbeUnsupported
	}
	if w.target == AllReplicas {
		if !c.view.has(r) || w.answers[r] != unanswered {
			return false
		}
		w.answers[r] = unasked
		if outcome == ProbeValue {
			w.answers[r] = f.Usage
		}
	} else if w.target != r || w.unheard == 0 {
		return false
	}
	w.unheard--
	if w.unheard == 0 {
		w.conclude(outcome, f)
		c.answered = append(c.answered, ticket{slot, w.turn.Attempt})
	}
	return true
}

// conclude writes the answers for the gate to read.
func (w *waiter) conclude(outcome ProbeOutcome, f Fact) {
	p, ok := &w.probes, outcome == ProbeValue
	switch {
	case w.probe == ProbePrefix:
		p.HasPrefix, p.PrefixOK = true, ok
		p.HitTokens, p.PromptTokens = f.HitTokens, f.PromptTokens
	case w.target == AllReplicas:
		p.HasUsage = true
		sum, n, least := 0.0, 0, math.Inf(1)
		for _, u := range w.answers {
			if u >= 0 {
				sum, n, least, p.UsageMax = sum+u, n+1, min(least, u), max(p.UsageMax, u)
			}
		}
		if n > 0 { // rounding must not move the mean of equal values off a threshold
			p.UsageOK, p.UsageMean = true, max(least, min(p.UsageMax, sum/float64(n)))
		}
	default:
		p.HasUsage, p.UsageOK = true, ok
		p.UsageMean, p.UsageMax = f.Usage, f.Usage
	}
}

// loseProbes counts the probes that r can no longer answer as answered without a value.
func (c *Controller) loseProbes(r ReplicaID) {
	for slot := range c.view.waiters.slots {
		if w := &c.view.waiters.slots[slot]; w.state == probing && w.unheard > 0 {
			c.hear(int32(slot), r, ProbeUnsupported, Fact{})
		}
	}
}
