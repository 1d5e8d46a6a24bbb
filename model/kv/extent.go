package kv

import (
	"fmt"

	"github.com/sluice-sim/sluice/prefix"
)

// Extent is the pool as runs of blocks, so that no operation costs more for a longer context. It rests on three facts
// about vLLM's pool (spec: fast path 1): free blocks without content are always ahead of free blocks with content, so
// they are a counter; a request is released last block first, so what was freed together is evicted from its high end;
// and blocks with the same number of holders that lie side by side in the same place are told apart by nothing.
//
// A piece is a run of resident blocks of one stream with one reference count. Idle pieces form the free queue, oldest
// first, each eaten from its high end. A table is a short list of spans of lanes, and a count of blocks that it has not
// registered yet. Pieces are cut where a span ends inside them and joined again when that is exact. Of content that is
// resident more than once, lookups see the copy registered first. An operation costs as much as there are pieces on its
// way; only what evicts a first copy, or registers a later one, also looks at the other copies.
//
// The pool relies on residency being closed under prefixes: whoever holds block i of a path holds the blocks before it,
// and lets go of all of them at once. A table must therefore keep to one path.
//
// Evictions that follow each other downwards in one stream within one call to Grow are one event [Lo, Hi); its blocks
// went in the order Hi-1 down to Lo. Block ids do not exist here: Event.Block is 0.
type Extent struct {
	usable, free           int32
	bare                   int32 // free blocks without content
	oldestIdle, newestIdle int32 // ends of the free queue behind the bare blocks
	spareContent           int32 // heads of the lists of unused entries
	spareLane, sparePiece  int32
	cached                 int64
	evicted                int64
	seq                    int64 // registrations so far

	tables   []table // by handle
	lanes    []lane
	pieces   []piece
	contents []content
	index    streamIndex // of contents
	events   []Event
	spare    []Handle
	guards   []guard

	caching           bool
	record, evictions bool
	segs              []prefix.Segment
	taken             []int64
}

// table is what one request holds: spans of registered blocks from block 0 on, then blocks not yet registered.
type table struct {
	spans      []span
	registered int32
	fresh      int32
}

// span is blocks [lo, hi) of one lane.
type span struct{ lane, lo, hi int32 }

var _ Pool = (*Extent)(nil)

// NewExtent returns a pool of usable blocks. Without caching nothing is ever registered.
func NewExtent(usable int32, caching bool) *Extent {
	return &Extent{
		usable: usable, free: usable, bare: usable, caching: caching,
		index:        newStreamIndex(),
		spareContent: nowhere, spareLane: nowhere, sparePiece: nowhere,
		oldestIdle: nowhere, newestIdle: nowhere,
	}
}

// Usable implements Pool.
func (p *Extent) Usable() int32 { return p.usable }

// Free implements Pool.
func (p *Extent) Free() int32 { return p.free }

// Bare implements Pool.
func (p *Extent) Bare() int32 { return p.bare }

// Oldest implements Pool.
func (p *Extent) Oldest(n int32, dst []prefix.StreamID) []prefix.StreamID {
	n -= p.bare
	for i := p.oldestIdle; n > 0 && i != nowhere; i = p.pieces[i].newer {
		x := &p.pieces[i]
		dst = append(dst, p.contents[p.lanes[x.lane].content].stream)
		n -= x.hi - x.lo
	}
	return dst
}

// Cached implements Pool.
func (p *Extent) Cached() int64 { return p.cached }

// Record implements Pool.
func (p *Extent) Record(on, evictions bool) { p.record, p.evictions = on, evictions }

// Evicted implements Pool.
func (p *Extent) Evicted() int64 { return p.evicted }

// Events implements Pool.
func (p *Extent) Events() []Event { return p.events }

// ClearEvents implements Pool.
func (p *Extent) ClearEvents() { p.events = p.events[:0] }

// Lookup implements Pool.
func (p *Extent) Lookup(path []prefix.Segment, limit int32) (hits, idle int32) {
	for _, s := range path {
		hi := min(s.Hi, limit)
		at := s.Lo
		for i := p.find(s.Stream, at); at < hi; i = p.pieces[i].right {
			if i == nowhere || p.pieces[i].lo > at {
				return hits, idle
			}
			x := &p.pieces[i]
			end := min(x.hi, hi)
			hits += end - at
			if x.ref == 0 {
				idle += end - at
			}
			at = end
		}
	}
	return hits, idle
}

// find is the lowest piece in the front of stream s with a block at or over at, or nowhere. It walks from the low end,
// where paths enter a stream.
func (p *Extent) find(s prefix.StreamID, at int32) int32 {
	c := p.index.get(s)
	if c == nowhere {
		return nowhere
	}
	i := p.contents[c].left
	for i != nowhere && p.pieces[i].hi <= at {
		i = p.pieces[i].right
	}
	return i
}

