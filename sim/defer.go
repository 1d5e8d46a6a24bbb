package sim

import "github.com/sluice-sim/sluice/policies"

// The end of a step at which no request gets its first or last token, and the schedule call after it, concern nobody but
// the engine itself. Such an end is not an event of its own: it is settled with the end after it, or when somebody looks
// at the replica before that. So a replica is touched half as often.

// planDeferral decides whether ends of steps may be settled late: not where something besides the content of the cache
// can be seen of a replica between events, or can change it. Where policies need not be told of each block at its moment,
// the engines register late what decodes fill, too.
func (r *run) planDeferral() {
	c := r.cfg
	r.defers = !c.Walk && !r.looks && !r.retention.on && c.CPUTier == nil && len(c.Faults) == 0 && c.Decisions == nil &&
		r.needs&(policies.NeedsSamples|policies.NeedsProgress) == 0
	if !r.defers || r.sendKV && (r.news.each || r.news.gated) {
		return
	}
	for i := range r.replicas {
		r.replicas[i].loop.RegisterLate()
	}
}

// behind tells whether the next end of a step is not on the agenda, because it is jumped over or settled late.
func (p *replica) behind() bool { return p.decoding.active || p.deferred }

// firstEnd is the end of the first step that is not jumped over.
func (p *replica) firstEnd() int64 {
	if p.decoding.active {
		return p.endOf(p.decoding.left)
	}
	return p.flight[0].end
}

// settle does at its own moment, which is past, what the deferred end of a step brings about. The end after it is on the
// agenda.
func (r *run) settle(i int32) {
	p := &r.replicas[i]
	now := r.now
	r.now = p.firstEnd()
	r.stepEnded(i)
	if _, st, _ := p.loop.Advance(); st != nil {
		r.scheduled(i, st)
	}
	p.blocked = true
	r.now = now
}
