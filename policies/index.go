package policies

import "github.com/sluice-sim/sluice/prefix"

// index knows which blocks are resident where, from KV facts. For every stream it keeps a list of runs of blocks, each
// on one replica and with a number of copies (an engine may hold identical blocks twice, and an eviction drops one
// copy). Almost always a stream has one run for each replica that it ran on, so a lookup costs the forks of a prompt
// times the replicas that hold some of it, whatever the prompt's length.
type index struct {
	heads       []int32 // by stream: first run, noSlot if none
	runs        []run
	free        []int32
	blockTokens []int32 // by replica: block size of its facts, 0 until the first one
	sizes       []int32 // distinct block sizes heard of
	segments    []prefix.Segment
	reach       []int32
}

// run is blocks lo <= i < hi of a stream on a replica. Runs of a stream are sorted by (replica, lo) and do not overlap.
type run struct {
	replica ReplicaID
	lo, hi  int32
	copies  int32
	next    int32
}

func (x *index) init(capabilities []Capability) {
	x.blockTokens = make([]int32, len(capabilities))
	x.reach = make([]int32, len(capabilities))
}

func (x *index) heard(r ReplicaID, blockTokens int32) {
	if x.blockTokens[r] == blockTokens {
		return
	}
	x.blockTokens[r] = blockTokens
	for _, b := range x.sizes {
		if b == blockTokens {
			return
		}
	}
	x.sizes = append(x.sizes, blockTokens)
}

// change adds (by = 1) or drops (by = -1) one copy of the blocks lo to hi of stream s on r. A copy that was never
// there is not dropped; false if that was all of it.
func (x *index) change(r ReplicaID, s prefix.StreamID, lo, hi, by int32) bool {
	for int(s) >= len(x.heads) {
		x.heads = append(x.heads, noSlot)
	}
	prev, changed := noSlot, false
	at := x.heads[s]
	for at != noSlot && (x.runs[at].replica < r || x.runs[at].replica == r && x.runs[at].hi <= lo) {
		prev, at = at, x.runs[at].next
	}
	first := prev
	for lo < hi {
		switch here := at != noSlot && x.runs[at].replica == r; {
		case !here || x.runs[at].lo >= hi: // a gap up to hi
			if by > 0 {
				prev = x.insert(s, prev, run{replica: r, lo: lo, hi: hi, copies: 1})
				changed = true
			}
			lo = hi
		case x.runs[at].lo > lo: // a gap, then a run
			if by > 0 {
				prev = x.insert(s, prev, run{replica: r, lo: lo, hi: x.runs[at].lo, copies: 1})
				changed = true
			}
			lo = x.runs[at].lo
		case x.runs[at].lo < lo: // cut the run in two at lo
			prev, at = at, x.cut(s, at, lo)
		default: // the run starts at lo
			if x.runs[at].hi > hi {
				x.cut(s, at, hi)
			}
			lo, changed = x.runs[at].hi, true
			x.runs[at].copies += by
			if x.runs[at].copies == 0 {
				at = x.remove(s, prev, at)
			} else {
				prev, at = at, x.runs[at].next
			}
		}
	}
	x.join(s, first, r)
	return changed
}

func (x *index) insert(s prefix.StreamID, prev int32, n run) int32 {
	var slot int32
	if k := len(x.free); k > 0 {
		slot, x.free = x.free[k-1], x.free[:k-1]
	} else {
		x.runs = append(x.runs, run{})
		slot = int32(len(x.runs) - 1)
	}
	if prev == noSlot {
		n.next, x.heads[s] = x.heads[s], slot
	} else {
		n.next, x.runs[prev].next = x.runs[prev].next, slot
	}
	x.runs[slot] = n
	return slot
}

// cut splits run at into [lo, block) and [block, hi) and returns the second.
func (x *index) cut(s prefix.StreamID, at, block int32) int32 {
	second := x.runs[at]
	second.lo = block
	x.runs[at].hi = block
	return x.insert(s, at, second)
}

func (x *index) remove(s prefix.StreamID, prev, at int32) (next int32) {
	next = x.runs[at].next
	if prev == noSlot {
		x.heads[s] = next
	} else {
		x.runs[prev].next = next
	}
	x.free = append(x.free, at)
	return next
}

// join merges neighbours on r that touch and have equally many copies, from prev on.
func (x *index) join(s prefix.StreamID, prev int32, r ReplicaID) {
	at := prev
	if at == noSlot {
		at = x.heads[s]
	}
	for at != noSlot && x.runs[at].replica <= r {
		next := x.runs[at].next
		if next == noSlot {
			return
		}
		a, b := &x.runs[at], &x.runs[next]
		if a.replica == b.replica && a.hi == b.lo && a.copies == b.copies {
			a.hi = b.hi
			x.remove(s, at, next)
			continue
		}
		at = next
	}
}

// clear forgets everything on r.
func (x *index) clear(r ReplicaID) {
	for s := range x.heads {
		prev, at := noSlot, x.heads[s]
		for at != noSlot && x.runs[at].replica <= r {
			if x.runs[at].replica == r {
				at = x.remove(prefix.StreamID(s), prev, at)
			} else {
				prev, at = at, x.runs[at].next
			}
		}
	}
}

// hit is View.HitTokens.
func (x *index) hit(tree *prefix.Tree, r ReplicaID, p prefix.Prefix) (tokens int32, ok bool) {
	if int(r) >= len(x.blockTokens) || r < 0 || x.blockTokens[r] == 0 {
		return 0, false
	}
	b := x.blockTokens[r]
	x.segments = tree.Segments(p, b, x.segments[:0])
	reach := int32(0)
	for _, g := range x.segments {
		if reach < g.Lo || int(g.Stream) >= len(x.heads) {
			break
		}
		for at := x.heads[g.Stream]; at != noSlot && x.runs[at].replica <= r; at = x.runs[at].next {
			if n := &x.runs[at]; n.replica == r && n.lo <= reach && n.hi > reach {
				reach = min(n.hi, g.Hi)
			}
		}
	}
	return hitTokens(reach, b, p), true
}

// hits is View.AllHitTokens.
func (x *index) hits(tree *prefix.Tree, p prefix.Prefix, dst []int32) {
	for i := range dst {
		dst[i] = -1
		if x.blockTokens[i] > 0 {
			dst[i] = 0
		}
	}
	for _, b := range x.sizes {
		x.segments = tree.Segments(p, b, x.segments[:0])
		clear(x.reach)
		for _, g := range x.segments {
			if int(g.Stream) >= len(x.heads) {
				continue
			}
			for at := x.heads[g.Stream]; at != noSlot; at = x.runs[at].next {
				n := &x.runs[at]
				if reach := x.reach[n.replica]; reach >= g.Lo && n.lo <= reach && n.hi > reach {
					x.reach[n.replica] = min(n.hi, g.Hi)
				}
			}
		}
		for i, reach := range x.reach {
			if reach > 0 && x.blockTokens[i] == b {
				dst[i] = hitTokens(reach, b, p)
			}
		}
	}
}

// hitTokens is the tokens of the first blocks of p, at most the whole blocks before its last token.
func hitTokens(blocks, blockTokens int32, p prefix.Prefix) int32 {
	return max(0, min(blocks, (p.Tokens-1)/blockTokens)) * blockTokens
}
