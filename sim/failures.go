package sim

import (
	"fmt"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
)

// boot gives replica i a new engine with an empty cache.
func (r *run) boot(i int32) {
	p := &r.replicas[i]
	p.loop = *engine.NewLoop(engine.New(&r.cfg.Engine, r.cfg.pool()))
	p.loop.Output = r.output(0)
	p.loop.Pool().Record(true, r.sendKV)
	p.evicted = 0
	p.tier = tier{busyPS: p.tier.busyPS}
	p.tier.connect(&p.loop.Engine, r.cfg.CPUTier)
	r.forgetPins(p)
}

// restart ends the process of replica i with everything that ran there, and makes a new one. The rest of the step in
// progress stays in the busy time by kind of work, which is counted when a step is scheduled.
func (r *run) restart(i int32) {
	p := &r.replicas[i]
	r.catchUp(i, r.now)
	p.series.busy(p, r.now)
	for a := range r.attempts {
		if x := &r.attempts[a]; (x.stage == sent || x.stage == inEngine) && x.row.Replica == i {
			r.fail(int32(a))
		}
	}
	p.inbox, p.aborts = p.inbox[:0], p.aborts[:0]
	r.dropProbes(i)
	p.outbox = p.outbox[:0]
	p.kvEpoch++
	r.ends.set(i, never)
	p.decoding.active, p.blocked, p.depth, p.freeAt = false, false, 0, r.now
	p.gauges, p.queries, p.hits = policies.Sample{}, 0, 0
	r.history.restarted(i)
	r.boot(i)
}

// cutOff breaks the connections of replica i: its clients hear at once that their requests failed, the engine drops them
// at the end of the step in progress.
func (r *run) cutOff(i int32) {
	p := &r.replicas[i]
	for a := range r.attempts {
		x := &r.attempts[a]
		if (x.stage != sent && x.stage != inEngine) || x.row.Replica != i || x.failed {
			continue
		}
		if x.stage == sent {
			r.fail(int32(a))
			continue
		}
		r.fact(policies.Fact{Kind: policies.Failed, Attempt: x.id, Replica: policies.ReplicaID(i)})
		x.failed = true
		if !x.aborting {
			x.aborting = true
			p.aborts = append(p.aborts, int32(a))
			r.wake(i)
		}
		if !x.gone {
			x.gone = true
			x.row.Outcome = results.FailedRun
			r.remember(int32(a))
			r.retryOrFail(x.turn, r.now)
		}
	}
	p.inbox = p.inbox[:0]
	r.dropProbes(i)
}

// fail ends an attempt that its replica lost or refused. Its client, if it still waits, hears of it at once and may come
// again.
func (r *run) fail(a int32) {
	x := &r.attempts[a]
	turn, gone := x.turn, x.gone
	r.remember(a)
	if !gone {
		x.row.Outcome = results.FailedRun
		x.row.Final = r.turn(turn).attempts > r.cfg.Clients.Retries
	}
	r.leaveReplica(a)
	if !x.failed {
		r.fact(policies.Fact{Kind: policies.Failed, Attempt: x.id, Replica: policies.ReplicaID(x.row.Replica)})
	}
	r.endAttempt(a, r.now)
	if !gone {
		r.retryOrFail(turn, r.now)
	}
}

// refuses tells whether replica i fails an attempt on arrival.
func (r *run) refuses(i int32, a policies.AttemptID) bool {
	if len(r.cfg.Faults) == 0 {
		return false
	}
	c := &r.faults.conditions[i]
	if c.down || !c.failing {
		return c.down
	}
	for k := range r.cfg.Faults {
		if f := &r.cfg.Faults[k]; f.Kind == ErrorBurst && r.faults.active[k] && f.hits(i) && r.drawn(int32(k), a) {
			return true
		}
	}
	return false
}

// losesRelease tells whether the end of a lease is lost on its way to the policies.
func (r *run) losesRelease(f *policies.Fact) bool {
	if f.Kind != policies.Finished && f.Kind != policies.Failed {
		return false
	}
	for _, k := range r.faults.losing {
		x := &r.cfg.Faults[k]
		if x.Releases == CancelledRelease && !r.attempts[r.attemptOf(f.Attempt)].gone {
			continue
		}
		if (x.Count == 0 || r.faults.lost[k] < x.Count) && r.drawn(k, f.Attempt) {
			r.faults.lost[k]++
			r.totals.LeasesLost++
			return true
		}
	}
	return false
}

