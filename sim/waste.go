package sim

import (
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
)

// history is what content was ever computed, in whole blocks: by stream, the end of the part that was registered
// somewhere, since computation goes from the head of a stream on.
type history struct {
	anywhere []int32
	who      [][]int32 // by stream, the replicas that ever held some of it
	here     [][]int32 // by replica, since it started
	lost     [][]int32 // by replica, before that
}

// restarted notes that replica i lost all that it held.
func (h *history) restarted(i int32) {
	for s, hi := range h.here[i] {
		if hi > 0 {
			h.lost[i] = raise(h.lost[i], prefix.StreamID(s), hi)
		}
	}
	clear(h.here[i])
}

func (h *history) computed(replica int32, s prefix.StreamID, hi int32) {
	h.anywhere = raise(h.anywhere, s, hi)
	if e := h.here[replica]; int(s) >= len(e) || e[s] == 0 {
		for int(s) >= len(h.who) {
			h.who = append(h.who, nil)
		}
		h.who[s] = append(h.who[s], replica)
	}
	h.here[replica] = raise(h.here[replica], s, hi)
}

// holders are the replicas that ever held some of the stream that block at of a path belongs to; one that restarted may
// be there twice.
func (h *history) holders(path []prefix.Segment, at int32) []int32 {
	for _, s := range path {
		if at < s.Hi {
			return h.who[s.Stream]
		}
	}
	return nil
}

func raise(ends []int32, s prefix.StreamID, hi int32) []int32 {
	for int(s) >= len(ends) {
		ends = append(ends, 0)
	}
	ends[s] = max(ends[s], hi)
	return ends
}

// reach is how many leading blocks of path, at most limit, were ever computed.
func reach(ends []int32, path []prefix.Segment, limit int32) int32 {
	for _, s := range path {
		end := int32(0)
		if int(s.Stream) < len(ends) {
			end = ends[s.Stream]
		}
		if hi := min(s.Hi, limit); end < hi {
			return max(end, s.Lo)
		} else if hi == limit {
			return limit
		}
	}
	if n := len(path); n > 0 {
		return min(path[n-1].Hi, limit)
	}
	return 0
}

// wrote counts the dispatched attempts whose output goes to a stream.
func (r *run) wrote(s prefix.StreamID, by int32) {
	for int(s) >= len(r.writers) {
		r.writers = append(r.writers, 0)
	}
	r.writers[s] += by
}

// lookAtWriters brings the replicas up to now that may be adding to content on the path of x, which replica i is about to
// account for.
func (r *run) lookAtWriters(i int32, x *attempt) {
	for _, s := range x.path {
		if s.Stream != x.prompt.Stream && int(s.Stream) < len(r.writers) && r.writers[s.Stream] > 0 {
			for j := range r.replicas {
				r.lookFrom(int32(j), i)
			}
			return
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
	end := reach(r.history.anywhere, x.path, limit)
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
	give(reach(r.history.here[i], x.path, limit), results.CauseEvicted)
	give(reach(r.history.lost[i], x.path, limit), results.CauseRestarted)
	if at < end {
		resident := int32(0)
		for _, j := range r.history.holders(x.path, at) {
			if j != i {
				r.lookFrom(j, i)
				hits, _ := r.replicas[j].loop.Pool().Lookup(x.path, end)
				resident = max(resident, hits)
			}
		}
		give(resident, results.CauseElsewhere)
		give(end, results.CauseCold)
	}
}
