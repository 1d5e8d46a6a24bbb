package engine

import (
	"fmt"
	"testing"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// busy is an engine with n requests that decode, each with a context of the given number of tokens, on streams of their
// own, and output left for a long while.
func busy(pool func(usable int32, caching bool) kv.Pool, n int, context int32) *Loop {
	cfg := DefaultConfig()
	cfg.MaxModelLen = 1 << 30
	l := NewLoop(New(&cfg, pool(1<<22, true)))
	var tree prefix.Tree
	for i := range n {
		p := prefix.Prefix{Stream: tree.Root(), Tokens: context}
		const output = 1 << 24
		l.Add(Request{ID: int64(i), Prompt: p, MaxTokens: output, Path: tree.Segments(prefix.Prefix{Stream: p.Stream, Tokens: context + output}, cfg.BlockTokens, nil)})
	}
	for range 2 + int(context)*n/int(cfg.MaxBatchedTokens) {
		turnOver(l)
	}
	return l
}

// turnOver schedules until the loop blocks and completes the oldest step.
func turnOver(l *Loop) {
	for {
		switch outcome, _, _ := l.Advance(); outcome {
		case Blocked:
			l.Complete()
			return
		case Idle:
			return
		case Scheduled:
		}
	}
}

func extent(usable int32, caching bool) kv.Pool    { return kv.NewExtent(usable, caching) }
func reference(usable int32, caching bool) kv.Pool { return kv.NewReference(usable, caching) }

// TestStepDoesNotAllocate counts allocations of decode steps in steady state. With the extent pool there are none.
func TestStepDoesNotAllocate(t *testing.T) {
	l := busy(extent, 50, 1000)
	for range 100 {
		turnOver(l)
	}
	if n := testing.AllocsPerRun(2000, func() { turnOver(l) }); n != 0 {
		t.Errorf("a decode step of 50 requests allocates %v times", n)
	}
}

// BenchmarkDecodeStep is one step in which every running request decodes one token.
func BenchmarkDecodeStep(b *testing.B) {
	for name, pool := range map[string]func(int32, bool) kv.Pool{"extent": extent, "reference": reference} {
		for _, n := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/rows=%d", name, n), func(b *testing.B) {
				l := busy(pool, n, 1000)
				b.ReportAllocs()
				for b.Loop() {
					turnOver(l)
				}
			})
		}
	}
}
