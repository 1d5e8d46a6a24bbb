package kv

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/prefix"
)

func TestExtentRefusesMisuse(t *testing.T) { refusesMisuse(t, NewExtent(4, true)) }

// Evicted blocks that follow each other downwards are one event per call to Grow.
func TestExtentEvents(t *testing.T) {
	p := NewExtent(10, true)
	p.Record(true, true)
	path := []prefix.Segment{{Stream: 3, Lo: 0, Hi: 4}, {Stream: 5, Lo: 4, Hi: 8}}
	a := p.Open()
	p.Grow(a, 9)
	p.Register(a, path, 0, 2)
	p.Register(a, path, 2, 8)
	p.Release(a)
	b := p.Open()
	p.Grow(b, 3) // two bare blocks, then one of stream 5
	p.Grow(b, 6)
	want := []Event{
		{Kind: Stored, Handle: a, Stream: 3, Lo: 0, Hi: 2},
		{Kind: Stored, Handle: a, Stream: 3, Lo: 2, Hi: 4},
		{Kind: Stored, More: true, Handle: a, Stream: 5, Lo: 4, Hi: 8},
		{Kind: Evicted, Stream: 5, Lo: 7, Hi: 8},
		{Kind: Evicted, Stream: 5, Lo: 4, Hi: 7},
		{Kind: Evicted, Stream: 3, Lo: 1, Hi: 4},
	}
	if !slices.Equal(p.Events(), want) {
		t.Fatalf("events %+v\nwant   %+v", p.Events(), want)
	}
	wantLookup(t, p, path, 8, 1, 1)
	if p.Reset() {
		t.Fatal("reset while blocks are held")
	}
	p.Release(b)
	p.ClearEvents()
	if !p.Reset() || !slices.Equal(p.Events(), []Event{{Kind: Cleared}}) || p.Cached() != 0 {
		t.Fatalf("after reset: events %+v, %d cached", p.Events(), p.Cached())
	}
}

