package kv

import (
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/prefix"
)

func one(s prefix.StreamID, hi int32) []prefix.Segment {
	return []prefix.Segment{{Stream: s, Lo: 0, Hi: hi}}
}

// queueIDs is the free queue of the reference pool, next to be taken first.
func queueIDs(p *Reference) []int32 {
	var ids []int32
	for b := p.blocks[0].next; b != 0; b = p.blocks[b].next {
		ids = append(ids, b)
	}
	return ids
}

func wantQueue(t *testing.T, p *Reference, want ...int32) {
	t.Helper()
	if got := queueIDs(p); !slices.Equal(got, want) {
		t.Fatalf("free queue %v, want %v", got, want)
	}
}

func wantLookup(t *testing.T, p Pool, path []prefix.Segment, limit, hits, idle int32) {
	t.Helper()
	if h, i := p.Lookup(path, limit); h != hits || i != idle {
		t.Fatalf("Lookup(%v, %d) = %d hits, %d idle; want %d, %d", path, limit, h, i, hits, idle)
	}
}

// The order of the free queue, from the rules of vLLM by hand: blocks with content go to the tail last block first,
// those without to the head, also last block first, and a touch takes a block out of the middle (spec: vllm 6).
func TestReferenceFreeOrder(t *testing.T) {
	p := NewReference(8, true)
	wantQueue(t, p, 1, 2, 3, 4, 5, 6, 7, 8)
	a := p.Open()
	p.Grow(a, 4)
	p.Register(a, one(0, 2), 0, 2)
	p.Release(a)
	wantQueue(t, p, 4, 3, 5, 6, 7, 8, 2, 1)

	b := p.Open()
	p.Hold(b, one(0, 2), 1)
	wantQueue(t, p, 4, 3, 5, 6, 7, 8, 2)
	p.Grow(b, 2)
	if got := p.Table(b); !slices.Equal(got, []int32{1, 4, 3}) {
		t.Fatalf("table %v", got)
	}
	p.Release(b)
	wantQueue(t, p, 3, 4, 5, 6, 7, 8, 2, 1)
	// zlib.crc32 of the eight ids as little-endian 32-bit words.
	if got := p.QueueCRC(); got != 0xbbae2158 {
		t.Fatalf("CRC %#x", got)
	}

	if !p.Reset() {
		t.Fatal("reset refused with every block free")
	}
	wantQueue(t, p, 3, 4, 5, 6, 7, 8, 2, 1)
	wantLookup(t, p, one(0, 2), 2, 0, 0)
}

// Copies are not merged; the first registered that is still there is found (spec: vllm 1).
func TestReferenceTwins(t *testing.T) {
	p := NewReference(4, true)
	p.Record(true, true)
	a, b := p.Open(), p.Open()
	p.Grow(a, 1)
	p.Grow(b, 1)
	p.Register(b, one(7, 1), 0, 1) // block 2 is first
	p.Register(a, one(7, 1), 0, 1)
	if p.Cached() != 1 {
		t.Fatalf("%d distinct blocks, want 1", p.Cached())
	}
	p.Release(b)
	wantLookup(t, p, one(7, 1), 1, 1, 1) // the idle copy, although a holds one
	c := p.Open()
	p.Grow(c, 3) // 3, 4, 2
	wantLookup(t, p, one(7, 1), 1, 1, 0)
	p.Register(c, one(7, 1), 0, 1) // block 3, behind a's
	d := p.Open()
	p.Hold(d, one(7, 1), 1)
	if got := p.Table(d); !slices.Equal(got, []int32{1}) {
		t.Fatalf("held %v, want a's block 1", got)
	}
	want := []Event{
		{Kind: Stored, Handle: b, Stream: 7, Lo: 0, Hi: 1},
		{Kind: Stored, Handle: a, Stream: 7, Lo: 0, Hi: 1},
		{Kind: Evicted, Stream: 7, Lo: 0, Hi: 1, Block: 2},
		{Kind: Stored, Handle: c, Stream: 7, Lo: 0, Hi: 1},
	}
	if !slices.Equal(p.Events(), want) {
		t.Fatalf("events %+v", p.Events())
	}
}

func TestReferenceRefusesMisuse(t *testing.T) { refusesMisuse(t, NewReference(4, true)) }

// refusesMisuse checks the panics that the interface promises.
func refusesMisuse(t *testing.T, p Pool) {
	t.Helper()
	mustPanic := func(name string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		f()
	}
	h := p.Open()
	mustPanic("grow beyond free", func() { p.Grow(h, p.Free()+1) })
	mustPanic("hold of what is not resident", func() { p.Hold(h, one(1, 1), 1) })
	p.Grow(h, 2)
	mustPanic("hold on a table with blocks", func() { p.Hold(h, one(1, 1), 1) })
	mustPanic("register beyond the path", func() { p.Register(h, one(1, 1), 0, 2) })
}