// Open implements Pool.
func (p *Extent) Open() Handle {
	if n := len(p.spare); n > 0 {
		h := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return h
	}
	p.tables = append(p.tables, table{})
	return Handle(len(p.tables) - 1)
}

// Hold implements Pool.
func (p *Extent) Hold(h Handle, path []prefix.Segment, n int32) {
	t := &p.tables[h]
	if t.registered != 0 || t.fresh != 0 {
		panic(fmt.Sprintf("kv: hold on table %d, which has %d blocks", h, t.registered+t.fresh))
	}
	for _, s := range path {
		hi := min(s.Hi, n)
		at := s.Lo
		for i := p.find(s.Stream, at); at < hi; i = p.pieces[i].right {
			if i == nowhere || p.pieces[i].lo > at {
				panic(fmt.Sprintf("kv: hold of block %d of stream %d, which is not resident", at, s.Stream))
			}
			end := min(p.pieces[i].hi, hi)
			i = p.touch(i, at, end)
			t.add(p.pieces[i].lane, at, end)
			at = end
		}
	}
}

// add appends registered blocks [lo, hi) of lane l.
func (t *table) add(l, lo, hi int32) {
	t.registered += hi - lo
	if n := len(t.spans); n > 0 && t.spans[n-1].lane == l && t.spans[n-1].hi == lo {
		t.spans[n-1].hi = hi
		return
	}
	t.spans = append(t.spans, span{l, lo, hi})
}

// touch adds a holder to blocks [lo, hi) of piece i and returns the piece they are in now.
func (p *Extent) touch(i, lo, hi int32) int32 {
	if p.pieces[i].lo < lo {
		i = p.split(i, lo)
	}
	if p.pieces[i].hi > hi {
		p.split(i, hi)
	}
	x := &p.pieces[i]
	if x.ref == 0 {
		p.dequeue(i)
		p.free -= hi - lo
	}
	x.ref++
	if below := x.prev; p.join(below, i) {
		return below
	}
	return i
}

// Grow implements Pool.
func (p *Extent) Grow(h Handle, n int32) {
	if n > p.free {
		panic(fmt.Sprintf("kv: %d blocks asked for, %d free", n, p.free))
	}
	p.Take(n)
	p.Give(h, n)
}

// Give appends n blocks that Take has taken to table h.
func (p *Extent) Give(h Handle, n int32) { p.tables[h].fresh += n }

// Take is Grow for a table that gets its blocks later, by Give.
func (p *Extent) Take(n int32) {
	p.free -= n
	k := min(n, p.bare)
	p.bare -= k
	if len(p.guards) > 0 {
		p.take(nowhere, p.bare, p.bare+k)
	}
	first := len(p.events)
	for n -= k; n > 0; n -= k {
		k = p.evict(n, first)
	}
}

// evict takes up to n blocks from the high end of the oldest idle piece and returns how many. Events from number first
// on belong to the same call to Grow.
func (p *Extent) evict(n int32, first int) int32 {
	i := p.oldestIdle
	x := &p.pieces[i]
	n = min(n, x.hi-x.lo)
	hi := x.hi
	lo := hi - n
	x.hi = lo
	if len(p.guards) > 0 {
		p.take(x.lane, lo, hi)
	}
	c := p.lanes[x.lane].content
	p.evicted += int64(n)
	if p.evictions {
		s := p.contents[c].stream
		if e := len(p.events); e > first && p.events[e-1].Stream == s && p.events[e-1].Lo == hi {
			p.events[e-1].Lo = lo
		} else {
			p.events = append(p.events, Event{Kind: Evicted, Stream: s, Lo: lo, Hi: hi})
		}
	}
	if x.front {
		p.cached -= int64(n - p.promote(c, i, lo, hi))
	}
	if x = &p.pieces[i]; x.lo == x.hi {
		p.dequeue(i)
		p.drop(i)
	}
	return n
}

// Register implements Pool.
func (p *Extent) Register(h Handle, path []prefix.Segment, from, to int32) {
	if !p.caching || from >= to {
		return
	}
	t := &p.tables[h]
	if from != t.registered || to > from+t.fresh {
		panic(fmt.Sprintf("kv: blocks %d to %d registered of table %d, which has %d registered of %d", from, to, h, t.registered, t.registered+t.fresh))
	}
	if p.extend(h, t, path[len(path)-1], from, to) {
		return
	}
	p.segs = clip(path, from, to, p.segs[:0])
	for n, s := range p.segs {
		p.place(t, s)
		if p.record {
			p.events = append(p.events, Event{Kind: Stored, More: n > 0, Handle: h, Stream: s.Stream, Lo: s.Lo, Hi: s.Hi})
		}
	}
	t.fresh -= to - from
	if t.registered != to {
		panic(fmt.Sprintf("kv: path covers blocks to %d of %d to register", t.registered, to))
	}
}

