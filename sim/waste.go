package sim

import (
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
)

// history is what content was ever computed, in whole blocks: for every stream the end of the part that was registered
// somewhere, since computation goes from the head of a stream on, and the same for each replica that ever held some of it.
type history struct {
	streams []computedStream
	wide    [][]int32 // by replica: 1 + its place among the holders
}

type computedStream struct {
	anywhere int32
	wide     int32 // place in history.wide, 0 for none
	holders  []holder
}

// holder is what one replica computed of a stream: since it started, and before that.
type holder struct{ replica, here, lost int32 }

// manyHolders is how many holders of a stream are looked through one by one.
const manyHolders = 16

// restarted notes that replica i lost all that it held.
func (h *history) restarted(i int32) {
	for s := range h.streams {
		if x := h.find(i, prefix.StreamID(s)); x != nil {
			x.here, x.lost = 0, max(x.here, x.lost)
		}
	}
}

// find is what replica i computed of stream s; nil if nothing.
func (h *history) find(i int32, s prefix.StreamID) *holder {
	if int(s) >= len(h.streams) {
		return nil
	}
	x := &h.streams[s]
	if x.wide > 0 {
		if at := h.wide[x.wide][i]; at > 0 {
			return &x.holders[at-1]
		}
		return nil
	}
	for k := range x.holders {
		if x.holders[k].replica == i {
			return &x.holders[k]
		}
	}
	return nil
}

// computed notes that replica i registered blocks up to hi of stream s; there are so many replicas in all.
func (h *history) computed(i int32, s prefix.StreamID, hi int32, replicas int) {
	for int(s) >= len(h.streams) {
		h.streams = append(h.streams, computedStream{})
	}
	if x := h.find(i, s); x != nil {
		x.here = max(x.here, hi)
	} else {
		h.add(holder{replica: i, here: hi}, s, replicas)
	}
	h.streams[s].anywhere = max(h.streams[s].anywhere, hi)
}

func (h *history) add(x holder, s prefix.StreamID, replicas int) {
	st := &h.streams[s]
	st.holders = append(st.holders, x)
	switch n := len(st.holders); {
	case st.wide > 0:
		h.wide[st.wide][x.replica] = int32(n)
	case n > manyHolders:
		if len(h.wide) == 0 {
			h.wide = append(h.wide, nil)
		}
		st.wide = int32(len(h.wide))
		table := make([]int32, replicas)
		for k, y := range st.holders {
			table[y.replica] = int32(k + 1)
		}
		h.wide = append(h.wide, table)
	}
}

// holders are the replicas that ever held some of the stream that block at of a path belongs to.
func (h *history) holders(path []prefix.Segment, at int32) []holder {
	for _, s := range path {
		if at < s.Hi {
			return h.streams[s.Stream].holders
		}
	}
	return nil
}

// anywhere is how far stream s was ever computed, in blocks.
func (h *history) anywhere(s prefix.StreamID) int32 {
	if int(s) >= len(h.streams) {
		return 0
	}
	return h.streams[s].anywhere
}

// here is anywhere on replica i, since it started.
func (h *history) here(i int32, s prefix.StreamID) int32 {
	if x := h.find(i, s); x != nil {
		return x.here
	}
	return 0
}

// lost is anywhere on replica i, before it last started.
func (h *history) lost(i int32, s prefix.StreamID) int32 {
	if x := h.find(i, s); x != nil {
		return x.lost
	}
	return 0
}

// reach is how many leading blocks of path, at most limit, were computed if each stream was up to an end.
func reach(end func(prefix.StreamID) int32, path []prefix.Segment, limit int32) int32 {
	for _, s := range path {
		if end, hi := end(s.Stream), min(s.Hi, limit); end < hi {
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
	h := &r.history
	end := reach(h.anywhere, x.path, limit)
	if end <= at {
		return
	}
	give := func(upTo int32, c results.Cause) {
		if n := min(upTo, end) - at; n > 0 {
			x.waste[c] += n * b
			at += n
		}
	}
	here := func(s prefix.StreamID) int32 { return h.here(i, s) }
	lost := func(s prefix.StreamID) int32 { return h.lost(i, s) }
	give(x.before/b, results.CauseRetry)
	give(reach(here, x.path, limit), results.CauseEvicted)
	give(reach(lost, x.path, limit), results.CauseRestarted)
	if at < end {
		resident := int32(0)
		for _, y := range h.holders(x.path, at) {
			if y.replica != i && resident < end {
				r.lookFrom(y.replica, i)
				hits, _ := r.replicas[y.replica].loop.Pool().Lookup(x.path, end)
				resident = max(resident, hits)
			}
		}
		give(resident, results.CauseElsewhere)
		give(end, results.CauseCold)
	}
}
