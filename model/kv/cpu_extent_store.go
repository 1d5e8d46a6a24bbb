package kv

import "github.com/sluice-sim/sluice/prefix"

// PrepareStore implements CPUTier.
func (t *ExtentCPUTier) PrepareStore(path []prefix.Segment, from, to int32, dst []prefix.Segment) (runs []prefix.Segment, ok bool) {
	t.call++
	t.want(path, from, to)
	var missing, protected int32
	for _, s := range t.wanted {
		missing += s.Hi - s.Lo
		for i := t.find(s.Stream, s.Lo); i != nowhere && t.pieces[i].lo < s.Hi; i = t.pieces[i].right {
			if t.ghost(i) {
				continue
			}
			n := min(t.pieces[i].hi, s.Hi) - max(t.pieces[i].lo, s.Lo)
			missing -= n
			if t.pieces[i].ref == 0 {
				protected += n
			}
		}
	}
	if short := missing - t.Free(); short > 0 {
		if short > t.evictable-protected {
			return dst, false
		}
		if protected > 0 {
			t.protect()
		}
		if !t.evict(short) {
			return dst, false
		}
	}
	if missing == 0 {
		return dst, true
	}
	for _, s := range t.wanted {
		dst = t.insert(s.Stream, s.Lo, s.Hi, dst)
	}
	t.used += missing
	t.pending += missing
	return dst, true
}

// want lists the chunks that a store asks for and that were looked up often enough.
func (t *ExtentCPUTier) want(path []prefix.Segment, from, to int32) {
	t.wanted = t.wanted[:0]
	for _, s := range path {
		lo, hi := max(s.Lo, from), min(s.Hi, to)
		switch {
		case lo >= hi:
		case t.cfg.StoreThreshold < 2:
			t.wanted = append(t.wanted, prefix.Segment{Stream: s.Stream, Lo: lo, Hi: hi})
		default:
			t.wanted = t.counts.reaching(s.Stream, lo, hi, t.wanted)
		}
	}
}

// protect marks what a store asks for, which it does not evict.
func (t *ExtentCPUTier) protect() {
	for _, s := range t.wanted {
		for i := t.find(s.Stream, s.Lo); i != nowhere && t.pieces[i].lo < s.Hi; i = t.pieces[i].right {
			if !t.ghost(i) {
				i = t.isolate(i, s.Lo, s.Hi)
				t.pieces[i].call = t.call
			}
		}
	}
}

// insert adds those of chunks [lo, hi) of stream s that are not held; their stores begin. It appends them to dst.
func (t *ExtentCPUTier) insert(s prefix.StreamID, lo, hi int32, dst []prefix.Segment) []prefix.Segment {
	if t.cfg.ARC {
		for i := t.find(s, lo); i != nowhere && t.pieces[i].lo < hi; {
			next := t.pieces[i].right
			if t.ghost(i) {
				i = t.isolate(i, lo, hi)
				next = t.pieces[i].right
				t.unlink(i)
				t.drop(i)
			}
			i = next
		}
	}
	for at := lo; at < hi; {
		i := t.find(s, at)
		end := hi
		if i != nowhere {
			if t.pieces[i].lo <= at {
				at = t.pieces[i].hi
				continue
			}
			end = min(end, t.pieces[i].lo)
		}
		i = t.newPiece(cpuPiece{stream: s, lo: at, hi: end, ref: storing})
		if t.cfg.ARC {
			t.push(recent, i, true)
		}
		dst = append(dst, prefix.Segment{Stream: s, Lo: at, Hi: end})
		at = end
	}
	return dst
}

// evict gives up n chunks that nothing uses and that the current call of PrepareStore does not name, or changes nothing
// and returns false.
func (t *ExtentCPUTier) evict(n int32) bool {
	t.victims = t.victims[:0]
	once, often := t.lists[recent].head, t.lists[frequent].head
	left := t.lists[recent].len // with the victims so far gone
	for n > 0 {
		i, k := nowhere, n
		if least := int32(t.target); left >= least {
			if i = t.idle(once); i != nowhere {
				once = t.pieces[i].next
				k = min(k, left-least+1, t.pieces[i].hi-t.pieces[i].lo)
				left -= k
			} else {
				once = nowhere
			}
		}
		if i == nowhere {
			if i = t.idle(often); i == nowhere {
				return false
			}
			often = t.pieces[i].next
			k = min(k, t.pieces[i].hi-t.pieces[i].lo)
		}
		t.victims = append(t.victims, cpuVictim{i, k})
		n -= k
	}
	for _, v := range t.victims {
		i := t.oldest(v.piece, v.n)
		x := &t.pieces[i]
		t.evictable -= v.n
		t.used -= v.n
		t.evicted = append(t.evicted, EvictedRun{x.stream, x.lo, x.hi, x.up})
		ghosts := frequentGhosts
		if x.in == recent {
			ghosts = recentGhosts
		}
		t.unlink(i)
		if t.cfg.ARC {
			t.push(ghosts, i, x.up)
		} else {
			t.drop(i)
		}
	}
	t.trim(recentGhosts)
	t.trim(frequentGhosts)
	return true
}

// idle is the first piece from i on in its list that may be evicted, or nowhere.
func (t *ExtentCPUTier) idle(i int32) int32 {
	for i != nowhere && (t.pieces[i].ref != 0 || t.pieces[i].call == t.call) {
		i = t.pieces[i].next
	}
	return i
}

// trim forgets the oldest ghosts beyond the capacity of the tier.
func (t *ExtentCPUTier) trim(l listID) {
	for n := t.lists[l].len - t.cfg.Chunks; n > 0; n = t.lists[l].len - t.cfg.Chunks {
		i := t.lists[l].head
		i = t.oldest(i, min(n, t.pieces[i].hi-t.pieces[i].lo))
		t.unlink(i)
		t.drop(i)
	}
}
