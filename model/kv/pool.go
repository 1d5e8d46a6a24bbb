// Package kv is the KV cache of one replica: the block pool, the prefix cache over it and its eviction, as in vLLM's V1
// engine.
//
// Two pools stand behind one interface. Reference keeps every block with its id, as vLLM does: short, obvious, slow, the
// oracle of the tests. Extent keeps runs of blocks, so that its cost does not grow with the length of a context. Both
// agree on everything that has no block id in it.
//
// Behind the GPU there can be a CPU tier: CPUTier keeps chunks of blocks in the memory of the host.
//
// Content is named by (stream, block index); see package prefix. A block is hittable once it is registered, stays so
// when its last holder releases it, and is evicted only when it is allocated again.
package kv

import "github.com/sluice-sim/sluice/prefix"

// Handle names the table of blocks that one request holds in a pool.
type Handle int32

// Pool is the block pool of one replica. Counts are blocks. Methods panic on misuse (growing beyond Free, a closed
// handle), since that is a broken invariant of the caller.
type Pool interface {
	// Usable is the number of blocks that requests can hold (vLLM's null block is not among them).
	Usable() int32
	// Free is the number of blocks that no request holds, cached ones included.
	Free() int32
	// Bare is the number of free blocks that hold no content; Grow takes them before it evicts anything.
	Bare() int32
	// Oldest appends to dst the streams of which the next n blocks taken by Grow would evict content, the first to go first.
	Oldest(n int32, dst []prefix.StreamID) []prefix.StreamID
	// Lookup returns how many leading blocks of path, at most limit, are resident, and how many of these are held by
	// nobody. It has no side effect.
	Lookup(path []prefix.Segment, limit int32) (hits, idle int32)

	// Open returns an empty table.
	Open() Handle
	// Hold appends the first n blocks of path, which Lookup just found, to the empty table h.
	Hold(h Handle, path []prefix.Segment, n int32)
	// Grow takes n blocks from the head of the free queue, evicting what they cached, and appends them to table h.
	Grow(h Handle, n int32)
	// Register makes blocks from (inclusive) to (exclusive) of table h hittable as that part of path. Blocks are
	// registered in order, those from Hold being registered already.
	Register(h Handle, path []prefix.Segment, from, to int32)
	// Release frees the blocks of table h, last block first, and closes it.
	Release(h Handle)

	// Guard watches blocks lo (inclusive) to hi (exclusive) of table h, which is about to be released while a transfer
	// still reads them, under the tag of that transfer, until Unguard.
	Guard(h Handle, lo, hi int32, tag int64)
	Unguard(tag int64)
	// Retag gives what is watched under a tag another one.
	Retag(from, to int64)
	// Guards appends to dst the tags of guarded blocks among the first n of table h, and Taken returns those of blocks
	// that Grow has allocated again since the last ClearTaken. Tags may repeat.
	Guards(h Handle, n int32, dst []int64) []int64
	Taken() []int64
	ClearTaken()

	// Reset forgets all cached content. It does nothing and returns false unless every block is free.
	Reset() bool
	// Cached is the number of distinct blocks of content that are resident.
	Cached() int64

	// Evicted is the number of blocks of content that were evicted since the pool was made; each copy counts.
	Evicted() int64

	// Record switches the recording of events on or off, those of evictions apart; Events returns what was recorded since
	// the last call to ClearEvents. The slice is valid until the next operation.
	Record(on, evictions bool)
	Events() []Event
	ClearEvents()
}

// EventKind says what happened to cached content.
type EventKind uint8

const (
	Stored  EventKind = iota + 1 // blocks [Lo, Hi) of Stream were registered by table Handle
	Evicted                      // one copy of each of the blocks [Lo, Hi) of Stream was evicted
	Cleared                      // everything was forgotten
)

// Event is one change of cached content. One registration gives one event per stream that it touches; all but the first
// have More set. Block is the id of an evicted block in the reference pool.
type Event struct {
	Kind   EventKind
	More   bool
	Handle Handle
	Stream prefix.StreamID
	Lo, Hi int32
	Block  int32
	Late   bool // of a Stored one: the driver of the pool registered the blocks later than they were full
}

// clip appends to dst the part of path that lies in blocks from (inclusive) to (exclusive).
func clip(path []prefix.Segment, from, to int32, dst []prefix.Segment) []prefix.Segment {
	for _, s := range path {
		lo, hi := max(s.Lo, from), min(s.Hi, to)
		if lo < hi {
			dst = append(dst, prefix.Segment{Stream: s.Stream, Lo: lo, Hi: hi})
		}
	}
	return dst
}
