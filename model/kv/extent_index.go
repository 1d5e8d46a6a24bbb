package kv

import "github.com/sluice-sim/sluice/prefix"

// streamIndex maps the streams that have something resident to their first lane: open addressing with linear probing,
// so that a stream without resident content costs nothing in a pool, however many streams and replicas there are.
type streamIndex struct {
	slots []indexSlot // length is a power of two, at most 3/4 used
	used  int
	shift uint8 // 32 - log2(len(slots))
}

type indexSlot struct {
	key  int32 // stream + 1; 0 is an empty slot
	lane int32
}

func newStreamIndex() streamIndex {
	return streamIndex{slots: make([]indexSlot, 8), shift: 32 - 3}
}

// home is the slot at which the search for a key starts (multiplication by 2^32 over the golden ratio).
func (x *streamIndex) home(key int32) uint32 { return uint32(key) * 2654435769 >> x.shift }

// find returns the slot of the key, or the empty slot where it would go.
func (x *streamIndex) find(key int32) uint32 {
	mask := uint32(len(x.slots) - 1)
	i := x.home(key)
	for x.slots[i].key != key && x.slots[i].key != 0 {
		i = (i + 1) & mask
	}
	return i
}

// get returns the first lane of stream s, or nowhere.
func (x *streamIndex) get(s prefix.StreamID) int32 {
	if i := x.find(int32(s) + 1); x.slots[i].key != 0 {
		return x.slots[i].lane
	}
	return nowhere
}

// set makes lane the first lane of stream s.
func (x *streamIndex) set(s prefix.StreamID, lane int32) {
	i := x.find(int32(s) + 1)
	if x.slots[i].key == 0 {
		if (x.used+1)*4 > len(x.slots)*3 {
			x.grow()
			i = x.find(int32(s) + 1)
		}
		x.used++
	}
	x.slots[i] = indexSlot{int32(s) + 1, lane}
}

func (x *streamIndex) grow() {
	old := x.slots
	x.slots = make([]indexSlot, 2*len(old))
	x.shift--
	for _, s := range old {
		if s.key != 0 {
			x.slots[x.find(s.key)] = s
		}
	}
}

// remove forgets stream s, moving later entries of the same chain back so that no marker is left behind.
func (x *streamIndex) remove(s prefix.StreamID) {
	mask := uint32(len(x.slots) - 1)
	hole := x.find(int32(s) + 1)
	if x.slots[hole].key == 0 {
		return
	}
	x.used--
	for i := (hole + 1) & mask; x.slots[i].key != 0; i = (i + 1) & mask {
		// The entry may move when the hole lies between its home and where it is.
		if (i-x.home(x.slots[i].key))&mask >= (i-hole)&mask {
			x.slots[hole] = x.slots[i]
			hole = i
		}
	}
	x.slots[hole] = indexSlot{}
}

// clear forgets every stream and keeps the memory.
func (x *streamIndex) clear() {
	clear(x.slots)
	x.used = 0
}
