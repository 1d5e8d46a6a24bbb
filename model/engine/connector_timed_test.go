package engine

import (
	"testing"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/prefix"
)

const millisecond = int64(1e9) // in picoseconds

// timed drives an engine with a CPU tier by times, as a simulator does: every step takes a millisecond, transfers go
// through the queues of a link.
type timed struct {
	t      *testing.T
	loop   *Loop
	link   latency.TransferQueue
	bytes  int64 // of a block
	now    int64
	free   int64   // when the last step in flight ends
	ends   []int64 // of the steps in flight
	held   []Job   // stores decided and not submitted
	under  []inTransfer
	stalls int64
}

type inTransfer struct {
	id  JobID
	end int64
}

func (d *timed) submit(j Job) int64 {
	to := latency.ToHost
	if j.Load {
		to = latency.ToGPU
	}
	_, end := d.link.Submit(d.now, to, int64(j.Blocks), int64(j.Blocks)*d.bytes)
	d.under = append(d.under, inTransfer{j.ID, end})
	return end
}

// scheduled starts what a schedule call decided and gives its step a time.
func (d *timed) scheduled(st *Step) {
	o := d.loop.Offload()
	flushed := map[JobID]bool{}
	for _, id := range o.Flush {
		flushed[id] = true
	}
	for _, j := range d.held {
		d.submit(j)
	}
	d.held = d.held[:0]
	for _, j := range o.Loads {
		d.submit(j)
	}
	for _, j := range o.Stores {
		if flushed[j.ID] {
			d.submit(j)
		} else {
			d.held = append(d.held, Job{ID: j.ID, Blocks: j.Blocks})
		}
	}
	start := max(d.now, d.free)
	idle := d.now + millisecond // an empty step lasts so long, or until something changes
	for _, x := range d.under {
		if flushed[x.id] && x.end > start {
			d.stalls += x.end - start
			start = x.end
		}
		idle = min(idle, max(x.end, d.now))
	}
	d.free = start + millisecond
	if st.Tokens == 0 {
		d.free = max(idle, start)
	}
	d.ends = append(d.ends, d.free)
}

// run drives the engine until it has nothing to do.
func (d *timed) run(sampled func(Slot)) {
	for range 100_000 {
		outcome, st, _ := d.loop.Advance()
		if st != nil {
			d.scheduled(st)
		}
		switch outcome {
		case Idle:
			return
		case Scheduled:
			continue
		}
		d.now = d.ends[0]
		d.ends = d.ends[1:]
		kept := d.under[:0]
		for _, x := range d.under {
			if x.end <= d.now {
				d.loop.Offload().Report(x.id)
			} else {
				kept = append(kept, x)
			}
		}
		d.under = kept
		d.loop.Complete()
		for _, s := range d.loop.Sampled {
			sampled(s)
		}
	}
	d.t.Fatal("the engine does not come to rest")
}

// TestConnectorTimed loads a prompt of 8,000 tokens from the CPU tier after others have pushed it out of the GPU: its
// first token comes one transfer and a few steps after it was sent, and sooner than computing it would take.
func TestConnectorTimed(t *testing.T) {
	gpu, err := latency.FindGPU("h100_sxm")
	if err != nil {
		t.Fatal(err)
	}
	for _, async := range []bool{false, true} {
		cfg := DefaultConfig()
		cfg.Async = async
		cfg.MaxBatchedTokens = 512
		d := &timed{t: t, loop: NewLoop(New(&cfg, kv.NewExtent(600, true))), link: latency.NewTransferQueue(gpu.HostLink()), bytes: 2 << 20}
		d.loop.Connect(OffloadConfig{CPUConfig: kv.CPUConfig{Chunks: 2000}, BlocksPerChunk: 1, PromptOnly: true})
		var tree prefix.Tree
		var first []int64
		prompts := []prefix.Prefix{{Stream: tree.Root(), Tokens: 8000}, {Stream: tree.Root(), Tokens: 8000}}
		for _, p := range append(prompts, prompts[0]) {
			d.loop.Add(Request{Prompt: p, MaxTokens: 2, Path: tree.Segments(prefix.Prefix{Stream: p.Stream, Tokens: 8002}, cfg.BlockTokens, nil)})
			sent, done := d.now, false
			d.run(func(Slot) {
				if !done {
					first = append(first, d.now-sent)
				}
				done = true
			})
		}
		o := d.loop.Offload()
		if o.Counts.StoredChunks != 1000 || o.Counts.LoadJobs != 1 || o.UnderWay() != 0 || len(d.held) > 0 {
			t.Errorf("async %v: %+v, %d under way", async, o.Counts, o.UnderWay())
		}
		if first[0] < 16*millisecond {
			t.Errorf("async %v: the first prompt took %d ps, less than its steps", async, first[0])
		}
		transfer := gpu.HostTransfer(o.Counts.LoadedBlocks, d.bytes)
		if wait := first[2]; wait < transfer+millisecond || wait > transfer+5*millisecond {
			t.Errorf("async %v: the loaded prompt took %d ps, its transfer %d", async, wait, transfer)
		}
	}
}
