package kv

import (
	"fmt"

	"github.com/sluice-sim/sluice/prefix"
)

// ChunkKey names the content of a chunk: the stream that owns its last block, and its position in the path. Two chunks of
// one size have the same key exactly if they hold the same tokens after the same tokens.
type ChunkKey uint64

// Chunk is the key of chunk number at of a path, whose last block stream s owns.
func Chunk(s prefix.StreamID, at int32) ChunkKey {
	return ChunkKey(uint64(uint32(s))<<32 | uint64(uint32(at)))
}

// run is the chunk as a run.
func (k ChunkKey) run() (s prefix.StreamID, at int32) {
	return prefix.StreamID(k >> 32), int32(uint32(k))
}

// trackedChunks is how many chunks the lookup counts of a store threshold cover (vLLM's max_tracker_size).
const trackedChunks = 64_000

// Presence is what a lookup in the CPU tier finds.
type Presence uint8

const (
	Absent  Presence = iota
	Arrives          // its store has not completed yet
	Present          // it can be loaded
	Pinned           // it is present and being loaded
)

// storing is the reference count of a chunk whose store has not completed.
const storing int32 = -1

// cpuEntry is a chunk that the tier holds, or, under ARC, remembers having evicted.
type cpuEntry struct {
	key        ChunkKey
	slot       int32  // where it lies
	ref        int32  // loads in flight; storing before its store has completed
	prev, next int32  // in its list; next links unused entries
	call       uint32 // last call of PrepareStore that named it
	in         listID
}

// listID names one of a tier's lists.
type listID uint8

const (
	none listID = iota
	recent
	frequent
	recentGhosts // keys of chunks evicted from recent
	frequentGhosts
	numLists
)

// cpuList is a list of entries, the one to be evicted first at the head.
type cpuList struct {
	head, tail, len int32
}

// ReferenceCPUTier is a CPUTier that keeps every chunk by itself, under a key and in a place, as vLLM does.
//
// Keys of one call must differ.
type ReferenceCPUTier struct {
	cfg     CPUConfig
	entries []cpuEntry
	spare   int32 // unused entries
	index   chunkIndex

	unused []int32 // slots given back, the last one to be used first
	fresh  int32   // slots used so far

	evictable int32
	pending   int32
	call      uint32

	// LRU has one list, recent, of the evictable chunks alone. Under ARC recent (T1) and frequent (T2) hold every chunk,
	// and the ghosts (B1, B2) what was evicted from them.
	lists  [numLists]cpuList
	target float64 // ARC's size of recent

	counts  lookupCounts
	victims []int32 // scratch
	keys    []ChunkKey
	which   []int32

	evicted []EvictedRun // one chunk each

	// Places is where the chunks of the last PrepareLoad or PrepareStore lie, EvictedPlaces where the chunks in Evicted lay.
	Places, EvictedPlaces []int32
}

var _ CPUTier = (*ReferenceCPUTier)(nil)

// NewReferenceCPUTier returns an empty tier.
func NewReferenceCPUTier(cfg CPUConfig) *ReferenceCPUTier {
	t := &ReferenceCPUTier{cfg: cfg, spare: nowhere, index: newChunkIndex()}
	t.clearLists()
	t.counts = lookupCounts{index: newChunkIndex(), order: cpuList{nowhere, nowhere, 0}, limit: trackedChunks}
	return t
}

// Free implements CPUTier.
func (t *ReferenceCPUTier) Free() int32 { return t.cfg.Chunks - t.fresh + int32(len(t.unused)) }

// Used implements CPUTier.
func (t *ReferenceCPUTier) Used() int32 { return t.fresh - int32(len(t.unused)) }

// Evictable implements CPUTier.
func (t *ReferenceCPUTier) Evictable() int32 { return t.evictable }

// Pending implements CPUTier.
func (t *ReferenceCPUTier) Pending() int32 { return t.pending }

// held is the entry of a chunk that the tier holds, or nowhere.
func (t *ReferenceCPUTier) held(k ChunkKey) int32 {
	i := t.index.get(k)
	if i != nowhere && t.ghost(i) {
		return nowhere
	}
	return i
}

func (t *ReferenceCPUTier) ghost(i int32) bool {
	in := t.entries[i].in
	return in == recentGhosts || in == frequentGhosts
}

// lookup tells what the tier has of a chunk. It counts towards the store threshold.
func (t *ReferenceCPUTier) lookup(k ChunkKey) Presence {
	if t.cfg.StoreThreshold >= 2 {
		t.counts.add(k)
	}
	i := t.held(k)
	switch {
	case i == nowhere:
		return Absent
	case t.entries[i].ref == storing:
		return Arrives
	case t.entries[i].ref > 0:
		return Pinned
	}
	return Present
}

