package kv

import (
	"fmt"

	"github.com/sluice-sim/sluice/prefix"
)

// ExtentCPUTier is a CPUTier that keeps runs of chunks, so that no operation costs more for a longer context; its chunks
// have no places.
//
// A piece is a run of chunks of one stream in one state, side by side in their list: from the end that is evicted first
// their positions ascend, as where a transfer has ended, or descend, as where a request has touched them. Pieces are cut
// where an operation ends inside them. Whatever touches a whole path joins what lies side by side on it again, so that
// there are few pieces on a path, and an operation costs as much as there are.
type ExtentCPUTier struct {
	cfg                      CPUConfig
	used, evictable, pending int32

	cpuPieces // in lists as in ReferenceCPUTier: LRU has one, recent, of the evictable chunks alone
	target    float64
	counts    runCounts

	call    uint32
	wanted  []prefix.Segment // scratch
	victims []cpuVictim      // scratch
	evicted []EvictedRun
}

// cpuVictim is a piece of which n chunks are to be evicted.
type cpuVictim struct{ piece, n int32 }

var _ CPUTier = (*ExtentCPUTier)(nil)

// NewExtentCPUTier returns an empty tier.
func NewExtentCPUTier(cfg CPUConfig) *ExtentCPUTier {
	if cfg.Places {
		panic("kv: chunks of a CPU tier of runs cannot have places")
	}
	return &ExtentCPUTier{cfg: cfg, cpuPieces: newCPUPieces(), counts: runCounts{newCPUPieces(), trackedChunks, cfg.StoreThreshold}}
}

// Free implements CPUTier.
func (t *ExtentCPUTier) Free() int32 { return t.cfg.Chunks - t.used }

// Used implements CPUTier.
func (t *ExtentCPUTier) Used() int32 { return t.used }

// Evictable implements CPUTier.
func (t *ExtentCPUTier) Evictable() int32 { return t.evictable }

// Pending implements CPUTier.
func (t *ExtentCPUTier) Pending() int32 { return t.pending }

// Evicted implements CPUTier.
func (t *ExtentCPUTier) Evicted() []EvictedRun { return t.evicted }

// ClearEvicted implements CPUTier.
func (t *ExtentCPUTier) ClearEvicted() { t.evicted = t.evicted[:0] }

// Reset implements CPUTier.
func (t *ExtentCPUTier) Reset() {
	t.clear()
	t.used, t.evictable, t.pending = 0, 0, 0
	t.target = 0
}

// Match implements CPUTier.
func (t *ExtentCPUTier) Match(path []prefix.Segment, from, to int32) (end int32, arrives, pinned bool) {
	end, arrives, pinned = t.match(path, from, to)
	if t.cfg.StoreThreshold >= 2 {
		t.counts.add(path, from, min(end+1, to))
	}
	return end, arrives, pinned
}

func (t *ExtentCPUTier) match(path []prefix.Segment, from, to int32) (end int32, arrives, pinned bool) {
	end = from
	for _, s := range path {
		hi := min(s.Hi, to)
		if end >= hi {
			continue
		}
		for i := t.find(s.Stream, end); end < hi; i = t.pieces[i].right {
			if i == nowhere || t.pieces[i].lo > end || t.ghost(i) {
				return end, arrives, pinned
			}
			x := &t.pieces[i]
			arrives = arrives || x.ref == storing
			pinned = pinned || x.ref > 0
			end = min(x.hi, hi)
		}
	}
	return end, arrives, pinned
}

// Settled implements CPUTier.
func (t *ExtentCPUTier) Settled(path []prefix.Segment, to int32) bool {
	if t.cfg.StoreThreshold >= 2 {
		return false
	}
	for _, s := range path {
		hi := min(s.Hi, to)
		for i := t.find(s.Stream, s.Lo); t.cfg.ARC && i != nowhere && t.pieces[i].lo < hi; i = t.pieces[i].right {
			if shifts(t.pieces[i].in, t.target, t.cfg.Chunks) {
				return false
			}
		}
	}
	return true
}

