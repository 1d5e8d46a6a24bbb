package policies

import "github.com/sluice-sim/sluice/prefix"

// ApproxIndex is what a router that hears no KV events remembers of where it sent prompts: for every replica the leading
// blocks of the prompts sent there, in blocks of its own size, up to a capacity and for a time. The prompt sent least
// recently is forgotten first, and of a prompt its last blocks. Looking up refreshes nothing.
//
// Every prompt is remembered from its first block on and forgotten from its end. So what a replica is thought to hold of
// a stream begins where the stream does, in pieces of which the later were sent less recently, and hardly ever more than
// one. A lookup costs the forks of a prompt times the replicas that were sent some of it, whatever the prompt's length.
type ApproxIndex struct {
	blockTokens int32
	capacity    int64 // blocks of one replica; 0 for no limit
	ttl         Time
	heads       []head // by stream
	pieces      []piece
	free        []int32
	recent      []recency // by replica
	segments    []prefix.Segment
	reach       []int32
}

// head is what is known of a stream. When its slot is given to another stream, a new list begins; the pieces of the old one are
// forgotten in their time, as if the slot had not been given away.
type head struct {
	first      int32 // piece, noSlot if none
	generation uint32
}

// piece is blocks lo <= i < hi of a stream, sent to a replica at one moment. Pieces of a stream are sorted by (replica, lo).
type piece struct {
	stream       prefix.StreamID
	generation   uint32
	replica      ReplicaID
	lo, hi       int32
	sent         Time
	prev, next   int32 // of the stream
	older, newer int32 // of the replica
}

type recency struct {
	newest, oldest int32
	blocks         int64
}

// NewApproxIndex makes an index of blocks of blockTokens tokens that remembers at most capacity blocks for each replica
// (0 for no limit), each for ttl after it was last sent (Never for no limit).
func NewApproxIndex(blockTokens int32, capacity int64, ttl Time) *ApproxIndex {
	return &ApproxIndex{blockTokens: blockTokens, capacity: capacity, ttl: ttl}
}

// Insert remembers that the full blocks of p were sent to r at now, which never goes back.
func (x *ApproxIndex) Insert(now Time, v *View, p prefix.Prefix, r ReplicaID) {
	for int(r) >= len(x.recent) {
		x.recent = append(x.recent, recency{newest: noSlot, oldest: noSlot})
	}
	list := &x.recent[r]
	for list.oldest != noSlot && x.expired(now, list.oldest) {
		x.remove(list.oldest)
	}
	x.segments = v.tree.Segments(p, x.blockTokens, x.segments[:0])
	for i := len(x.segments) - 1; i >= 0; i-- { // the root last, so that it is the most recent
		x.send(now, v, x.segments[i], r)
	}
	for over := list.blocks - x.capacity; x.capacity > 0 && over > 0; over = list.blocks - x.capacity {
		old := &x.pieces[list.oldest]
		if n := int64(old.hi - old.lo); n > over {
			old.hi -= int32(over)
			list.blocks -= over
		} else {
			x.remove(list.oldest)
		}
	}
}

// send makes blocks g.Lo to g.Hi of a stream one piece, the most recent of r.
func (x *ApproxIndex) send(now Time, v *View, g prefix.Segment, r ReplicaID) {
	for int(g.Stream) >= len(x.heads) {
		x.heads = append(x.heads, head{first: noSlot})
	}
	if h := &x.heads[g.Stream]; h.generation != v.tree.Generation(g.Stream) {
		*h = head{first: noSlot, generation: v.tree.Generation(g.Stream)}
	}
	prev, at := x.before(g.Stream, r)
	for at != noSlot && x.pieces[at].replica == r && x.pieces[at].lo < g.Hi {
		next := x.pieces[at].next
		if x.pieces[at].hi > g.Hi {
			x.recent[r].blocks -= int64(g.Hi - x.pieces[at].lo)
			x.pieces[at].lo = g.Hi
			break
		}
		x.remove(at)
		at = next
	}
	x.add(piece{stream: g.Stream, generation: x.heads[g.Stream].generation, replica: r, lo: g.Lo, hi: g.Hi, sent: now, prev: prev, next: at})
}