// prepareLoad pins chunks, which must be present, until CompleteLoad, and appends their slots to dst.
func (t *ReferenceCPUTier) prepareLoad(keys []ChunkKey, dst []int32) []int32 {
	for _, k := range keys {
		i := t.held(k)
		if i == nowhere || t.entries[i].ref == storing {
			panic(fmt.Sprintf("kv: load of chunk %#x, which is not present in the CPU tier", uint64(k)))
		}
		x := &t.entries[i]
		if x.ref == 0 {
			t.evictable--
			if !t.cfg.ARC {
				t.unlink(i)
			}
		}
		x.ref++
		dst = append(dst, x.slot)
	}
	return dst
}

// completeLoad ends a load.
func (t *ReferenceCPUTier) completeLoad(keys []ChunkKey) {
	for _, k := range keys {
		i := t.held(k)
		if i == nowhere || t.entries[i].ref <= 0 {
			panic(fmt.Sprintf("kv: end of a load of chunk %#x, which is not being loaded", uint64(k)))
		}
		if t.entries[i].ref--; t.entries[i].ref == 0 {
			t.release(i)
		}
	}
}

// release makes entry i, which nothing uses any more, evictable.
func (t *ReferenceCPUTier) release(i int32) {
	t.evictable++
	if !t.cfg.ARC {
		t.push(recent, i)
	}
}

// prepareStore makes room for the chunks that are not held yet and, if there is a threshold, were looked up often
// enough. It appends their positions in keys to which and their slots to slots, and they arrive until CompleteStore. If
// there is not enough to evict, chunks of this call excepted, nothing happens and ok is false.
func (t *ReferenceCPUTier) prepareStore(keys []ChunkKey, which, slots []int32) (newWhich, newSlots []int32, ok bool) {
	t.call++
	first := len(which)
	protected := int32(0) // evictable chunks among keys
	for n, k := range keys {
		if t.cfg.StoreThreshold >= 2 && t.counts.get(k) < t.cfg.StoreThreshold {
			continue
		}
		i := t.held(k)
		if i == nowhere {
			which = append(which, int32(n))
			continue
		}
		t.entries[i].call = t.call
		if t.entries[i].ref == 0 {
			protected++
		}
	}
	if short := int32(len(which)-first) - t.Free(); short > 0 {
		if short > t.evictable-protected || !t.evict(short) {
			return which[:first], slots, false
		}
	}
	for _, n := range which[first:] {
		slot := t.fresh
		if t.fresh < t.cfg.Chunks {
			t.fresh++
		} else {
			slot = t.unused[len(t.unused)-1]
			t.unused = t.unused[:len(t.unused)-1]
		}
		slots = append(slots, slot)
		t.insert(keys[n], slot)
	}
	t.pending += int32(len(which) - first)
	return which, slots, true
}

// insert adds a chunk that is not held and whose store begins.
func (t *ReferenceCPUTier) insert(k ChunkKey, slot int32) {
	i := t.index.get(k)
	if i != nowhere { // a ghost
		t.unlink(i)
	} else {
		i = t.spare
		if i == nowhere {
			t.entries = append(t.entries, cpuEntry{})
			i = int32(len(t.entries) - 1)
		} else {
			t.spare = t.entries[i].next
		}
		t.index.set(k, i)
	}
	t.entries[i] = cpuEntry{key: k, slot: slot, ref: storing, prev: nowhere, next: nowhere}
	if t.cfg.ARC {
		t.push(recent, i)
	}
}

// completeStore ends a store; chunks of one that failed are dropped.
func (t *ReferenceCPUTier) completeStore(keys []ChunkKey, ok bool) {
	for _, k := range keys {
		i := t.held(k)
		if i == nowhere || t.entries[i].ref != storing {
			continue
		}
		t.pending--
		if ok {
			t.entries[i].ref = 0
			t.release(i)
			continue
		}
		t.unused = append(t.unused, t.entries[i].slot)
		if t.cfg.ARC {
			t.unlink(i)
		}
		t.drop(i)
	}
}

// drop forgets entry i, which is in no list.
func (t *ReferenceCPUTier) drop(i int32) {
	t.index.remove(t.entries[i].key)
	t.entries[i] = cpuEntry{next: t.spare}
	t.spare = i
}

// Reset implements CPUTier.
func (t *ReferenceCPUTier) Reset() {
	t.index.clear()
	t.entries, t.spare = t.entries[:0], nowhere
	t.unused, t.fresh = t.unused[:0], 0
	t.evictable, t.pending = 0, 0
	t.clearLists()
	t.target = 0
}
