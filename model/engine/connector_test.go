package engine

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// tiered is one engine with a CPU tier, and a worker that ends each transfer some calls after it may start.
type tiered struct {
	loop    *Loop
	pending []Job // decided, by id
	age     []int
	late    int // age at which a transfer is done
	flight  [][]JobID
}

func newTiered(cfg Config, o OffloadConfig, pool kv.Pool, late int) *tiered {
	x := &tiered{loop: NewLoop(New(&cfg, pool)), late: late}
	x.loop.Connect(o)
	return x
}

// advance is the first half of an iteration of the engine loop. It returns what happened in a form without block ids.
func (x *tiered) advance() (outcome Outcome, told string) {
	outcome, st, _ := x.loop.Advance()
	if st == nil {
		return outcome, ""
	}
	o := x.loop.Offload()
	for _, j := range slices.Concat(o.Loads, o.Stores) {
		x.pending, x.age = append(x.pending, j), append(x.age, 0)
		told += fmt.Sprintf("job %d load %v slot %d chunks %v blocks %d+%d\n", j.ID, j.Load, j.Slot, j.Chunks, j.First, j.Blocks)
	}
	told += fmt.Sprintf("step %d %v admitted %v preempted %v flush %v lookups %v refused %v evicted %v\n", st.Number, st.Entries,
		x.loop.Admitted, x.loop.Preempted, o.Flush, o.Lookups, o.Refused, evictedChunks(o.Tier().Evicted()))
	var done []JobID
	kept := 0
	for i, j := range x.pending {
		if x.age[i]++; x.age[i] > x.late || slices.Contains(o.Flush, j.ID) {
			done = append(done, j.ID)
		} else {
			x.pending[kept], x.age[kept] = j, x.age[i]
			kept++
		}
	}
	x.pending, x.age = x.pending[:kept], x.age[:kept]
	x.flight = append(x.flight, done)
	return outcome, told
}

// complete is the second half.
func (x *tiered) complete() string {
	for _, id := range x.flight[0] {
		x.loop.Offload().Report(id)
	}
	x.flight = x.flight[1:]
	x.loop.Complete()
	return fmt.Sprintf("sampled %v finished %v\n", x.loop.Sampled, x.loop.Finished)
}

// state is what can be seen between the halves and after them.
func (x *tiered) state() string {
	o, p := x.loop.Offload(), x.loop.Pool()
	t := o.Tier()
	return fmt.Sprintf("free %d cached %d queues %d %d %d tier %d %d %d counts %+v external %+v", p.Free(), p.Cached(),
		x.loop.Running(), x.loop.Waiting(), x.loop.Skipped(), t.Used(), t.Evictable(), t.Pending(), o.Counts, o.External)
}

// turn is a whole iteration.
func (x *tiered) turn() string {
	outcome, told := x.advance()
	if outcome == Blocked {
		told += x.complete()
	}
	return told + x.state()
}

// evictedChunks lists what was evicted, chunk by chunk.
func evictedChunks(runs []kv.EvictedRun) (chunks [][2]int32) {
	for _, r := range runs {
		for n := range r.Hi - r.Lo {
			at := r.Hi - 1 - n
			if r.Up {
				at = r.Lo + n
			}
			chunks = append(chunks, [2]int32{int32(r.Stream), at})
		}
	}
	return chunks
}

// TestConnectorPools drives an engine over reference pool and reference tier, and one over those of runs, through the
// same random sessions with aborts, resets of either tier and tight memory. They must agree on all that has no block id
// or place in it, and nothing may be left behind at the end.
func TestConnectorPools(t *testing.T) {
	for range 6 { // 100 worlds each
		rapid.Check(t, connectorWorld)
	}
}

