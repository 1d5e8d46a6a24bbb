package kv

import "github.com/sluice-sim/sluice/prefix"

// cpuPiece is chunks [lo, hi) of a stream.
type cpuPiece struct {
	stream      prefix.StreamID
	lo, hi      int32
	ref         int32  // loads in flight; storing before the store has completed; of counted chunks, their lookups
	call        uint32 // last call of PrepareStore that may not evict it
	left, right int32  // in the stream, by position; right links unused pieces
	prev, next  int32  // in its list
	in          listID
	up          bool // positions ascend in the list
}

// cpuPieces is pieces in streams and in lists, whose lengths are chunks.
type cpuPieces struct {
	index  streamIndex // lowest piece of each stream
	pieces []cpuPiece
	spare  int32 // unused pieces
	lists  [numLists]cpuList
}

func newCPUPieces() cpuPieces {
	t := cpuPieces{index: newStreamIndex()}
	t.clear()
	return t
}

// clear forgets all pieces and keeps the memory.
func (t *cpuPieces) clear() {
	t.index.clear()
	t.pieces, t.spare = t.pieces[:0], nowhere
	for l := range t.lists {
		t.lists[l] = cpuList{head: nowhere, tail: nowhere}
	}
}

func (t *cpuPieces) ghost(i int32) bool {
	in := t.pieces[i].in
	return in == recentGhosts || in == frequentGhosts
}

// find is the lowest piece of stream s with a chunk at or over at, or nowhere.
func (t *cpuPieces) find(s prefix.StreamID, at int32) int32 {
	i := t.index.get(s)
	for i != nowhere && t.pieces[i].hi <= at {
		i = t.pieces[i].right
	}
	return i
}

// below is the highest piece of stream s with a chunk under at, or nowhere.
func (t *cpuPieces) below(s prefix.StreamID, at int32) int32 {
	found := nowhere
	for i := t.index.get(s); i != nowhere && t.pieces[i].lo < at; i = t.pieces[i].right {
		found = i
	}
	return found
}

// newPiece puts a piece, which overlaps no other and is in no list, into its stream.
func (t *cpuPieces) newPiece(x cpuPiece) int32 {
	x.left, x.prev, x.next = t.below(x.stream, x.lo), nowhere, nowhere
	if x.left == nowhere {
		x.right = t.index.get(x.stream)
	} else {
		x.right = t.pieces[x.left].right
	}
	i := t.place(x)
	if x.left == nowhere {
		t.index.set(x.stream, i)
	} else {
		t.pieces[x.left].right = i
	}
	if x.right != nowhere {
		t.pieces[x.right].left = i
	}
	return i
}

// place keeps a piece.
func (t *cpuPieces) place(x cpuPiece) int32 {
	i := t.spare
	if i == nowhere {
		t.pieces = append(t.pieces, x)
		return int32(len(t.pieces) - 1)
	}
	t.spare = t.pieces[i].right
	t.pieces[i] = x
	return i
}

// drop forgets piece i, which is in no list.
func (t *cpuPieces) drop(i int32) {
	x := &t.pieces[i]
	switch {
	case x.left != nowhere:
		t.pieces[x.left].right = x.right
	case x.right != nowhere:
		t.index.set(x.stream, x.right)
	default:
		t.index.remove(x.stream)
	}
	if x.right != nowhere {
		t.pieces[x.right].left = x.left
	}
	t.pieces[i] = cpuPiece{right: t.spare}
	t.spare = i
}

// isolate cuts piece i so that what it has of [lo, hi) is a piece, and returns that.
func (t *cpuPieces) isolate(i, lo, hi int32) int32 {
	if t.pieces[i].lo < lo {
		i = t.cut(i, lo)
	}
	if t.pieces[i].hi > hi {
		t.cut(i, hi)
	}
	return i
}

// oldest cuts piece i so that the n chunks of it that are evicted first are a piece, and returns that.
func (t *cpuPieces) oldest(i, n int32) int32 {
	x := &t.pieces[i]
	if x.up {
		return t.isolate(i, x.lo, x.lo+n)
	}
	return t.isolate(i, x.hi-n, x.hi)
}

// cut leaves what piece i has under at to it, and returns the piece of the rest.
func (t *cpuPieces) cut(i, at int32) int32 {
	x := t.pieces[i]
	x.lo, x.left = at, i
	j := t.place(x)
	if x.right != nowhere {
		t.pieces[x.right].left = j
	}
	y := &t.pieces[i]
	y.hi, y.right = at, j
	if x.in == none {
		return j
	}
	z := &t.pieces[j]
	if x.up {
		z.prev, z.next = i, y.next
		y.next = j
		if z.next == nowhere {
			t.lists[x.in].tail = j
		} else {
			t.pieces[z.next].prev = j
		}
	} else {
		z.prev, z.next = y.prev, i
		y.prev = j
		if z.prev == nowhere {
			t.lists[x.in].head = j
		} else {
			t.pieces[z.prev].next = j
		}
	}
	return j
}

// push puts piece i, which is in no list, at the end of a list, where it is evicted last, its positions ascending or
// descending, and joins it with the piece before it there if it continues that.
func (t *cpuPieces) push(id listID, i int32, up bool) {
	x := &t.pieces[i]
	l := &t.lists[id]
	l.len += x.hi - x.lo
	if l.tail != nowhere {
		y := &t.pieces[l.tail]
		if y.stream == x.stream && y.ref == x.ref && (y.up == up || y.hi-y.lo == 1) {
			if up && y.hi == x.lo {
				y.hi, y.up = x.hi, up
				t.drop(i)
				return
			}
			if !up && y.lo == x.hi {
				y.lo, y.up = x.lo, up
				t.drop(i)
				return
			}
		}
		y.next = i
	} else {
		l.head = i
	}
	x.in, x.up, x.prev, x.next = id, up, l.tail, nowhere
	l.tail = i
}

// unlink takes piece i out of its list.
func (t *cpuPieces) unlink(i int32) {
	x := &t.pieces[i]
	l := &t.lists[x.in]
	l.len -= x.hi - x.lo
	if x.prev == nowhere {
		l.head = x.next
	} else {
		t.pieces[x.prev].next = x.next
	}
	if x.next == nowhere {
		l.tail = x.prev
	} else {
		t.pieces[x.next].prev = x.prev
	}
	x.in = none
}
