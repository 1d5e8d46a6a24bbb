package sim

import (
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
)

// wrote counts the dispatched attempts whose output goes to a stream.
func (r *run) wrote(s prefix.StreamID, by int32) {
	if k := r.history.enter(s); k != nil {
		k.writers += by
	}
}

// lookAtWriters brings the replicas up to now that may be adding to content on the path of x, which replica i is about to
// account for.
func (r *run) lookAtWriters(i int32, x *attempt) {
	for _, s := range x.path {
		own := int32(0) // x itself writes its stream
		if s.Stream == x.prompt.Stream {
			own = 1
		}
		if k := r.history.of(s.Stream); k != nil && k.writers > own {
			for j := range r.replicas {
				r.lookFrom(int32(j), i)
				r.noteUnregistered(int32(j))
			}
			return
		}
	}
}

// noteUnregistered takes in what the running requests of replica i have computed and not registered yet.
func (r *run) noteUnregistered(i int32) {
	p := &r.replicas[i]
	for _, s := range p.loop.RunningSlots() {
		if stream, hi, ok := p.loop.Unregistered(s); ok {
			r.history.computed(i, stream, hi)
		}
	}
}

// admitted accounts for a request that its engine moved to running: what it found and what it has to compute again.
func (r *run) admitted(i, a int32, adm engine.Admission) {
	x := &r.attempts[a]
	p := &r.replicas[i]
	if adm.Resumed {
		if again := min(x.prompt.Tokens, x.reached) - adm.Hit; again > 0 {
			x.waste[results.CausePreempted] += again
		}
		return
	}
	x.row.ScheduledPS = r.now
	x.row.HitCPU = min(adm.CPU, adm.Hit)
	x.row.HitGPU = adm.Hit - x.row.HitCPU
	x.reached = adm.Hit
	p.series.cur.PromptTokens += int64(x.prompt.Tokens)
	p.series.cur.HitTokens += int64(adm.Hit)
	r.assignWaste(i, x, adm.Hit)
}

// assignWaste gives every prompt block that is computed although it had been computed before its cause; the first that
// matches counts, in the order of results.Cause.
func (r *run) assignWaste(i int32, x *attempt, hitTokens int32) {
	r.lookAtWriters(i, x)
	b := r.cfg.Engine.BlockTokens
	limit, at := x.prompt.Tokens/b, hitTokens/b
	end := r.history.reach(anywhere, i, x.path, limit)
	if end <= at {
		return
	}
	give := func(upTo int32, c results.Cause) {
		if n := min(upTo, end) - at; n > 0 {
			x.waste[c] += n * b
			at += n
		}
	}
	give(x.before/b, results.CauseRetry)
	give(r.history.reach(here, i, x.path, limit), results.CauseEvicted)
	give(r.history.reach(lost, i, x.path, limit), results.CauseRestarted)
	if at < end {
		resident := int32(0)
		for _, k := range r.history.holders(x.path, at) {
			if j := k.replica; j != i && resident < end {
				r.lookFrom(j, i)
				resident = max(resident, r.replicas[j].loop.Resident(x.path, end))
			}
		}
		give(resident, results.CauseElsewhere)
		give(end, results.CauseCold)
	}
}