func connectorWorld(t *rapid.T) {
	cfg := DefaultConfig()
	cfg.BlockTokens = 4
	cfg.MaxBatchedTokens = rapid.Int32Range(5, 60).Draw(t, "budget")
	cfg.MaxNumSeqs = rapid.Int32Range(1, 6).Draw(t, "seqs")
	cfg.MaxModelLen = 80
	cfg.Async = rapid.Bool().Draw(t, "async")
	cfg.Priority = rapid.Bool().Draw(t, "priority")
	o := OffloadConfig{
		CPUConfig: kv.CPUConfig{
			Chunks: rapid.Int32Range(2, 40).Draw(t, "chunks"), ARC: rapid.Bool().Draw(t, "arc"),
			StoreThreshold: rapid.SampledFrom([]int32{0, 2}).Draw(t, "threshold"),
		},
		BlocksPerChunk: rapid.Int32Range(1, 3).Draw(t, "blocks per chunk"), PromptOnly: rapid.Bool().Draw(t, "prompt only"),
		InStep: rapid.Bool().Draw(t, "in step"),
	}
	blocks := rapid.Int32Range(20, 40).Draw(t, "blocks")
	late := rapid.IntRange(0, 6).Draw(t, "latency")
	places := o
	places.Places = true
	both := [2]*tiered{
		newTiered(cfg, places, kv.NewReference(blocks, true), late), newTiered(cfg, o, kv.NewExtent(blocks, true), late),
	}
	var tree prefix.Tree
	known := []prefix.Prefix{{Stream: prefix.None}}
	type live struct {
		slot  Slot
		epoch uint32
	}
	var alive []live
	abort := func(a live) {
		if both[0].loop.Epoch(a.slot) == a.epoch {
			both[0].loop.Abort(a.slot)
			both[1].loop.Abort(a.slot)
		}
	}
	same := func(what string) {
		a, b := both[0].turn(), both[1].turn()
		if a != b {
			t.Fatalf("%s: reference\n%s\nextent\n%s", what, a, b)
		}
	}
	for i := range rapid.IntRange(1, 60).Draw(t, "operations") {
		switch rapid.IntRange(0, 9).Draw(t, "operation") {
		case 0, 1, 2:
			from := known[rapid.IntRange(0, len(known)-1).Draw(t, "parent")]
			from.Tokens = rapid.Int32Range(0, from.Tokens).Draw(t, "shared")
			p := prefix.Prefix{Stream: tree.Fork(from), Tokens: from.Tokens + rapid.Int32Range(1, 20).Draw(t, "new")}
			if from.Tokens > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
				p = from
			}
			out := rapid.Int32Range(1, 12).Draw(t, "output")
			if p.Tokens+out > 60 {
				continue
			}
			known = append(known, prefix.Prefix{Stream: p.Stream, Tokens: p.Tokens + out})
			r := Request{
				ID: int64(i), Prompt: p, MaxTokens: out, Arrival: int64(i), Priority: rapid.Int32Range(0, 2).Draw(t, "importance"),
				Path: tree.Segments(prefix.Prefix{Stream: p.Stream, Tokens: p.Tokens + out}, cfg.BlockTokens, nil),
			}
			if rapid.IntRange(0, 3).Draw(t, "stops") == 0 {
				r.StopAfter = rapid.Int32Range(1, out).Draw(t, "stop after")
			}
			s := both[0].loop.Add(r)
			if s2 := both[1].loop.Add(r); s != s2 {
				t.Fatalf("slots %d and %d", s, s2)
			}
			alive = append(alive, live{s, both[0].loop.Epoch(s)})
		case 3:
			if len(alive) > 0 {
				abort(alive[rapid.IntRange(0, len(alive)-1).Draw(t, "victim")])
			}
		case 4:
			if rapid.IntRange(0, 5).Draw(t, "reset") == 0 {
				preempt, tier := rapid.Bool().Draw(t, "preempt"), rapid.Bool().Draw(t, "tier")
				for _, x := range both {
					x.loop.Reset(preempt)
					if tier {
						x.loop.ResetTier()
					}
				}
			}
		}
		same(fmt.Sprintf("operation %d", i))
	}
	for i := 0; both[0].loop.HasRequests() || both[0].loop.InFlight() > 0; i++ {
		// Under priority scheduling a head that does not fit can wait for good for blocks of requests behind it that
		// have been loaded.
		if i == 400 && cfg.Priority {
			for _, a := range alive {
				abort(a)
			}
		}
		if i > 1000 {
			t.Fatal("the engine does not come to rest")
		}
		same("draining")
	}
	for _, x := range both {
		tier := x.loop.Offload().Tier()
		if p := x.loop.Pool(); p.Free() != p.Usable() || tier.Pending() != 0 || tier.Evictable() != tier.Used() || x.loop.Offload().UnderWay() != 0 {
			t.Fatalf("left behind: %d of %d blocks free, tier with %d chunks, %d evictable, %d pending", p.Free(), p.Usable(), tier.Used(), tier.Evictable(), tier.Pending())
		}
	}
}