// disconnect has a share of the clients that wait now go away.
func (r *run) disconnect(k int32) {
	for a := range r.attempts {
		x := &r.attempts[a]
		if x.stage != vacant && x.stage != answered && !x.gone && r.drawn(k, x.id) {
			r.giveUp(int32(a), r.now)
		}
	}
}

// mayLeave plans that the client of an attempt that has just arrived goes away.
func (r *run) mayLeave(a int32) {
	x := &r.attempts[a]
	for _, k := range r.faults.leaving {
		if r.drawn(k, x.id) {
			r.agenda.push(r.now+r.cfg.Faults[k].AfterPS, clientGivesUp, a, x.generation)
		}
	}
}

// slowness is the factor of the step times of replica i, 0 for 1.
func (r *run) slowness(i int32) float64 {
	if len(r.cfg.Faults) == 0 {
		return 0
	}
	return r.faults.conditions[i].slow
}

// stepPS is the time of a batch on replica i. The step of a slow one is a multiple of the law's; of a step of decodes the
// coefficients are, so that runs of them keep their closed form.
func (r *run) stepPS(i int32, b *latency.Batch) int64 {
	slow := r.slowness(i)
	switch {
	case slow == 0:
		return r.cfg.Law.Picoseconds(b)
	case len(b.Prefill) == 0:
		x, y, z := r.decodeCoefficients(i, b.DecodeRows)
		return max(1, x+y*b.DecodeContext+z*b.DecodeWindowed)
	}
	return max(1, toPS(float64(r.cfg.Law.Picoseconds(b))*slow))
}

// decodeCoefficients is the law's for a step of n decodes, times the factor of replica i if it is slow.
func (r *run) decodeCoefficients(i, n int32) (a, b, c int64) {
	a, b, c = r.cfg.Law.DecodeCoefficients(n)
	if slow := r.slowness(i); slow != 0 {
		return toPS(float64(a) * slow), toPS(float64(b) * slow), toPS(float64(c) * slow)
	}
	return a, b, c
}

// checkLeases holds the live leases at the end to what faults lost, and names some of the others.
func (r *run) checkLeases() error {
	t := &r.totals
	leaked := t.LeasesLost - t.LeasesAbandoned
	if t.LeasesLive == leaked {
		return nil
	}
	names, n := "", 0
	r.control.Leases(func(le *policies.Lease) {
		if n++; n <= 3 {
			names += fmt.Sprintf("; attempt %d of session %d on replica %d, admitted at %.3f s", le.Attempt, le.Session, le.Replica, float64(le.Admitted)/1e9)
		}
	})
	return fmt.Errorf("%d leases are alive at the end, but faults lost %d and restarts ended %d of these%s", t.LeasesLive, t.LeasesLost, t.LeasesAbandoned, names)
}

// unjam ends the waiting of clients when nothing will happen any more because faults kept the ends of leases from the
// gate: they give up for good, and the run goes on with the sessions that are left. False if there is nobody to end.
func (r *run) unjam() bool {
	if r.totals.LeasesLost == r.totals.LeasesAbandoned {
		return false
	}
	ended := false
	for a := range r.attempts {
		x := &r.attempts[a]
		if x.stage != atGate {
			continue
		}
		ended = true
		turn, gone := x.turn, x.gone
		r.fact(policies.Fact{Kind: policies.ClientGone, Attempt: x.id, Replica: policies.NoReplica})
		if !gone {
			x.row.Outcome, x.row.Final = results.TimedOut, true
		}
		r.endAttempt(int32(a), r.now)
		if !gone {
			r.turnFailed(turn, r.now)
		}
	}
	if ended {
		r.agenda.push(r.now, wakeDue, 0, 0)
		if r.scrapes.idle >= maxIdleScrapes {
			if r.scrapes.idle = 0; !r.scrapes.lazy {
				r.agenda.push(r.now+r.cfg.Signals.ScrapePS, scrapeDue, 0, 0)
			}
		}
	}
	return ended
}

// noteLeak names the leases that faults leaked in the notes of the run.
func (r *run) noteLeak() {
	if t := &r.totals; t.LeasesLost > 0 {
		t.Notes = append(t.Notes,
			results.Count{Label: "leases whose end lost_release kept from the policies", N: t.LeasesLost},
			results.Count{Label: "of these leaked: alive at the end", N: t.LeasesLost - t.LeasesAbandoned})
	}
}