// Touch implements CPUTier.
func (t *ExtentCPUTier) Touch(path []prefix.Segment, to int32) {
	for k := len(path) - 1; k >= 0; k-- {
		s := path[k]
		hi := min(s.Hi, to)
		if s.Lo >= hi {
			continue
		}
		for i := t.below(s.Stream, hi); i != nowhere && t.pieces[i].hi > s.Lo; {
			left := t.pieces[i].left // cutting i leaves it where it is
			t.touch(t.isolate(i, s.Lo, hi))
			i = left
		}
	}
}

// touch marks a piece as used.
func (t *ExtentCPUTier) touch(i int32) {
	x := &t.pieces[i]
	to := x.in
	switch {
	case !t.cfg.ARC:
		if x.ref != 0 {
			return
		}
	case x.in == recent && x.ref != storing:
		to = frequent
	case x.in == recentGhosts:
		step := max(1, float64(t.lists[frequentGhosts].len)/float64(t.lists[recentGhosts].len))
		t.target = addTimes(t.target, step, x.hi-x.lo, float64(t.cfg.Chunks))
	case x.in == frequentGhosts:
		step := max(1, float64(t.lists[recentGhosts].len)/float64(t.lists[frequentGhosts].len))
		t.target = addTimes(t.target, -step, x.hi-x.lo, 0)
	}
	t.unlink(i)
	t.push(to, i, false)
}

// PrepareLoad implements CPUTier.
func (t *ExtentCPUTier) PrepareLoad(path []prefix.Segment, from, to int32) {
	for _, s := range path {
		at, hi := max(s.Lo, from), min(s.Hi, to)
		if at >= hi {
			continue
		}
		for i := t.find(s.Stream, at); at < hi; i = t.pieces[i].right {
			if i == nowhere || t.pieces[i].lo > at || t.pieces[i].ref == storing || t.ghost(i) {
				panic(fmt.Sprintf("kv: load of chunk %d of stream %d, which is not present in the CPU tier", at, s.Stream))
			}
			i = t.isolate(i, at, hi)
			x := &t.pieces[i]
			if x.ref == 0 {
				t.evictable -= x.hi - x.lo
				if !t.cfg.ARC {
					t.unlink(i)
				}
			}
			x.ref++
			at = x.hi
		}
	}
}

// CompleteLoad implements CPUTier.
func (t *ExtentCPUTier) CompleteLoad(runs []prefix.Segment) {
	for _, s := range runs {
		at := s.Lo
		for i := t.find(s.Stream, at); at < s.Hi; {
			if i == nowhere || t.pieces[i].lo > at || t.pieces[i].ref <= 0 || t.ghost(i) {
				panic(fmt.Sprintf("kv: end of a load of chunk %d of stream %d, which is not being loaded", at, s.Stream))
			}
			i = t.isolate(i, at, s.Hi)
			x := &t.pieces[i]
			next := x.right
			at = x.hi
			if x.ref--; x.ref == 0 {
				t.release(i)
			}
			i = next
		}
	}
}

// CompleteStore implements CPUTier.
func (t *ExtentCPUTier) CompleteStore(runs []prefix.Segment) {
	for _, s := range runs {
		for i := t.find(s.Stream, s.Lo); i != nowhere && t.pieces[i].lo < s.Hi; {
			next := t.pieces[i].right
			if t.pieces[i].ref == storing {
				i = t.isolate(i, s.Lo, s.Hi)
				x := &t.pieces[i]
				next = x.right
				x.ref = 0
				t.pending -= x.hi - x.lo
				t.release(i)
			}
			i = next
		}
	}
}

// release makes a piece, which nothing uses any more, evictable.
func (t *ExtentCPUTier) release(i int32) {
	t.evictable += t.pieces[i].hi - t.pieces[i].lo
	if !t.cfg.ARC {
		t.push(recent, i, true)
	}
}
