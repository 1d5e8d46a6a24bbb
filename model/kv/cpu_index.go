package kv

import "math/bits"

// chunkIndex maps chunk keys to indices: open addressing with linear probing.
type chunkIndex struct {
	slots []chunkSlot // length is a power of two, at most 3/4 used
	used  int
	shift uint8 // 64 - log2(len(slots))
}

type chunkSlot struct {
	key ChunkKey
	at  int32 // index + 1; 0 is an empty slot
}

func newChunkIndex() chunkIndex { return chunkIndex{slots: make([]chunkSlot, 8), shift: 64 - 3} }

// home is the slot at which the search for a key starts. Eight chunks that follow each other in a stream stay side by
// side, since nearly all searches go along a path. The multiplication mixes upwards, so the high half, where the stream
// is, is folded in first.
func (x *chunkIndex) home(k ChunkKey) uint64 {
	h := uint64(k) >> 3
	h = (h ^ bits.RotateLeft64(h, 29)) * 0x9E3779B97F4A7C15 >> x.shift
	return h&^7 | uint64(k)&7
}

// find returns the slot of the key, or the empty slot where it would go.
func (x *chunkIndex) find(k ChunkKey) uint64 {
	mask := uint64(len(x.slots) - 1)
	i := x.home(k)
	for x.slots[i].at != 0 && x.slots[i].key != k {
		i = (i + 1) & mask
	}
	return i
}

// get returns the index under the key, or nowhere.
func (x *chunkIndex) get(k ChunkKey) int32 { return x.slots[x.find(k)].at - 1 }

func (x *chunkIndex) set(k ChunkKey, at int32) {
	i := x.find(k)
	if x.slots[i].at == 0 {
		if (x.used+1)*4 > len(x.slots)*3 {
			x.grow()
			i = x.find(k)
		}
		x.used++
	}
	x.slots[i] = chunkSlot{k, at + 1}
}

func (x *chunkIndex) grow() {
	old := x.slots
	x.slots = make([]chunkSlot, 2*len(old))
	x.shift--
	for _, s := range old {
		if s.at != 0 {
			x.slots[x.find(s.key)] = s
		}
	}
}

// remove forgets a key, moving later entries of the same chain back so that no marker is left behind.
func (x *chunkIndex) remove(k ChunkKey) {
	mask := uint64(len(x.slots) - 1)
	hole := x.find(k)
	if x.slots[hole].at == 0 {
		return
	}
	x.used--
	for i := (hole + 1) & mask; x.slots[i].at != 0; i = (i + 1) & mask {
		// The entry may move when the hole lies between its home and where it is.
		if (i-x.home(x.slots[i].key))&mask >= (i-hole)&mask {
			x.slots[hole] = x.slots[i]
			hole = i
		}
	}
	x.slots[hole] = chunkSlot{}
}

// clear forgets every key and keeps the memory.
func (x *chunkIndex) clear() {
	clear(x.slots)
	x.used = 0
}

// lookupCounts says how often the chunks looked up last were looked up. Beyond its limit the one looked up longest ago
// is forgotten.
type lookupCounts struct {
	limit   int
	index   chunkIndex
	entries []countEntry
	order   cpuList
}

type countEntry struct {
	key        ChunkKey
	n          int32
	prev, next int32
}

func (c *lookupCounts) get(k ChunkKey) int32 {
	if i := c.index.get(k); i != nowhere {
		return c.entries[i].n
	}
	return 0
}

// add counts one lookup.
func (c *lookupCounts) add(k ChunkKey) {
	i := c.index.get(k)
	if i == nowhere {
		if len(c.entries) < c.limit {
			c.entries = append(c.entries, countEntry{})
			i = int32(len(c.entries) - 1)
		} else {
			i = c.order.head
			c.index.remove(c.entries[i].key)
			c.unlink(i)
		}
		c.entries[i] = countEntry{key: k}
		c.index.set(k, i)
	} else {
		c.unlink(i)
	}
	x := &c.entries[i]
	x.n++
	x.prev, x.next = c.order.tail, nowhere
	if c.order.tail == nowhere {
		c.order.head = i
	} else {
		c.entries[c.order.tail].next = i
	}
	c.order.tail = i
}

func (c *lookupCounts) unlink(i int32) {
	x := &c.entries[i]
	if x.prev == nowhere {
		c.order.head = x.next
	} else {
		c.entries[x.prev].next = x.next
	}
	if x.next == nowhere {
		c.order.tail = x.prev
	} else {
		c.entries[x.next].prev = x.prev
	}
}
