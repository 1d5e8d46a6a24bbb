package engine

import (
	"fmt"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// OffloadConfig describes vLLM's OffloadingConnector in front of a CPU tier (spec: vllm 14.2).
type OffloadConfig struct {
	kv.CPUConfig
	BlocksPerChunk int32
	PromptOnly     bool // offload_prompt_only: blocks of generated tokens are not stored
	// InStep has a load belong to the step that admits its request, as connectors of other projects do, instead of the
	// request waiting for it: the step takes longer by what package latency's Overlap says, and the driver reports the
	// load with its output.
	InStep bool
}

// JobID numbers the transfers of one engine from 0 in the order in which they were decided.
type JobID int64

// Job is one transfer between GPU and CPU. Its slices are valid until it has been reported.
type Job struct {
	ID     JobID
	Load   bool // from CPU to GPU
	Slot   Slot
	Epoch  uint32
	Chunks []prefix.Segment // runs of chunks of the request, by position
	CPU    []int32          // where they lie in the CPU tier, if that has places
	// Blocks is how many GPU blocks move. Those of a load are the ones from First on in the request's table; those of a
	// store are all blocks of Chunks.
	First, Blocks int32

	stale  bool      // the CPU tier was reset after it was decided
	flush  bool      // it was asked for to be finished
	orphan bool      // the request that loads has been aborted
	table  kv.Handle // that holds the blocks of a store, or of the load of an aborted request; noTable once released
	guards bool      // the pool watches blocks of it
}

// noTable is no handle of a pool.
const noTable kv.Handle = -1

// Refusal is a store for which the CPU tier had no room.
type Refusal struct {
	Slot   Slot
	Epoch  uint32
	Chunks int32
}

// Offload is the scheduler's side of vLLM's OffloadingConnector: it decides loads and stores, and the driver says when
// they are done.
//
// After Schedule (or Loop.Advance with a scheduled step) Loads, Stores and Flush are what that call decided.
//   - A load may start at once. Its request waits, holding its blocks, and takes no part in steps.
//   - A store may start when the next step does: vLLM's worker submits the stores of a step with the step after it.
//   - Jobs in Flush, decided in this call or before, must be done before this step starts; the wait is a stall. Stores of
//     this call start at once if one of them is in Flush.
//
// When a job is done the driver calls Report and then, as soon as an output is processed, Loop.Complete: vLLM hears of
// a transfer with the output of a step, the first that ends after it. While a job is under way HasRequests is true
// and the loop goes on with empty steps; vLLM lets about 1 ms pass in each, and a driver may let one last until the next
// job is done, since an empty step changes nothing except through lookups of waiting requests.
type Offload struct {
	cfg    OffloadConfig
	tier   kv.CPUTier
	places *kv.ReferenceCPUTier // tier, if chunks have places

	ledger
	jobs    []Job // records
	spare   []int32
	live    []int32 // records of jobs not reported, by ascending id
	next    JobID
	cleared bool // the tier was reset since the last schedule call

	ended []endedRequest // since the last schedule call

	path []prefix.Segment // scratch
	tags []int64

	// What the last Schedule did. Valid until the next call.
	Loads   []Job
	Stores  []Job
	Flush   []JobID
	Refused []Refusal
	Evicted []int32 // places in the CPU tier, if it has them

	reported []JobID // until the next update

	Counts OffloadCounts
}

// OffloadCounts are totals since the start. A chunk counts when its transfer was decided.
type OffloadCounts struct {
	LoadJobs, StoreJobs             int64
	LoadedChunks, StoredChunks      int64
	EvictedChunks, RefusedStores    int64
	LoadedBlocks, StoredBlocks      int64 // of the GPU
	FlushedJobs, LookupsToBeRetried int64
}

// endedRequest is a request that ended with chunks still to be stored.
type endedRequest struct {
	slot  Slot
	epoch uint32
	table kv.Handle
	from  int32 // chunks to store
	to    int32
	path  []prefix.Segment // in chunks
	n     int32            // chunks that it has
}

// Connect puts a CPU tier behind an engine that has not had a request yet.
func (e *Engine) Connect(cfg OffloadConfig) *Offload {
	if cfg.Chunks < 1 || cfg.BlocksPerChunk < 1 || e.steps > 0 || e.live > 0 {
		panic(fmt.Sprintf("engine: a CPU tier of %d chunks of %d blocks cannot be put behind this engine", cfg.Chunks, cfg.BlocksPerChunk))
	}
	o := &Offload{cfg: cfg, tier: kv.NewCPUTier(cfg.CPUConfig)}
	if cfg.Places {
		o.places = o.tier.(*kv.ReferenceCPUTier)
	}
	e.offload, e.tier, e.ledger = o, o, &o.ledger
	return o
}

// Offload is the engine's connector, nil without a CPU tier.
func (e *Engine) Offload() *Offload { return e.offload }

// Tier is the CPU tier.
func (o *Offload) Tier() kv.CPUTier { return o.tier }

// Resident is the number of blocks of which the CPU tier has a complete copy.
func (o *Offload) Resident() int64 {
	return int64(o.tier.Used()-o.tier.Pending()) * int64(o.cfg.BlocksPerChunk)
}

// UnderWay is the number of jobs decided and not reported.
func (o *Offload) UnderWay() int { return len(o.live) }

// Report says that a job is done. It takes effect at the end of the next Update.
func (o *Offload) Report(id JobID) { o.reported = append(o.reported, id) }

// ResetTier forgets everything in the CPU tier (reset_connector). Jobs under way are still to be reported, and the
// loads among them are to be finished before the next step.
func (e *Engine) ResetTier() {
	o := e.offload
	o.tier.Reset()
	o.cleared = true
	for _, i := range o.live {
		o.jobs[i].stale = true
	}
	for s := range o.side {
		o.side[s].next = 0
	}
}

func (o *Offload) asynchronous() bool { return !o.cfg.InStep }

// begin forgets what the schedule call before decided.
func (o *Offload) begin(e *Engine) {
	o.Loads, o.Stores, o.Flush = o.Loads[:0], o.Stores[:0], o.Flush[:0]
	o.Refused, o.Evicted = o.Refused[:0], o.Evicted[:0]
	o.tier.ClearEvicted()
	e.pool.ClearTaken()
}

// newJob makes a record with a place in the list of jobs under way.
func (o *Offload) newJob() *Job {
	var i int32
	if n := len(o.spare); n > 0 {
		i = o.spare[n-1]
		o.spare = o.spare[:n-1]
	} else {
		o.jobs = append(o.jobs, Job{})
		i = int32(len(o.jobs) - 1)
	}
	j := &o.jobs[i]
	*j = Job{ID: o.next, table: noTable, Chunks: j.Chunks[:0], CPU: j.CPU[:0]}
	o.next++
	o.live = append(o.live, i)
	return j
}

// job is the place of a job in the list of those under way, or -1.
func (o *Offload) job(id JobID) int {
	lo, hi := 0, len(o.live)
	for lo < hi {
		mid := (lo + hi) / 2
		if o.jobs[o.live[mid]].ID < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(o.live) && o.jobs[o.live[lo]].ID == id {
		return lo
	}
	return -1
}

// inChunks is a path in chunks, which belong to the streams that own their last blocks. Valid until the next call.
func (o *Offload) inChunks(path []prefix.Segment) []prefix.Segment {
	b := o.cfg.BlocksPerChunk
	if b == 1 {
		return path
	}
	o.path = o.path[:0]
	for _, s := range path {
		if s.Lo/b < s.Hi/b {
			o.path = append(o.path, prefix.Segment{Stream: s.Stream, Lo: s.Lo / b, Hi: s.Hi / b})
		}
	}
	return o.path
}

// lookup asks the CPU tier for what follows gpu tokens of a waiting request.
func (o *Offload) lookup(e *Engine, s Slot, gpu int32) Lookup {
	r := &e.requests[s]
	l := Lookup{Slot: s, GPU: gpu}
	size := o.cfg.BlocksPerChunk * e.cfg.BlockTokens
	if o.side[s].jobs > 0 {
		l.Retry = true
	} else {
		path, n := o.inChunks(r.path), o.chunks(e, r)
		l.CPU, l.Retry = o.match(path, n, gpu, size)
		o.tier.Touch(path, n)
	}
	if l.Retry {
		o.Counts.LookupsToBeRetried++
	}
	return l
}

// match is how many tokens behind gpu tokens can be loaded of the first n chunks of a path, of size tokens each.
func (o *Offload) match(path []prefix.Segment, n, gpu, size int32) (tokens int32, retry bool) {
	if n*size-gpu < size {
		return 0, false
	}
	first := gpu / size
	end, arrives, pinned := o.tier.Match(path, first, n)
	if arrives {
		return 0, true
	}
	if tokens = end*size - gpu; end == first || tokens < size {
		return 0, false
	}
	if pinned {
		return 0, true
	}
	return tokens, false
}

// load decides the load of a request whose blocks are allocated.
func (o *Offload) load(e *Engine, s Slot, l Lookup) {
	r := &e.requests[s]
	b := e.cfg.BlockTokens
	size := o.cfg.BlocksPerChunk * b
	from, to := l.GPU/size, (l.GPU+l.CPU+size-1)/size
	j := o.newJob()
	j.Load, j.Slot, j.Epoch = true, s, r.epoch
	j.First = l.GPU / b
	j.Blocks = blocksFor(l.GPU+l.CPU, b) - j.First
	path := o.inChunks(r.path)
	for _, x := range path {
		if lo, hi := max(x.Lo, from), min(x.Hi, to); lo < hi {
			j.Chunks = append(j.Chunks, prefix.Segment{Stream: x.Stream, Lo: lo, Hi: hi})
		}
	}
	o.tier.PrepareLoad(path, from, to)
	if o.places != nil {
		j.CPU = append(j.CPU, o.places.Places...)
	}
	x := &o.side[s]
	x.next = to
	x.jobs++
	o.Loads = append(o.Loads, *j)
	o.Counts.LoadJobs++
	o.Counts.LoadedChunks += int64(to - from)
	o.Counts.LoadedBlocks += int64(j.Blocks)
}