// A request that decodes block by block, alone or beside a copy of itself, stays a few pieces however long it gets.
func TestExtentStaysShort(t *testing.T) {
	for copies := 1; copies <= 3; copies++ {
		const length = 1000
		p := NewExtent(4*length, true)
		var hs []Handle
		for range copies {
			hs = append(hs, p.Open())
		}
		for i := range int32(length) {
			for n := range hs {
				h := hs[(int(i/100)+n)%copies] // who is first changes now and then
				p.Grow(h, 1)
				p.Register(h, one(1, i+1), i, i+1)
			}
		}
		if n := p.inUse(); n > 25*copies {
			t.Errorf("%d copies of %d blocks take %d pieces", copies, length, n)
		}
		for _, h := range hs {
			if n := len(p.tables[h].spans); n != 1 {
				t.Errorf("%d copies: a table has %d spans", copies, n)
			}
		}
		if err := p.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// inUse counts pieces.
func (p *Extent) inUse() int {
	n := len(p.pieces)
	for i := p.sparePiece; i != nowhere; i = p.pieces[i].next {
		n--
	}
	return n
}

// Pieces that nothing tells apart any more are joined; else their number, and the cost of a turn, would only grow.
func TestExtentJoins(t *testing.T) {
	p := NewExtent(200, true)
	want := func(n int, when string) {
		t.Helper()
		if got := p.inUse(); got != n {
			t.Fatalf("%s: %d pieces, want %d", when, got, n)
		}
	}
	a := p.Open()
	p.Grow(a, 100)
	p.Register(a, one(1, 100), 0, 100)
	b := p.Open()
	p.Hold(b, one(1, 50), 50)
	want(2, "half held twice")
	p.Release(b)
	want(1, "all held once")
	p.Hold(p.Open(), one(1, 50), 50)
	p.Release(a)
	want(2, "half held, half idle")
	p.Release(b)
	want(1, "all idle, upper half first")
	for n := int32(90); n > 0; n -= 10 {
		turnOn(p, one(2, 1), 1) // comes between in the free queue
		turnOn(p, one(1, n), n)
	}
	want(10+1, "used less and less far")
	a = p.Open()
	p.Hold(a, one(1, 100), 100)
	want(1+1, "held again as a whole")
	p.Release(a)
	want(1+1, "idle again as a whole")

	copied, other := p.Open(), p.Open()
	p.Grow(copied, 100)
	p.Register(copied, one(1, 100), 0, 100)
	for range 50 {
		p.Grow(other, 1)
	}
	want(3, "half of the first copy evicted block by block, so that the second comes to the front")
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
}

// The index against a map, with keys that collide.
func TestStreamIndex(t *testing.T) {
	x := newStreamIndex()
	truth := map[prefix.StreamID]int32{}
	c := newSeeded(1)
	for i := range int32(200_000) {
		s := prefix.StreamID(c.intn(300)) << c.intn(20)
		switch c.intn(3) {
		case 0:
			x.set(s, i)
			truth[s] = i
		case 1:
			x.remove(s)
			delete(truth, s)
		}
		want, ok := truth[s]
		if !ok {
			want = nowhere
		}
		if got := x.get(s); got != want {
			t.Fatalf("step %d: stream %d is at %d, want %d", i, s, got, want)
		}
		if x.used != len(truth) {
			t.Fatalf("step %d: %d used, want %d", i, x.used, len(truth))
		}
		if i%20_000 == 0 {
			x.clear()
			clear(truth)
		}
	}
}

// check tests everything that must hold between operations, the slow way.
func (p *Extent) check() error {
	holders := map[[2]int32]int32{} // (lane, block)
	held := int32(0)
	for h := range p.tables {
		t := &p.tables[h]
		n := int32(0)
		for i, s := range t.spans {
			if s.lo >= s.hi || s.lo != n || (i > 0 && t.spans[i-1].lane == s.lane) {
				return fmt.Errorf("table %d: spans %v", h, t.spans)
			}
			n = s.hi
			for b := s.lo; b < s.hi; b++ {
				holders[[2]int32{s.lane, b}]++
			}
		}
		if n != t.registered {
			return fmt.Errorf("table %d: %d registered, spans %v", h, t.registered, t.spans)
		}
		held += t.fresh
	}
	held += int32(len(holders))
	if held != p.usable-p.free {
		return fmt.Errorf("tables hold %d blocks, %d are not free", held, p.usable-p.free)
	}
	pieces, streams, cached := 0, 0, int64(0)
	for _, slot := range p.index.slots {
		if slot.key == 0 {
			continue
		}
		streams++
		n, c, err := p.checkStream(prefix.StreamID(slot.key-1), slot.lane, holders)
		if err != nil {
			return err
		}
		pieces, cached = pieces+n, cached+c
	}
	if streams != p.index.used || cached != p.cached {
		return fmt.Errorf("%d streams, index says %d; %d distinct blocks, pool says %d", streams, p.index.used, cached, p.cached)
	}
	for k, n := range holders {
		if n != 0 {
			return fmt.Errorf("lane %d block %d: %d holders and no piece", k[0], k[1], n)
		}
	}
	return p.checkQueue(pieces)
}

// checkStream walks the lanes and the front of content c, takes what it finds from holders, and counts pieces and
// distinct blocks.
func (p *Extent) checkStream(s prefix.StreamID, c int32, holders map[[2]int32]int32) (pieces int, cached int64, err error) {
	distinct := map[int32]int32{} // the piece of the first registered copy
	fronts := 0
	before := nowhere
	for l := p.contents[c].lanes; l != nowhere; before, l = l, p.lanes[l].next {
		x := p.lanes[l]
		if x.content != c || x.prev != before || x.head == nowhere {
			return 0, 0, fmt.Errorf("stream %d: lane %d is %+v", s, l, x)
		}
		prev := nowhere
		end := int32(0)
		for i := x.head; i != nowhere; prev, i = i, p.pieces[i].next {
			y := p.pieces[i]
			if y.lane != l || y.prev != prev || y.lo < end || y.lo >= y.hi {
				return 0, 0, fmt.Errorf("lane %d: piece %d is %+v", l, i, y)
			}
			end = y.hi
			pieces++
			if y.front {
				fronts++
			}
			for b := y.lo; b < y.hi; b++ {
				if f, ok := distinct[b]; !ok || y.front || (!p.pieces[f].front && y.seq < p.pieces[f].seq) {
					distinct[b] = i
				}
				k := [2]int32{l, b}
				if holders[k] != y.ref {
					return 0, 0, fmt.Errorf("lane %d block %d: ref %d, %d holders", l, b, y.ref, holders[k])
				}
				delete(holders, k)
			}
		}
		if x.tail != prev {
			return 0, 0, fmt.Errorf("lane %d: tail %d, want %d", l, x.tail, prev)
		}
	}
	left, end := nowhere, int32(0)
	for i := p.contents[c].left; i != nowhere; left, i = i, p.pieces[i].right {
		y := p.pieces[i]
		if !y.front || y.left != left || (left != nowhere && y.lo != end) {
			return 0, 0, fmt.Errorf("stream %d: front piece %d is %+v", s, i, y)
		}
		end = y.hi
		fronts--
		for b := y.lo; b < y.hi; b++ {
			if distinct[b] != i {
				return 0, 0, fmt.Errorf("stream %d block %d: piece %d is in front, want %d", s, b, i, distinct[b])
			}
			cached++
		}
	}
	if fronts != 0 || left != p.contents[c].right || cached != int64(len(distinct)) || p.contents[c].stream != s {
		return 0, 0, fmt.Errorf("stream %d: %+v, front differs by %d pieces, has %d blocks of %d", s, p.contents[c], fronts, cached, len(distinct))
	}
	return pieces, cached, nil
}

// checkQueue walks the free queue and the unused pieces; pieces is how many are in lanes.
func (p *Extent) checkQueue(pieces int) error {
	idle := p.bare
	older := nowhere
	for i := p.oldestIdle; i != nowhere; older, i = i, p.pieces[i].newer {
		x := p.pieces[i]
		if x.ref != 0 || x.older != older {
			return fmt.Errorf("free queue: piece %d is %+v", i, x)
		}
		idle += x.hi - x.lo
	}
	if idle != p.free || older != p.newestIdle {
		return fmt.Errorf("free queue has %d blocks and ends at %d; %d free, end %d", idle, older, p.free, p.newestIdle)
	}
	for i := p.sparePiece; i != nowhere; i = p.pieces[i].next {
		pieces++
	}
	if pieces != len(p.pieces) {
		return fmt.Errorf("%d pieces are used or spare, of %d", pieces, len(p.pieces))
	}
	return nil
}
