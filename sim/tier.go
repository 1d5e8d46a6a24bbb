package sim

import (
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/results"
)

// CPUTier is the memory of the host behind each replica, vLLM's offloading connector (spec: vllm 14).
type CPUTier struct {
	engine.OffloadConfig
	BlockBytes int64 // of one KV block on one GPU; under tensor parallelism every GPU moves its share over its own link
	Link       *latency.Link
	Overlap    latency.Overlap
	Layers     int
}

// transfer is a job of the connector on its way. A store waits for the next step to begin.
type transfer struct {
	id      engine.JobID
	load    bool
	started bool
	blocks  int64
	done    int64 // when it ends, once started
}

// ceiling raises the most that a turn can hit, which counts whole blocks and leaves one of the prompt to be computed: a
// prompt that comes whole from the CPU tier has one token computed, and where outputs are stored too, vLLM stores the
// block that the last token of a turn fills, although that token is never computed.
func (c *CPUTier) ceiling(tokens, prompt, block int32) int32 {
	if tokens+block == prompt || !c.PromptOnly {
		return min(tokens+block, prompt-1)
	}
	return tokens
}

// tier is a replica's side of the CPU tier. Transfers queue per direction.
type tier struct {
	offload   *engine.Offload // nil without a CPU tier
	transfers []transfer      // under way, by ascending id
	queue     latency.TransferQueue
	busyPS    [2]int64 // by direction
	vain      int      // steps in a row that did nothing while no transfer was under way
}

func (t *tier) connect(e *engine.Engine, c *CPUTier) {
	if c != nil {
		cfg := c.OffloadConfig
		cfg.InStep = c.Overlap != latency.Asynchronous
		t.offload = e.Connect(cfg)
		t.queue = latency.NewTransferQueue(c.Link)
	}
}

// begin moves the transfers that a schedule call decided, and those that waited for it. It returns when the step may
// compute, given when it could without transfers, and by how much they lengthen it.
//
// Loads begin with the step; stores decided before begin now, those of this call with the next one. What vLLM flushes
// must be over before the step computes.
func (t *tier) begin(c *CPUTier, start, compute int64) (from, longer int64) {
	o := t.offload
	flush := func(id engine.JobID) bool {
		for _, f := range o.Flush {
			if f == id {
				return true
			}
		}
		return false
	}
	for k := range t.transfers {
		t.start(c, &t.transfers[k], start)
	}
	for i := range o.Stores {
		t.transfers = append(t.transfers, transfer{id: o.Stores[i].ID, blocks: int64(o.Stores[i].Blocks)})
		if flush(o.Stores[i].ID) {
			t.start(c, &t.transfers[len(t.transfers)-1], start)
		}
	}
	from = start
	for k := range t.transfers {
		if x := &t.transfers[k]; x.started && flush(x.id) {
			from = max(from, x.done)
		}
	}
	for i := range o.Loads {
		x := transfer{id: o.Loads[i].ID, load: true, blocks: int64(o.Loads[i].Blocks)}
		t.start(c, &x, from)
		switch c.Overlap {
		case latency.Asynchronous:
		case latency.Blocking:
			from = max(from, x.done)
		case latency.LayerWise:
			longer = max(longer, c.Overlap.Visible(x.done-from, compute, c.Layers))
			x.done = min(x.done, from+compute+longer)
		}
		t.transfers = append(t.transfers, x)
	}
	t.sort()
	return from, longer
}

// sort restores the order by id; the list is short and nearly sorted.
func (t *tier) sort() {
	for i := 1; i < len(t.transfers); i++ {
		for j := i; j > 0 && t.transfers[j].id < t.transfers[j-1].id; j-- {
			t.transfers[j], t.transfers[j-1] = t.transfers[j-1], t.transfers[j]
		}
	}
}

// start puts a transfer on its link.
func (t *tier) start(c *CPUTier, x *transfer, now int64) {
	if x.started {
		return
	}
	x.started = true
	d := latency.ToHost
	if x.load {
		d = latency.ToGPU
	}
	var begin int64
	begin, x.done = t.queue.Submit(now, d, x.blocks, x.blocks*c.BlockBytes)
	t.busyPS[d] += x.done - begin
}

// report tells the engine of the transfers that are over by now; it takes that in with the output of a step.
func (t *tier) report(now int64) {
	left := t.transfers[:0]
	for _, x := range t.transfers {
		if x.started && x.done <= now {
			t.offload.Report(x.id)
		} else {
			left = append(left, x)
		}
	}
	t.transfers = left
}

// next is when the next transfer is over; false if none has started.
func (t *tier) next() (at int64, ok bool) {
	for _, x := range t.transfers {
		if x.started && (!ok || x.done < at) {
			at, ok = x.done, true
		}
	}
	return at, ok
}

// wait is until when a step without work lasts: vLLM goes on with empty steps while transfers are under way, which change
// nothing until one of them is over or something arrives.
func (t *tier) wait(start int64) int64 {
	if at, ok := t.next(); ok {
		return max(start, at)
	}
	return start
}

// maxSpins is how many steps in a row may do nothing while no transfer is under way; deferred frees take two.
const maxSpins = 8

// spins tells, of each step that is scheduled, whether the engine goes round for nothing until something arrives: no request
// can be computed, and no transfer is under way that would change that. It happens to vLLM where a request that is to load
// is ahead in the queue of one that has loaded, and does not fit beside what that one will need (spec: vllm 14.1).
func (t *tier) spins(computes bool) bool {
	if computes || len(t.transfers) > 0 {
		t.vain = 0
		return false
	}
	t.vain++
	return t.vain > maxSpins
}

// add counts what this replica moved.
func (t *tier) add(sum *results.TierTotals, blockTokens, blocksPerChunk int64) {
	n := &t.offload.Counts
	sum.LoadedTokens += n.LoadedBlocks * blockTokens
	sum.StoredTokens += n.StoredBlocks * blockTokens
	sum.EvictedTokens += n.EvictedChunks * blocksPerChunk * blockTokens
	sum.Loads += n.LoadJobs
	sum.Stores += n.StoreJobs
	sum.RefusedStores += n.RefusedStores
	sum.Flushes += n.FlushedJobs
	sum.StoreBusyPS += t.busyPS[latency.ToHost]
	sum.LoadBusyPS += t.busyPS[latency.ToGPU]
}

// endWait ends an empty step that only waits for transfers, because something has arrived. vLLM sleeps a millisecond in
// such steps; the arrival is taken in at once here.
func (r *run) endWait(i int32) {
	p := &r.replicas[i]
	if p.tier.offload == nil || p.depth == 0 || p.flight[0].computes || p.flight[0].end <= r.now {
		return
	}
	p.tier.vain = 0
	for k := range p.flight[:p.depth] {
		if s := &p.flight[k]; !s.computes {
			s.start, s.end = min(s.start, r.now), min(s.end, r.now)
		}
	}
	p.freeAt = p.flight[p.depth-1].end
	r.ends.set(i, p.flight[0].end)
}
