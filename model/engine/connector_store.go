package engine

import (
	"slices"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// decide decides the stores of a step that has been scheduled, and which jobs must be done before it runs.
func (o *Offload) decide(e *Engine, st *Step) {
	for i := range st.Entries {
		s := st.Entries[i].Slot
		r, x := &e.requests[s], &o.side[s]
		if to := o.storable(e, r, r.computed); to > x.next {
			j, ok := o.storeChunks(s, r.epoch, o.inChunks(r.path), o.chunks(e, r), x.next, to)
			if ok {
				x.next = to
			}
			if j != nil {
				x.jobs++
				j.table = r.table
			}
		}
	}
	for i := range o.ended {
		x := &o.ended[i]
		j, _ := o.storeChunks(x.slot, x.epoch, x.path, x.n, x.from, x.to)
		if j != nil {
			j.table = x.table
		}
		o.settleGuard(e, int64(-1-i), j)
	}
	o.ended = o.ended[:0]
	for _, r := range o.tier.Evicted() {
		o.Counts.EvictedChunks += int64(r.Hi - r.Lo)
	}
	if o.places != nil {
		o.Evicted = append(o.Evicted, o.places.EvictedPlaces...)
	}
	o.flush(e)
}

// storable is the number of leading chunks of a request that its first tokens fill.
func (o *Offload) storable(e *Engine, r *request, tokens int32) int32 {
	tokens = min(tokens, r.tokens)
	if o.cfg.PromptOnly {
		tokens = min(tokens, r.prompt.Tokens)
	}
	return min(tokens/e.cfg.BlockTokens, r.held) / o.cfg.BlocksPerChunk
}

// chunks is the number of full chunks of the tokens of a request, computed or not.
func (o *Offload) chunks(e *Engine, r *request) int32 {
	return r.tokens / (o.cfg.BlocksPerChunk * e.cfg.BlockTokens)
}

// storeChunks decides the store of chunks from (inclusive) to (exclusive) of a request; a store counts as a use of all n
// chunks that it has. It returns the job, nil if nothing is to be stored, and false if the CPU tier has no room.
func (o *Offload) storeChunks(s Slot, epoch uint32, path []prefix.Segment, n, from, to int32) (*Job, bool) {
	j := o.newJob()
	var ok bool
	j.Chunks, ok = o.tier.PrepareStore(path, from, to, j.Chunks)
	if !ok {
		o.Refused = append(o.Refused, Refusal{s, epoch, to - from})
		o.Counts.RefusedStores++
	}
	if len(j.Chunks) == 0 {
		o.withdraw()
		return nil, ok
	}
	if o.places != nil {
		j.CPU = append(j.CPU, o.places.Places...)
	}
	stored := int32(0)
	for _, x := range j.Chunks {
		stored += x.Hi - x.Lo
	}
	o.tier.Touch(path, n)
	j.Slot, j.Epoch = s, epoch
	j.Blocks = stored * o.cfg.BlocksPerChunk
	o.Stores = append(o.Stores, *j)
	o.Counts.StoreJobs++
	o.Counts.StoredChunks += int64(stored)
	o.Counts.StoredBlocks += int64(j.Blocks)
	return j, true
}

// end notes a request that ends, before its blocks are released. vLLM takes its last token as computed, which it is not.
func (o *Offload) end(e *Engine, s Slot) {
	r := &e.requests[s]
	from := o.side[s].next
	to := o.storable(e, r, r.computed+1)
	if to <= from {
		return
	}
	n := len(o.ended)
	if n < cap(o.ended) {
		o.ended = o.ended[:n+1]
	} else {
		o.ended = append(o.ended, endedRequest{})
	}
	x := &o.ended[n]
	*x = endedRequest{slot: s, epoch: r.epoch, table: r.table, from: from, to: to, n: o.chunks(e, r), path: append(x.path[:0], o.inChunks(r.path)...)}
}

// settleGuard passes the guard of an ended request's chunks to the job that stores them, or drops it if there is none.
func (o *Offload) settleGuard(e *Engine, tag int64, j *Job) {
	if j == nil {
		e.pool.Unguard(tag)
		return
	}
	e.pool.Retag(tag, int64(j.ID))
	j.guards = true
}

// withdraw takes back the job made last.
func (o *Offload) withdraw() {
	n := len(o.live) - 1
	o.spare = append(o.spare, o.live[n])
	o.live = o.live[:n]
	o.next--
}

// flush asks for the stores of preempted requests to be finished, and for those of ended requests of which a block has
// passed to another request.
func (o *Offload) flush(e *Engine) {
	for _, s := range e.Preempted {
		for _, i := range o.live {
			if j := &o.jobs[i]; j.Slot == s && j.Epoch == e.requests[s].epoch && !j.Load {
				o.ask(j)
			}
		}
	}
	o.tags = append(o.tags[:0], e.pool.Taken()...)
	for _, a := range e.Admitted {
		r := &e.requests[a.Slot]
		o.tags = e.pool.Guards(r.table, r.held, o.tags)
	}
	if o.cleared {
		o.cleared = false
		for _, i := range o.live {
			if j := &o.jobs[i]; j.Load && j.stale {
				o.ask(j)
			}
		}
	}
	for _, t := range o.tags {
		if at := o.job(JobID(t)); at >= 0 {
			o.ask(&o.jobs[o.live[at]])
		}
	}
	slices.Sort(o.Flush)
	o.Counts.FlushedJobs += int64(len(o.Flush))
}

func (o *Offload) ask(j *Job) {
	if !j.flush {
		j.flush = true
		o.Flush = append(o.Flush, j.ID)
	}
}

// giveBack releases a table. Blocks that a store reads, or may be asked to, are guarded.
func (o *Offload) giveBack(e *Engine, table kv.Handle) {
	b := o.cfg.BlocksPerChunk
	for _, i := range o.live {
		j := &o.jobs[i]
		if j.Load || j.table != table {
			continue
		}
		j.table = noTable
		if j.flush {
			continue
		}
		for _, x := range j.Chunks {
			e.pool.Guard(table, x.Lo*b, x.Hi*b, int64(j.ID))
		}
		j.guards = true
	}
	for i := range o.ended {
		if x := &o.ended[i]; x.table == table {
			x.table = noTable
			e.pool.Guard(table, x.from*b, x.to*b, int64(-1-i))
		}
	}
	e.pool.Release(table)
}

// settle takes in the jobs reported.
func (o *Offload) settle(e *Engine) {
	for _, id := range o.reported {
		at := o.job(id)
		if at < 0 {
			continue
		}
		i := o.live[at]
		o.live = append(o.live[:at], o.live[at+1:]...)
		o.spare = append(o.spare, i)
		j := &o.jobs[i]
		live := e.requests[j.Slot].epoch == j.Epoch
		if live {
			o.side[j.Slot].jobs--
		}
		switch {
		case j.stale:
		case j.Load:
			o.tier.CompleteLoad(j.Chunks)
		default:
			o.tier.CompleteStore(j.Chunks)
		}
		switch {
		case j.orphan:
			e.pool.Release(j.table)
		case j.Load && live:
			o.side[j.Slot].arrived = true
		}
		if j.guards {
			e.pool.Unguard(int64(j.ID))
		}
	}
	o.reported = o.reported[:0]
}

// abandon leaves the blocks of an aborted request to the load that writes them; false if none does.
func (o *Offload) abandon(e *Engine, s Slot) bool {
	for _, i := range o.live {
		if j := &o.jobs[i]; j.Load && j.Slot == s && j.Epoch == e.requests[s].epoch {
			j.orphan, j.table = true, e.requests[s].table
			return true
		}
	}
	return false
}

// steady is how many more steps, all decodes of the running requests, change nothing here but counts.
func (o *Offload) steady(e *Engine) int32 {
	if len(o.reported)+len(o.Loads)+len(o.Stores)+len(o.Flush) > 0 {
		return 0
	}
	for _, i := range o.live {
		if o.jobs[i].guards {
			return 0 // a step may take one of its blocks
		}
	}
	size := o.cfg.BlocksPerChunk * e.cfg.BlockTokens
	steps := int32(maxRunSteps)
	refused := 0
	for _, s := range e.running {
		r := &e.requests[s]
		to := o.storable(e, r, r.computed)
		if to > o.side[s].next {
			refused++ // its store is tried again in every step, of a tier that stays as it is
		}
		if !o.cfg.PromptOnly {
			steps = min(steps, (to+1)*size-min(r.computed, r.tokens)-1)
		}
	}
	if refused != len(o.Refused) {
		return 0
	}
	return max(steps, 0)
}

func (o *Offload) settled(e *Engine, s Slot) bool {
	r := &e.requests[s]
	return o.tier.Settled(o.inChunks(r.path), o.chunks(e, r))
}

// jumped forgets what the last schedule call decided, as n steady steps do, and counts what they ask for in vain.
func (o *Offload) jumped(n int32) {
	o.Evicted = o.Evicted[:0]
	o.tier.ClearEvicted()
	o.Counts.RefusedStores += int64(n) * int64(len(o.Refused))
	for i := range o.Lookups {
		if o.Lookups[i].Retry {
			o.Counts.LookupsToBeRetried += int64(n)
		}
	}
}

func (o *Offload) busy() bool { return len(o.live) > 0 }
