package kv

import (
	"fmt"

	"github.com/sluice-sim/sluice/prefix"
)

// nowhere is the index of no piece and of no lane.
const nowhere int32 = -1

// piece is a run of resident blocks [lo, hi) of one lane with the same reference count. It is in front or behind as a
// whole.
type piece struct {
	lo, hi       int32
	ref          int32
	lane         int32
	prev, next   int32 // in the lane, ascending; next links unused pieces
	left, right  int32 // in the front of the stream, ascending
	older, newer int32 // in the free queue, while ref is 0
	seq          int64 // number of the registration; of two pieces behind, the smaller comes to the front first
	front        bool
}

// lane is one resident copy of parts of a stream: pieces that do not overlap. A stream has a second lane only where the
// same content is resident twice. Tables name lanes by index, so a lane keeps its index until it is empty.
type lane struct {
	content    int32
	head, tail int32 // pieces, lowest and highest
	prev, next int32 // lanes of the same stream; next links unused lanes
}

// content is what is resident of one stream: its lanes, and its front, that is, for each resident block, the copy that
// was registered first. Lookups see the front alone; a copy stays in it until it is evicted.
type content struct {
	stream      prefix.StreamID
	lanes       int32 // first lane; links unused entries
	left, right int32 // ends of the front
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

// newContent makes an entry for stream s, which has none.
func (p *Extent) newContent(s prefix.StreamID) int32 {
	x := content{stream: s, lanes: nowhere, left: nowhere, right: nowhere}
	c := p.spareContent
	if c == nowhere {
		p.contents = append(p.contents, x)
		c = int32(len(p.contents) - 1)
	} else {
		p.spareContent = p.contents[c].lanes
		p.contents[c] = x
	}
	p.index.set(s, c)
	return c
}

// newLane adds an empty lane to content c, behind its first.
func (p *Extent) newLane(c int32) int32 {
	first := p.contents[c].lanes
	x := lane{content: c, head: nowhere, tail: nowhere, prev: first, next: nowhere}
	if first != nowhere {
		x.next = p.lanes[first].next
	}
	l := p.spareLane
	if l == nowhere {
		p.lanes = append(p.lanes, x)
		l = int32(len(p.lanes) - 1)
	} else {
		p.spareLane = p.lanes[l].next
		p.lanes[l] = x
	}
	if x.next != nowhere {
		p.lanes[x.next].prev = l
	}
	if first == nowhere {
		p.contents[c].lanes = l
	} else {
		p.lanes[first].next = l
	}
	return l
}

// dropLane removes an empty lane, and its content when that was the last.
func (p *Extent) dropLane(l int32) {
	x := &p.lanes[l]
	c := &p.contents[x.content]
	if x.next != nowhere {
		p.lanes[x.next].prev = x.prev
	}
	if x.prev != nowhere {
		p.lanes[x.prev].next = x.next
	} else {
		c.lanes = x.next
	}
	if c.lanes == nowhere {
		p.index.remove(c.stream)
		c.lanes, p.spareContent = p.spareContent, x.content
	}
	x.next, p.spareLane = p.spareLane, l
}

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

// drop takes piece i, which is in no queue, out of its lane and out of the front, and the lane out of its stream when it
// was the last.
func (p *Extent) drop(i int32) {
	x := &p.pieces[i]
	l := &p.lanes[x.lane]
	if x.front {
		p.leave(i)
	}
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
	u := p.newPiece(piece{lo: at, hi: x.hi, ref: x.ref, lane: x.lane, seq: x.seq})
	p.pieces[i].hi = at
	p.insert(u, i)
	if x.front {
		p.enter(u, i)
	}
	if x.ref == 0 {
		p.enqueue(u, x.older)
	}
	return u
}

// join makes one piece of i and the piece above it, u, if both are there and nothing can tell them apart, and says
// whether it did; what is left is i.
func (p *Extent) join(i, u int32) bool {
	if i == nowhere || u == nowhere {
		return false
	}
	x, y := &p.pieces[i], &p.pieces[u]
	if x.hi != y.lo || x.ref != y.ref || x.front != y.front || (x.ref == 0 && y.newer != i) {
		return false
	}
	if !x.front && (x.seq > y.seq || p.between(x.lane, y.lo, y.hi, x.seq, y.seq)) {
		return false
	}
	if y.ref == 0 {
		p.dequeue(u)
	}
	x.hi = y.hi
	p.drop(u)
	return true
}

// between says whether another lane of the stream than l has a copy of one of the blocks [lo, hi) that was registered
// after a and before b.
func (p *Extent) between(l, lo, hi int32, a, b int64) bool {
	if a == b {
		return false
	}
	for o := p.contents[p.lanes[l].content].lanes; o != nowhere; o = p.lanes[o].next {
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

// enter puts piece i into the front of its stream, to the right of piece left (nowhere: at the low end).
func (p *Extent) enter(i, left int32) {
	x := &p.pieces[i]
	c := &p.contents[p.lanes[x.lane].content]
	x.front, x.left = true, left
	if left == nowhere {
		x.right, c.left = c.left, i
	} else {
		x.right, p.pieces[left].right = p.pieces[left].right, i
	}
	if x.right == nowhere {
		c.right = i
	} else {
		p.pieces[x.right].left = i
	}
}

// leave takes piece i out of the front.
func (p *Extent) leave(i int32) {
	x := &p.pieces[i]
	c := &p.contents[p.lanes[x.lane].content]
	if x.left == nowhere {
		c.left = x.right
	} else {
		p.pieces[x.left].right = x.right
	}
	if x.right == nowhere {
		c.right = x.left
	} else {
		p.pieces[x.right].left = x.left
	}
}

// promote brings to the front what lies behind it in blocks [lo, hi) of content c, which the front has lost after piece
// left, the first registered first, and returns how many blocks that is. It relies on residency closed under prefixes:
// what begins behind the front begins where a piece of the front does, and is older in the free queue than any longer
// piece of the front made since; so no piece behind begins inside [lo, hi), and after the first block without another
// copy there is none.
func (p *Extent) promote(c, left, lo, hi int32) int32 {
	if p.lanes[p.contents[c].lanes].next == nowhere {
		return 0
	}
	at := lo
	for at < hi {
		i := p.firstBehind(c, at)
		if i == nowhere {
			break
		}
		if p.pieces[i].lo < at {
			i = p.split(i, at)
		}
		if p.pieces[i].hi > hi {
			p.split(i, hi)
		}
		at = p.pieces[i].hi
		p.enter(i, left)
		p.join(i, p.pieces[i].next)
		left = i
	}
	return at - lo
}

// firstBehind is the first-registered piece of content c that has block at, which is not in front, or nowhere.
func (p *Extent) firstBehind(c, at int32) int32 {
	best := nowhere
	for l := p.contents[c].lanes; l != nowhere; l = p.lanes[l].next {
		i := p.below(l, at+1)
		if i != nowhere && p.pieces[i].hi > at && (best == nowhere || p.pieces[i].seq < p.pieces[best].seq) {
			best = i
		}
	}
	return best
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
