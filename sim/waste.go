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
	h.here[replica] = raise(h.here[replica], s, hi)
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
		for j := range r.replicas {
			if int32(j) != i {
				r.look(int32(j), i)
				hits, _ := r.replicas[j].loop.Pool().Lookup(x.path, end)
				resident = max(resident, hits)
			}
		}
		give(resident, results.CauseElsewhere)
		give(end, results.CauseCold)
	}
}
