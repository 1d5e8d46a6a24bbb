package kv

import (
	"fmt"

	"github.com/sluice-sim/sluice/prefix"
)

// nowhere is the index of no piece and of no lane.
const nowhere int32 = -1

// piece is a run of resident blocks [lo, hi) of one lane with the same reference count. Blocks that differ in their
// order of registration share a piece only where no copy in another lane could tell.
type piece struct {
	lo, hi       int32
	ref          int32
	lane         int32
	prev, next   int32 // in the lane, ascending; next links unused pieces
	older, newer int32 // in the free queue, while ref is 0
	seq          int64 // number of the registration; of two copies the smaller is the one that is found
}

// lane is one resident copy of parts of a stream: pieces that do not overlap. A stream has a second lane only where the
// same content is resident twice. Tables name lanes by index, so a lane keeps its index until it is empty.
type lane struct {
	stream     prefix.StreamID
	head, tail int32 // pieces, lowest and highest
	prev, next int32 // lanes of the same stream; next links unused lanes
	cursor     int32 // scratch of walks over all lanes of a stream
}

func (p *Extent) newPiece(x piece) int32 {
	i := p.sparePiece
	if i == nowhere {
		p.pieces = append(p.pieces, x)
		return int32(len(p.pieces) - 1)
	}
	p.sparePiece = p.pieces[i].next
	p.pieces[i] = x
	return i
}

// newLane adds an empty lane to stream s behind lane last, or as its first when last is nowhere.
func (p *Extent) newLane(s prefix.StreamID, last int32) int32 {
	x := lane{stream: s, head: nowhere, tail: nowhere, prev: last, next: nowhere}
	i := p.spareLane
	if i == nowhere {
		p.lanes = append(p.lanes, x)
		i = int32(len(p.lanes) - 1)
	} else {
		p.spareLane = p.lanes[i].next
		p.lanes[i] = x
	}
	if last == nowhere {
		p.index.set(s, i)
	} else {
		p.lanes[last].next = i
	}
	return i
}

// dropLane removes an empty lane from its stream.
func (p *Extent) dropLane(l int32) {
	x := &p.lanes[l]
	switch {
	case x.prev != nowhere:
		p.lanes[x.prev].next = x.next
	case x.next != nowhere:
		p.index.set(x.stream, x.next)
	default:
		p.index.remove(x.stream)
	}
	if x.next != nowhere {
		p.lanes[x.next].prev = x.prev
	}
	x.next = p.spareLane
	p.spareLane = l
}

// alone says whether lane l is the only one of its stream.
func (p *Extent) alone(l int32) bool { return p.lanes[l].prev == nowhere && p.lanes[l].next == nowhere }

// firstLane is the first lane of the stream that l belongs to.
func (p *Extent) firstLane(l int32) int32 { return p.index.get(p.lanes[l].stream) }

// insert puts piece i into its lane behind piece below (nowhere: at the low end).
func (p *Extent) insert(i, below int32) {
	x := &p.pieces[i]
	l := &p.lanes[x.lane]
	x.prev = below
	if below == nowhere {
		x.next, l.head = l.head, i
	} else {
		x.next, p.pieces[below].next = p.pieces[below].next, i
	}
	if x.next == nowhere {
		l.tail = i
	} else {
		p.pieces[x.next].prev = i
	}
}

// drop takes piece i, which is in no queue, out of its lane, and the lane out of its stream when it was the last.
func (p *Extent) drop(i int32) {
	x := &p.pieces[i]
	l := &p.lanes[x.lane]
	if x.prev == nowhere {
		l.head = x.next
	} else {
		p.pieces[x.prev].next = x.next
	}
	if x.next == nowhere {
		l.tail = x.prev
	} else {
		p.pieces[x.next].prev = x.prev
	}
	if l.head == nowhere {
		p.dropLane(x.lane)
	}
	x.next = p.sparePiece
	p.sparePiece = i
}

// split cuts piece i at block at, strictly inside it, and returns the new upper half. The halves of an idle piece stay
// neighbours in the free queue, the upper one first.
func (p *Extent) split(i, at int32) int32 {
	x := p.pieces[i]
	u := p.newPiece(piece{lo: at, hi: x.hi, ref: x.ref, lane: x.lane, seq: x.seq, older: nowhere, newer: nowhere})
	p.pieces[i].hi = at
	p.insert(u, i)
	if x.ref == 0 {
		p.enqueue(u, x.older)
	}
	return u
}

// join makes one piece of i and the piece above it, u, if both are there and nothing can tell them apart; what is left
// is i.
func (p *Extent) join(i, u int32) {
	if i == nowhere || u == nowhere {
		return
	}
	x, y := &p.pieces[i], &p.pieces[u]
	if x.hi != y.lo || x.ref != y.ref || (x.ref == 0 && y.newer != i) {
		return
	}
	if x.seq != y.seq && p.between(x.lane, y.lo, y.hi, min(x.seq, y.seq), max(x.seq, y.seq)) {
		return
	}
	if y.ref == 0 {
		p.dequeue(u)
	}
	x.hi = y.hi
	p.drop(u)
}