// before is where in the list of s the pieces of r begin or would begin, and what comes before. The last things sent to r are
// looked at first: among them is often the same system prompt, of which every replica has a piece.
func (x *ApproxIndex) before(s prefix.StreamID, r ReplicaID) (prev, at int32) {
	recent := x.recent[r].newest
	for range x.segments {
		if recent == noSlot {
			break
		}
		if n := &x.pieces[recent]; n.stream == s && n.generation == x.heads[s].generation {
			for at, prev = recent, n.prev; prev != noSlot && x.pieces[prev].replica == r; prev = x.pieces[prev].prev {
				at = prev
			}
			return prev, at
		}
		recent = x.pieces[recent].older
	}
	prev, at = noSlot, x.heads[s].first
	for at != noSlot && x.pieces[at].replica < r {
		prev, at = at, x.pieces[at].next
	}
	return prev, at
}

func (x *ApproxIndex) add(n piece) {
	var slot int32
	if k := len(x.free); k > 0 {
		slot, x.free = x.free[k-1], x.free[:k-1]
	} else {
		x.pieces = append(x.pieces, piece{})
		slot = int32(len(x.pieces) - 1)
	}
	if n.prev == noSlot {
		x.heads[n.stream].first = slot
	} else {
		x.pieces[n.prev].next = slot
	}
	if n.next != noSlot {
		x.pieces[n.next].prev = slot
	}
	list := &x.recent[n.replica]
	n.older, n.newer = list.newest, noSlot
	if list.newest == noSlot {
		list.oldest = slot
	} else {
		x.pieces[list.newest].newer = slot
	}
	list.newest = slot
	list.blocks += int64(n.hi - n.lo)
	x.pieces[slot] = n
}

func (x *ApproxIndex) remove(slot int32) {
	n := x.pieces[slot]
	if n.prev == noSlot {
		if h := &x.heads[n.stream]; h.generation == n.generation {
			h.first = n.next
		}
	} else {
		x.pieces[n.prev].next = n.next
	}
	if n.next != noSlot {
		x.pieces[n.next].prev = n.prev
	}
	list := &x.recent[n.replica]
	if n.older == noSlot {
		list.oldest = n.newer
	} else {
		x.pieces[n.older].newer = n.newer
	}
	if n.newer == noSlot {
		list.newest = n.older
	} else {
		x.pieces[n.newer].older = n.older
	}
	list.blocks -= int64(n.hi - n.lo)
	x.free = append(x.free, slot)
}

func (x *ApproxIndex) expired(now Time, slot int32) bool {
	return now-x.pieces[slot].sent >= x.ttl
}

// Hits writes how many leading tokens of p every replica is thought to hold into dst, which has one element for each:
// whole blocks, up to all of the prompt.
func (x *ApproxIndex) Hits(now Time, v *View, p prefix.Prefix, dst []int32) {
	for len(x.reach) < len(dst) {
		x.reach = append(x.reach, 0)
	}
	clear(x.reach)
	x.segments = v.tree.Segments(p, x.blockTokens, x.segments[:0])
	for _, g := range x.segments {
		if int(g.Stream) >= len(x.heads) || x.heads[g.Stream].generation != v.tree.Generation(g.Stream) {
			continue
		}
		for at := x.heads[g.Stream].first; at != noSlot; at = x.pieces[at].next {
			n := &x.pieces[at]
			if reach := x.reach[n.replica]; n.lo <= reach && n.hi > reach && !x.expired(now, at) {
				x.reach[n.replica] = min(n.hi, g.Hi)
			}
		}
	}
	for i := range dst {
		dst[i] = x.reach[i] * x.blockTokens
	}
}

// Tokens is how much r is thought to hold, what has expired included until something is sent there.
func (x *ApproxIndex) Tokens(r ReplicaID) int64 {
	if int(r) >= len(x.recent) {
		return 0
	}
	return x.recent[r].blocks * int64(x.blockTokens)
}

// Forget drops all that r is thought to hold; for one that went down.
func (x *ApproxIndex) Forget(r ReplicaID) {
	if r < 0 || int(r) >= len(x.recent) {
		return
	}
	for x.recent[r].oldest != noSlot {
		x.remove(x.recent[r].oldest)
	}
}