// TestConnectorHits has the hits by tier of a prompt that the CPU tier completes: of 64 tokens the GPU has 48 and the CPU
// tier the rest, of which the last is computed anew (as vLLM does in golden o10).
func TestConnectorHits(t *testing.T) {
	for _, inStep := range []bool{false, true} {
		connectorHits(t, inStep)
	}
}

func connectorHits(t *testing.T, inStep bool) {
	cfg := DefaultConfig()
	cfg.Async = false
	x := newTiered(cfg, OffloadConfig{CPUConfig: kv.CPUConfig{Chunks: 8}, BlocksPerChunk: 1, PromptOnly: true, InStep: inStep}, kv.NewExtent(32, true), 0)
	var tree prefix.Tree
	p := prefix.Prefix{Stream: tree.Root(), Tokens: 64}
	var got []Admission
	steps := 0
	for range 2 {
		x.loop.Add(Request{Prompt: p, MaxTokens: 2, Path: tree.Segments(prefix.Prefix{Stream: p.Stream, Tokens: 66}, cfg.BlockTokens, nil)})
		for x.loop.HasRequests() {
			x.turn()
			got = append(got, x.loop.Admitted...)
			if len(got) == 2 {
				steps++
			}
		}
	}
	if want := []Admission{{Slot: 0}, {Slot: 0, Hit: 63, CPU: 15}}; !slices.Equal(got, want) {
		t.Errorf("admissions %+v, expected %+v", got, want)
	}
	o := x.loop.Offload()
	if e := o.TakeExternalStats(); e.Queries != 64+16 || (e.Hits != 16 && !inStep) || (e.Hits != 15 && inStep) || steps != 3 {
		t.Errorf("in step %v: external %+v, %d steps from the second admission on", inStep, e, steps)
	}
	if c := o.Counts; o.Resident() != 4 || c.StoredBlocks != 4 || c.LoadedBlocks != 1 || c.LoadJobs != 1 || c.StoreJobs != 1 || o.UnderWay() != 0 {
		t.Errorf("%d blocks resident, %+v", o.Resident(), c)
	}
}

// TestConnectorDoesNotAllocate counts allocations of decode steps, and of whole requests that hit the CPU tier, in
// steady state.
func TestConnectorDoesNotAllocate(t *testing.T) {
	for _, tier := range []kv.CPUConfig{{Chunks: 400}, {Chunks: 400, ARC: true}, {Chunks: 400, StoreThreshold: 2}, {Chunks: 400, Places: true}} {
		connectorAllocations(t, tier)
	}
}

func connectorAllocations(t *testing.T, tier kv.CPUConfig) {
	cfg := DefaultConfig()
	cfg.MaxModelLen = 1 << 20
	x := newTiered(cfg, OffloadConfig{CPUConfig: tier, BlocksPerChunk: 1, PromptOnly: true}, kv.NewExtent(300, true), 1)
	o := x.loop.Offload()
	var tree prefix.Tree
	paths := make([][]prefix.Segment, 4)
	prompts := make([]prefix.Prefix, len(paths))
	for i := range paths {
		prompts[i] = prefix.Prefix{Stream: tree.Root(), Tokens: 1600}
		paths[i] = tree.Segments(prefix.Prefix{Stream: prompts[i].Stream, Tokens: 1700}, cfg.BlockTokens, nil)
	}
	jobs := make([]JobID, 0, 64)
	next := 0
	serve := func() {
		x.loop.Add(Request{Prompt: prompts[next], MaxTokens: 64, Path: paths[next]})
		next = (next + 1) % len(paths)
		for {
			outcome, st, _ := x.loop.Advance()
			if st != nil {
				for _, j := range o.Loads {
					jobs = append(jobs, j.ID)
				}
				for _, j := range o.Stores {
					jobs = append(jobs, j.ID)
				}
			}
			if outcome == Idle {
				return
			}
			if outcome == Blocked {
				for _, id := range jobs {
					o.Report(id)
				}
				jobs = jobs[:0]
				x.loop.Complete()
			}
		}
	}
	for range 40 {
		serve()
	}
	before := o.Counts
	if n := testing.AllocsPerRun(40, serve); n != 0 {
		t.Errorf("%+v: a request allocates %v times", tier, n)
	}
	if o.Counts.LoadJobs == before.LoadJobs || o.Counts.StoreJobs <= 3 {
		t.Errorf("%+v: nothing was loaded or stored: %+v", tier, o.Counts)
	}
}