// extend is place for what nearly every block of a decode is: blocks [from, to) of segment s, the last of its path, which
// come to the end of the front behind blocks that table t alone holds. It says whether they do.
func (p *Extent) extend(h Handle, t *table, s prefix.Segment, from, to int32) bool {
	n := len(t.spans)
	if n == 0 || s.Lo > from || s.Hi < to {
		return false
	}
	last := &t.spans[n-1]
	l := &p.lanes[last.lane]
	x := &p.pieces[l.tail]
	if p.contents[l.content].stream != s.Stream || x.hi != from || x.ref != 1 || !x.front || x.right != nowhere || last.hi != from {
		return false
	}
	p.seq++
	x.hi = to
	p.cached += int64(to - from)
	last.hi = to
	t.registered += to - from
	t.fresh -= to - from
	if p.record {
		p.events = append(p.events, Event{Kind: Stored, Handle: h, Stream: s.Stream, Lo: from, Hi: to})
	}
	return true
}

// place makes the blocks of s, which table t alone holds, resident: in the lane of the table's last blocks if they
// belong to the same stream and there is room, so that copies that grow side by side do not change places, else in the
// first lane if there is room, else in a new one. What is not resident yet comes to the front, the rest behind it.
func (p *Extent) place(t *table, s prefix.Segment) {
	c := p.index.get(s.Stream)
	if c == nowhere {
		c = p.newContent(s.Stream)
	}
	l, below, ok := nowhere, nowhere, false
	if n := len(t.spans); n > 0 && p.lanes[t.spans[n-1].lane].content == c {
		l = t.spans[n-1].lane
		below, ok = p.room(l, s.Lo, s.Hi)
	}
	if first := p.contents[c].lanes; !ok && first != nowhere {
		l = first
		below, ok = p.room(l, s.Lo, s.Hi)
	}
	if !ok {
		l, below = p.newLane(c), nowhere
	}
	p.seq++
	end := s.Lo // of the front
	if right := p.contents[c].right; right != nowhere {
		end = p.pieces[right].hi
	}
	if end < s.Lo {
		panic(fmt.Sprintf("kv: blocks %d to %d of stream %d registered, of which only those to %d are resident; the path is not the one of before", s.Lo, s.Hi, s.Stream, end))
	}
	if end > s.Lo {
		below = p.lay(piece{lo: s.Lo, hi: min(end, s.Hi), ref: 1, lane: l, seq: p.seq}, below)
	}
	if end < s.Hi {
		p.lay(piece{lo: end, hi: s.Hi, ref: 1, lane: l, seq: p.seq, front: true}, below)
		p.cached += int64(s.Hi - end)
	}
	t.add(l, s.Lo, s.Hi)
}

// lay puts new piece x into its lane behind piece below, and at the high end of the front if it belongs there, and
// returns the piece that its blocks are in then.
func (p *Extent) lay(x piece, below int32) int32 {
	i := p.newPiece(x)
	p.insert(i, below)
	if x.front {
		p.enter(i, p.contents[p.lanes[x.lane].content].right)
	}
	if p.join(below, i) {
		return below
	}
	return i
}

// Release implements Pool.
func (p *Extent) Release(h Handle) {
	t := &p.tables[h]
	p.bare += t.fresh
	p.free += t.fresh
	for n := len(t.spans) - 1; n >= 0; n-- {
		p.untouch(t.spans[n])
	}
	*t = table{spans: t.spans[:0]}
	p.spare = append(p.spare, h)
}

// untouch takes a holder from the blocks of s, the highest first; those without another go to the end of the free queue.
func (p *Extent) untouch(s span) {
	i := p.below(s.lane, s.hi)
	for at := s.hi; at > s.lo; {
		if i == nowhere || p.pieces[i].hi < at {
			mustHold(s.lane, at-1)
		}
		if p.pieces[i].hi > at {
			p.split(i, at)
		}
		if p.pieces[i].lo < s.lo {
			i = p.split(i, s.lo)
		}
		x := &p.pieces[i]
		at = x.lo
		x.ref--
		if x.ref == 0 {
			p.free += x.hi - x.lo
			p.enqueue(i, p.newestIdle)
		}
		below := x.prev
		p.join(i, x.next)
		i = below
	}
}

// Reset implements Pool.
func (p *Extent) Reset() bool {
	if p.free != p.usable {
		return false
	}
	p.bareGuards()
	p.index.clear()
	p.contents, p.lanes, p.pieces = p.contents[:0], p.lanes[:0], p.pieces[:0]
	p.spareContent, p.spareLane, p.sparePiece = nowhere, nowhere, nowhere
	p.oldestIdle, p.newestIdle = nowhere, nowhere
	p.bare = p.usable
	p.cached = 0
	if p.record {
		p.events = append(p.events, Event{Kind: Cleared})
	}
	return true
}
