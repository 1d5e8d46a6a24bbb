package kv

import "github.com/sluice-sim/sluice/prefix"

// expand lists the keys of chunks of a path, which are valid until the next call.
func (t *ReferenceCPUTier) expand(path []prefix.Segment, from, to int32) []ChunkKey {
	t.keys = t.keys[:0]
	for _, s := range path {
		for c := max(s.Lo, from); c < min(s.Hi, to); c++ {
			t.keys = append(t.keys, Chunk(s.Stream, c))
		}
	}
	return t.keys
}

// all lists the keys of runs.
func (t *ReferenceCPUTier) all(runs []prefix.Segment) []ChunkKey {
	t.keys = t.keys[:0]
	for _, s := range runs {
		for c := s.Lo; c < s.Hi; c++ {
			t.keys = append(t.keys, Chunk(s.Stream, c))
		}
	}
	return t.keys
}

// Match implements CPUTier.
func (t *ReferenceCPUTier) Match(path []prefix.Segment, from, to int32) (end int32, arrives, pinned bool) {
	for _, k := range t.expand(path, from, to) {
		p := t.lookup(k)
		if p == Absent {
			break
		}
		arrives = arrives || p == Arrives
		pinned = pinned || p == Pinned
		from++
	}
	return from, arrives, pinned
}

// Touch implements CPUTier.
func (t *ReferenceCPUTier) Touch(path []prefix.Segment, to int32) { t.touch(t.expand(path, 0, to)) }

// Settled implements CPUTier.
func (t *ReferenceCPUTier) Settled(path []prefix.Segment, to int32) bool {
	if t.cfg.StoreThreshold >= 2 {
		return false
	}
	if t.cfg.ARC {
		for _, k := range t.expand(path, 0, to) {
			if i := t.index.get(k); i != nowhere && shifts(t.entries[i].in, t.target, t.cfg.Chunks) {
				return false
			}
		}
	}
	return true
}

// PrepareLoad implements CPUTier.
func (t *ReferenceCPUTier) PrepareLoad(path []prefix.Segment, from, to int32) {
	t.Places = t.prepareLoad(t.expand(path, from, to), t.Places[:0])
}

// CompleteLoad implements CPUTier.
func (t *ReferenceCPUTier) CompleteLoad(runs []prefix.Segment) { t.completeLoad(t.all(runs)) }

// PrepareStore implements CPUTier.
func (t *ReferenceCPUTier) PrepareStore(path []prefix.Segment, from, to int32, dst []prefix.Segment) ([]prefix.Segment, bool) {
	var ok bool
	keys := t.expand(path, from, to)
	t.which, t.Places, ok = t.prepareStore(keys, t.which[:0], t.Places[:0])
	first := len(dst)
	for _, n := range t.which {
		s, at := keys[n].run()
		if last := len(dst) - 1; last >= first && dst[last].Stream == s && dst[last].Hi == at {
			dst[last].Hi++
		} else {
			dst = append(dst, prefix.Segment{Stream: s, Lo: at, Hi: at + 1})
		}
	}
	return dst, ok
}

// CompleteStore implements CPUTier.
func (t *ReferenceCPUTier) CompleteStore(runs []prefix.Segment) { t.completeStore(t.all(runs), true) }

// Evicted implements CPUTier.
func (t *ReferenceCPUTier) Evicted() []EvictedRun { return t.evicted }

// ClearEvicted implements CPUTier.
func (t *ReferenceCPUTier) ClearEvicted() {
	t.evicted, t.EvictedPlaces = t.evicted[:0], t.EvictedPlaces[:0]
}