// between says whether another lane of the stream than l has a copy of one of the blocks [lo, hi) that was registered
// after a and before b.
func (p *Extent) between(l, lo, hi int32, a, b int64) bool {
	if p.alone(l) {
		return false
	}
	for o := p.firstLane(l); o != nowhere; o = p.lanes[o].next {
		if o == l {
			continue
		}
		for i := p.above(o, lo); i != nowhere && p.pieces[i].lo < hi; i = p.pieces[i].next {
			if s := p.pieces[i].seq; a < s && s < b {
				return true
			}
		}
	}
	return false
}

// below is the highest piece of lane l with a block under at, or nowhere. It walks from the high end, where nearly all
// changes are.
func (p *Extent) below(l, at int32) int32 {
	i := p.lanes[l].tail
	for i != nowhere && p.pieces[i].lo >= at {
		i = p.pieces[i].prev
	}
	return i
}

// above is the lowest piece of lane l with a block at or over at, or nowhere, walking from the high end.
func (p *Extent) above(l, at int32) int32 {
	found := nowhere
	for i := p.lanes[l].tail; i != nowhere && p.pieces[i].hi > at; i = p.pieces[i].prev {
		found = i
	}
	return found
}

// room says whether lane l has nothing in [lo, hi), and which piece comes before that gap.
func (p *Extent) room(l, lo, hi int32) (below int32, ok bool) {
	below = p.below(l, hi)
	return below, below == nowhere || p.pieces[below].hi <= lo
}

// covered counts the blocks of [lo, hi) that are resident in lanes other than l of the same stream.
func (p *Extent) covered(l, lo, hi int32) int32 {
	if p.alone(l) {
		return 0
	}
	first := p.firstLane(l)
	for o := first; o != nowhere; o = p.lanes[o].next {
		p.lanes[o].cursor = nowhere
		if o != l {
			p.lanes[o].cursor = p.above(o, lo)
		}
	}
	n := int32(0)
	for at := lo; at < hi; {
		reach, next := at, hi
		for o := first; o != nowhere; o = p.lanes[o].next {
			i := p.advance(o, at)
			switch {
			case i == nowhere:
			case p.pieces[i].lo <= at:
				reach = max(reach, min(p.pieces[i].hi, hi))
			default:
				next = min(next, p.pieces[i].lo)
			}
		}
		n += reach - at
		if reach == at {
			reach = next
		}
		at = reach
	}
	return n
}

// advance moves the cursor of lane o up to the first piece with a block at or over at, and returns it.
func (p *Extent) advance(o, at int32) int32 {
	i := p.lanes[o].cursor
	for i != nowhere && p.pieces[i].hi <= at {
		i = p.pieces[i].next
	}
	p.lanes[o].cursor = i
	return i
}

// rewind puts the cursors of a stream's lanes at their low ends.
func (p *Extent) rewind(first int32) {
	for o := first; o != nowhere; o = p.lanes[o].next {
		p.lanes[o].cursor = p.lanes[o].head
	}
}

// oldest returns the piece that holds the first-registered copy of block at, and the block, at most hi, before which
// that piece stops being the first; nowhere if the block is not resident. Cursors must be at or under at.
func (p *Extent) oldest(first, at, hi int32) (best, end int32) {
	best = nowhere
	for o := first; o != nowhere; o = p.lanes[o].next {
		i := p.advance(o, at)
		if i != nowhere && p.pieces[i].lo <= at && (best == nowhere || p.pieces[i].seq < p.pieces[best].seq) {
			best = i
		}
	}
	if best == nowhere {
		return nowhere, at
	}
	end = min(p.pieces[best].hi, hi)
	if p.lanes[first].next == nowhere {
		return best, end
	}
	for o := first; o != nowhere; o = p.lanes[o].next {
		for i := p.lanes[o].cursor; i != nowhere && p.pieces[i].lo < end; i = p.pieces[i].next {
			if p.pieces[i].lo > at && p.pieces[i].seq < p.pieces[best].seq {
				end = p.pieces[i].lo
			}
		}
	}
	return best, end
}

// enqueue puts piece i into the free queue behind piece older (nowhere: as the next to be evicted).
func (p *Extent) enqueue(i, older int32) {
	x := &p.pieces[i]
	x.older = older
	if older == nowhere {
		x.newer, p.oldestIdle = p.oldestIdle, i
	} else {
		x.newer, p.pieces[older].newer = p.pieces[older].newer, i
	}
	if x.newer == nowhere {
		p.newestIdle = i
	} else {
		p.pieces[x.newer].older = i
	}
}

// dequeue takes piece i out of the free queue.
func (p *Extent) dequeue(i int32) {
	x := &p.pieces[i]
	if x.older == nowhere {
		p.oldestIdle = x.newer
	} else {
		p.pieces[x.older].newer = x.newer
	}
	if x.newer == nowhere {
		p.newestIdle = x.older
	} else {
		p.pieces[x.newer].older = x.older
	}
}

// mustHold panics: the table names blocks that its lane does not have.
func mustHold(l, at int32) {
	panic(fmt.Sprintf("kv: block %d of lane %d is held and not resident", at, l))
}
