package kv

import "github.com/sluice-sim/sluice/prefix"

// CPUConfig describes the CPU tier of a replica.
type CPUConfig struct {
	Chunks         int32 // capacity
	ARC            bool  // eviction policy arc instead of lru
	StoreThreshold int32 // a chunk is stored only after that many lookups of it; below 2 always
	Places         bool  // chunks have places, as in vLLM, which takes a ReferenceCPUTier
}

// CPUTier is the cache of chunks in the host memory of one replica, vLLM's CPUOffloadingManager (spec: vllm 14.2). A
// chunk is a fixed number of consecutive blocks, named by the stream that owns its last block and its position in the
// path: two chunks of one size are the same exactly if they hold the same tokens after the same tokens. Chunks are
// stored as a whole or not at all, loaded, which pins them, and evicted by LRU or ARC when room is needed for a store.
//
// Chunks are given as paths: runs of chunks, contiguous from 0 on, each of one stream; from (inclusive) and to
// (exclusive) are positions in them. Methods panic on misuse, such as a load of a chunk that is not present.
//
// Two tiers agree on everything but places: ReferenceCPUTier keeps every chunk by itself, as vLLM does, and is the oracle
// of the tests; ExtentCPUTier keeps runs, so that its cost does not grow with the length of a context.
type CPUTier interface {
	// Free is the number of chunks that fit without eviction.
	Free() int32
	// Used is the number of chunks stored or being stored.
	Used() int32
	// Evictable is the number of chunks stored that no load pins.
	Evictable() int32
	// Pending is the number of chunks whose store has not completed.
	Pending() int32

	// Match looks chunks up until one is absent, and returns where that is. arrives tells that the store of one of those
	// found has not completed, pinned that one is being loaded. It counts towards the store threshold.
	Match(path []prefix.Segment, from, to int32) (end int32, arrives, pinned bool)
	// Touch marks the first to chunks as used, the last one first, so that the first one ends as the most recent. LRU moves
	// those that are evictable. ARC moves what it holds to the frequent chunks, and takes a chunk that it had evicted as a
	// sign that the list it came from should be larger.
	Touch(path []prefix.Segment, to int32)
	// Settled tells whether doing Match and Touch of the first to chunks, or of several paths one after the other, again
	// would change nothing, given that it has been done and nothing else since.
	Settled(path []prefix.Segment, to int32) bool
	// PrepareLoad pins chunks, which must be present, until CompleteLoad.
	PrepareLoad(path []prefix.Segment, from, to int32)
	// CompleteLoad ends a load of runs of chunks.
	CompleteLoad(runs []prefix.Segment)
	// PrepareStore makes room for the chunks that are not held yet and, if there is a threshold, were looked up often
	// enough. It appends them to dst as runs, and they arrive until CompleteStore. If there is not enough to evict, chunks of
	// this call excepted, nothing happens and ok is false.
	PrepareStore(path []prefix.Segment, from, to int32, dst []prefix.Segment) (runs []prefix.Segment, ok bool)
	// CompleteStore ends a store of runs of chunks.
	CompleteStore(runs []prefix.Segment)
	// Evicted is what PrepareStore has evicted since the last ClearEvicted, in order. Valid until the next call.
	Evicted() []EvictedRun
	// ClearEvicted empties what Evicted returns.
	ClearEvicted()
	// Reset forgets every chunk, those with a load or store in flight included. Lookup counts stay.
	Reset()
}

// EvictedRun is chunks [Lo, Hi) of a stream that were evicted one after the other: from Lo upwards if Up, else from the
// high end downwards.
type EvictedRun struct {
	Stream prefix.StreamID
	Lo, Hi int32
	Up     bool
}

// NewCPUTier returns an empty tier: a ReferenceCPUTier where chunks need places, else an ExtentCPUTier.
func NewCPUTier(cfg CPUConfig) CPUTier {
	if cfg.Places {
		return NewReferenceCPUTier(cfg)
	}
	return NewExtentCPUTier(cfg)
}
