package policies

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
)

// index knows which blocks are resident where, from KV facts. For every stream it keeps its holders: the replicas that
// hold some of it, each with runs of blocks and, of these, the extent that is held without a gap from where the stream
// begins. Only the extent counts for a hit, so a lookup costs the forks of a prompt, whatever its length.
//
// Almost always a stream has one or two holders, and they are found by walking its list. A stream that more than wideOver
// replicas hold, a system prompt for instance, is wide: it has a table of holders by replica, and what a replica holds of
// the wide streams that a prompt begins with is its class for that prompt. Replicas of one class have equal hits, except
// for those that also hold some of the first stream of the prompt that is not wide. So there are as many different hits as there are holders of
// that stream and classes, and routers look at no more (see Ranking).
//
// Memory: 12 bytes for each stream, 32 for each holder and 16 for each of its runs (almost always one), and for each wide
// stream 4 for each replica.
type index struct {
	tree         *prefix.Tree
	changes      *changes
	streams      []stream
	holders      []holder
	spareHolders []int32
	runs         []run
	spareRuns    []int32
	tables       []int32 // of wide streams, one after another: holder by replica, noSlot if none
	spareTables  []int32
	wideOver     int32

	blockTokens []int32 // by replica: block size of its facts, 0 until the first one
	held        []int32 // by replica: first holder
	sizes       []int32 // distinct block sizes heard of

	segments  []prefix.Segment // of the last prompt
	segmented prefix.Prefix
	segmentBy int32
	segmentAt uint64 // changes of the tree
	reach     []int32
}

type stream struct {
	first int32 // of its holders
	count int32
	table int32 // noSlot unless wide
}

// holder is what one replica holds of one stream.
type holder struct {
	stream     prefix.StreamID
	replica    ReplicaID
	extent     int32 // end of the blocks held without a gap from the stream's first own block; 0 if that is not held
	runs       int32 // first run
	prev, next int32 // of the stream
	newer      int32 // of the replica
	older      int32
}

// run is blocks lo <= i < hi and how many copies of each there are (an engine may hold identical blocks twice, and an
// eviction drops one copy). Runs of a holder are sorted and do not overlap.
type run struct {
	lo, hi int32
	copies int32
	next   int32
}

func (x *index) init(tree *prefix.Tree, c *changes, replicas int) {
	x.tree, x.changes = tree, c
	x.wideOver = max(4, int32(replicas)/32)
	x.blockTokens = make([]int32, replicas)
	x.reach = make([]int32, replicas)
	x.held = make([]int32, replicas)
	for i := range x.held {
		x.held[i] = noSlot
	}
}

// heard takes note of the block size that r's facts are in.
func (x *index) heard(r ReplicaID, blockTokens int32) {
	if x.blockTokens[r] == blockTokens {
		return
	}
	x.blockTokens[r] = blockTokens
	x.changes.noteHeld(r)
	for at := x.held[r]; at != noSlot; at = x.holders[at].older {
		x.measure(at)
	}
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
	for int(s) >= len(x.streams) {
		x.streams = append(x.streams, stream{first: noSlot, table: noSlot})
	}
	at := x.find(s, r)
	if at == noSlot {
		if by < 0 {
			return false
		}
		at = x.hold(s, r)
	} else {
		x.toFront(at)
	}
	changed := x.changeRuns(at, lo, hi, by)
	if x.holders[at].runs == noSlot {
		x.drop(at)
	} else {
		x.measure(at)
	}
	return changed
}

// find is the holder of s that is r; noSlot if there is none.
func (x *index) find(s prefix.StreamID, r ReplicaID) int32 {
	if int(s) >= len(x.streams) {
		return noSlot
	}
	st := &x.streams[s]
	if st.table != noSlot {
		return x.tables[int(st.table)*len(x.held)+int(r)]
	}
	at := st.first
	for at != noSlot && x.holders[at].replica != r {
		at = x.holders[at].next
	}
	return at
}

// hold makes r a holder of s.
func (x *index) hold(s prefix.StreamID, r ReplicaID) int32 {
	var at int32
	if k := len(x.spareHolders); k > 0 {
		at, x.spareHolders = x.spareHolders[k-1], x.spareHolders[:k-1]
	} else {
		x.holders = append(x.holders, holder{})
		at = int32(len(x.holders) - 1)
	}
	x.holders[at] = holder{stream: s, replica: r, runs: noSlot, prev: noSlot, next: noSlot, newer: noSlot, older: x.held[r]}
	if x.held[r] != noSlot {
		x.holders[x.held[r]].newer = at
	}
	x.held[r] = at
	x.link(at)
	st := &x.streams[s]
	st.count++
	if st.table != noSlot {
		x.tables[int(st.table)*len(x.held)+int(r)] = at
	} else if st.count > x.wideOver {
		x.widen(s)
	}
	return at
}

