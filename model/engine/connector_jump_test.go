package engine

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// jumps counts steps jumped over: in all, with a request waiting that was looked up, with a transfer under way, and with a
// store that the tier has no room for.
type jumps struct{ all, asked, underWay, noRoom int32 }

// TestConnectorJumps holds an engine that jumps over the steps of decode runs against one that walks, over random worlds
// with a CPU tier and little memory.
func TestConnectorJumps(t *testing.T) {
	var n jumps
	for range 6 { // 100 worlds each
		rapid.Check(t, func(t *rapid.T) { jumpWorld(t, &n) })
	}
	if n.all < 2000 || n.asked < 50 || n.underWay < 50 || n.noRoom < 50 {
		t.Errorf("too few steps were jumped over: %+v", n)
	}
}

func jumpWorld(t *rapid.T, n *jumps) {
	cfg := DefaultConfig()
	cfg.BlockTokens = 4
	cfg.MaxBatchedTokens = rapid.Int32Range(4, 64).Draw(t, "budget")
	cfg.MaxNumSeqs = rapid.Int32Range(1, 8).Draw(t, "seqs")
	cfg.Async = rapid.Bool().Draw(t, "async")
	cfg.Priority = rapid.IntRange(0, 3).Draw(t, "priority") == 0
	cfg.ReserveFullISL = rapid.IntRange(0, 2).Draw(t, "reserve") > 0
	cfg.MaxModelLen = 1 << 20
	o := OffloadConfig{
		CPUConfig: kv.CPUConfig{
			Chunks: rapid.Int32Range(2, 60).Draw(t, "chunks"), ARC: rapid.IntRange(0, 2).Draw(t, "arc") == 0,
			StoreThreshold: rapid.SampledFrom([]int32{0, 0, 0, 2}).Draw(t, "threshold"),
		},
		BlocksPerChunk: rapid.Int32Range(1, 3).Draw(t, "blocks per chunk"), PromptOnly: rapid.Bool().Draw(t, "prompt only"),
		InStep: rapid.Bool().Draw(t, "in step"),
	}
	blocks := rapid.Int32Range(40, 80).Draw(t, "blocks")
	late := rapid.IntRange(0, 8).Draw(t, "latency")
	walk := newTiered(cfg, o, kv.NewExtent(blocks, true), late)
	jump := newTiered(cfg, o, kv.NewExtent(blocks, true), late)
	var tree prefix.Tree
	known := []prefix.Prefix{{Stream: tree.Root(), Tokens: 50}, {Stream: tree.Root(), Tokens: 50}, {Stream: tree.Root(), Tokens: 50}}
	add := func(i int) {
		p := rapid.SampledFrom(known).Draw(t, "of")
		p.Tokens = rapid.Int32Range(1, min(p.Tokens, 90)).Draw(t, "prompt")
		out := rapid.Int32Range(1, 100-p.Tokens/2).Draw(t, "output")
		p.Stream = tree.Fork(p) // nobody else writes the answer
		known = append(known, prefix.Prefix{Stream: p.Stream, Tokens: p.Tokens + out})
		r := Request{
			ID: int64(i), Prompt: p, MaxTokens: out, Arrival: int64(i), Priority: rapid.Int32Range(0, 1).Draw(t, "importance"),
			Path: tree.Segments(prefix.Prefix{Stream: p.Stream, Tokens: p.Tokens + out}, cfg.BlockTokens, nil),
		}
		walk.loop.Add(r)
		jump.loop.Add(r)
	}
	operations := rapid.IntRange(1, 30).Draw(t, "operations")
	for i := 0; i < operations || walk.loop.HasRequests() || walk.loop.InFlight() > 0; i++ {
		if i < operations && rapid.IntRange(0, 2).Draw(t, "add") > 0 {
			add(i)
		}
		outcome, a := walk.advance()
		_, b := jump.advance()
		if outcome == Blocked {
			jumpOver(t, walk, jump, n)
			a += walk.complete()
			b += jump.complete()
		}
		a, b = a+walk.state(), b+jump.state()
		if a != b {
			t.Fatalf("turn %d: walking\n%s\njumping\n%s", i, a, b)
		}
		if i > 3000 {
			return // under priority scheduling a head that does not fit can wait for good
		}
	}
}

// jumpOver jumps over some of the steps that the one engine says are a run, and walks over them with the other, which must
// decide nothing there.
func jumpOver(t *rapid.T, walk, jump *tiered, n *jumps) {
	m := jump.loop.DecodeRun().Steps
	for _, done := range jump.flight {
		if len(done) > 0 {
			return // a step of the run would tell the engine of a transfer
		}
	}
	if m == 0 {
		return
	}
	m = rapid.Int32Range(1, m).Draw(t, "steps")
	n.all += m
	if len(jump.loop.Offload().Lookups) > 0 {
		n.asked += m
	}
	if jump.loop.Offload().UnderWay() > 0 {
		n.underWay += m
	}
	if len(jump.loop.Offload().Refused) > 0 {
		n.noRoom += m
	}
	jump.loop.Jump(m)
	jump.loop.Resume(m)
	for range m {
		walk.loop.Complete()
		walk.loop.Advance()
		o := walk.loop.Offload()
		if len(o.Loads)+len(o.Stores)+len(o.Flush)+len(walk.loop.Admitted)+len(walk.loop.Preempted)+len(walk.loop.Finished) > 0 {
			t.Fatalf("%d steps to jump over: loads %v stores %v flush %v admitted %v preempted %v finished %v", m, o.Loads, o.Stores, o.Flush,
				walk.loop.Admitted, walk.loop.Preempted, walk.loop.Finished)
		}
	}
	if a, b := walk.state(), jump.state(); a != b {
		t.Fatalf("%d steps: walking\n%s\njumping\n%s", m, a, b)
	}
}