// drop forgets a holder that has no runs.
func (x *index) drop(at int32) {
	x.setExtent(at, 0)
	x.unlink(at)
	h := x.holders[at]
	if h.newer == noSlot {
		x.held[h.replica] = h.older
	} else {
		x.holders[h.newer].older = h.older
	}
	if h.older != noSlot {
		x.holders[h.older].newer = h.newer
	}
	x.spareHolders = append(x.spareHolders, at)
	st := &x.streams[h.stream]
	st.count--
	if st.table != noSlot {
		x.tables[int(st.table)*len(x.held)+int(h.replica)] = noSlot
		if st.count <= x.wideOver/2 {
			x.narrow(h.stream)
		}
	}
}

// link puts a holder first on its stream's list.
func (x *index) link(at int32) {
	h := &x.holders[at]
	st := &x.streams[h.stream]
	h.prev, h.next = noSlot, st.first
	if st.first != noSlot {
		x.holders[st.first].prev = at
	}
	st.first = at
}

func (x *index) unlink(at int32) {
	h := &x.holders[at]
	if h.prev == noSlot {
		x.streams[h.stream].first = h.next
	} else {
		x.holders[h.prev].next = h.next
	}
	if h.next != noSlot {
		x.holders[h.next].prev = h.prev
	}
}

// toFront moves a holder to where it is found first, for a replica's facts come in spells.
func (x *index) toFront(at int32) {
	if h := &x.holders[at]; h.prev != noSlot && x.streams[h.stream].table == noSlot {
		x.unlink(at)
		x.link(at)
	}
}

// measure finds a holder's extent.
func (x *index) measure(at int32) {
	h := &x.holders[at]
	base := int32(0)
	if b := x.blockTokens[h.replica]; b > 0 {
		base = x.tree.Stream(h.stream).ForkAt / b
	}
	end := base
	for k := h.runs; k != noSlot && x.runs[k].lo <= end; k = x.runs[k].next {
		end = max(end, x.runs[k].hi)
	}
	if end == base {
		end = 0
	}
	x.setExtent(at, end)
}

func (x *index) setExtent(at, extent int32) {
	h := &x.holders[at]
	if h.extent == extent {
		return
	}
	if x.streams[h.stream].table != noSlot {
		x.changes.noteHeld(h.replica)
	}
	h.extent = extent
}

// A class is a hash of what a replica holds of some wide streams, and of its block size: the exclusive or of the hashes
// of the parts. Two different holdings of which 64 bits agree by chance would be taken for one.
func classOfExtent(s prefix.StreamID, extent int32) uint64 {
	if extent == 0 {
		return 0
	}
	return exact.Hash2(0x636c617373, uint64(s), uint64(extent))
}

func classOfSize(blockTokens int32) uint64 { return exact.Hash1(0x73697a65, uint64(blockTokens)) }

// widen gives s a table.
func (x *index) widen(s prefix.StreamID) {
	st := &x.streams[s]
	if k := len(x.spareTables); k > 0 {
		st.table, x.spareTables = x.spareTables[k-1], x.spareTables[:k-1]
	} else {
		st.table = int32(len(x.tables) / len(x.held))
		for range x.held {
			x.tables = append(x.tables, noSlot)
		}
	}
	table := x.tables[int(st.table)*len(x.held):]
	for at := st.first; at != noSlot; at = x.holders[at].next {
		h := &x.holders[at]
		table[h.replica] = at
		x.changes.noteHeld(h.replica)
	}
}

// narrow takes the table of s back.
func (x *index) narrow(s prefix.StreamID) {
	st := &x.streams[s]
	table := x.tables[int(st.table)*len(x.held):]
	for at := st.first; at != noSlot; at = x.holders[at].next {
		h := &x.holders[at]
		table[h.replica] = noSlot
		x.changes.noteHeld(h.replica)
	}
	x.spareTables = append(x.spareTables, st.table)
	st.table = noSlot
}

// clear forgets everything on r.
func (x *index) clear(r ReplicaID) {
	for at := x.held[r]; at != noSlot; at = x.held[r] {
		for k := x.holders[at].runs; k != noSlot; k = x.runs[k].next {
			x.spareRuns = append(x.spareRuns, k)
		}
		x.holders[at].runs = noSlot
		x.drop(at)
	}
}
