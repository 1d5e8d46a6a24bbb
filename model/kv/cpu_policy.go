package kv

import "math"

func (t *ReferenceCPUTier) clearLists() {
	for l := range t.lists {
		t.lists[l] = cpuList{head: nowhere, tail: nowhere}
	}
}

// push puts entry i at the end of list l, where it is evicted last.
func (t *ReferenceCPUTier) push(id listID, i int32) {
	x := &t.entries[i]
	l := &t.lists[id]
	x.in, x.prev, x.next = id, l.tail, nowhere
	if l.tail == nowhere {
		l.head = i
	} else {
		t.entries[l.tail].next = i
	}
	l.tail = i
	l.len++
}

// unlink takes entry i out of its list.
func (t *ReferenceCPUTier) unlink(i int32) {
	x := &t.entries[i]
	l := &t.lists[x.in]
	if x.prev == nowhere {
		l.head = x.next
	} else {
		t.entries[x.prev].next = x.next
	}
	if x.next == nowhere {
		l.tail = x.prev
	} else {
		t.entries[x.next].prev = x.prev
	}
	x.in = none
	l.len--
}

func (t *ReferenceCPUTier) move(l listID, i int32) {
	t.unlink(i)
	t.push(l, i)
}

// touch marks chunks as used, the last key first, so that the first one ends as the most recent. LRU moves those that
// are evictable. ARC moves what it holds to the frequent chunks, and takes a chunk that it had evicted as a sign that
// the list it came from should be larger.
func (t *ReferenceCPUTier) touch(keys []ChunkKey) {
	for n := len(keys) - 1; n >= 0; n-- {
		i := t.index.get(keys[n])
		if i == nowhere {
			continue
		}
		x := &t.entries[i]
		switch {
		case !t.cfg.ARC:
			if x.ref == 0 {
				t.move(recent, i)
			}
		case x.in == recent && x.ref != storing:
			t.move(frequent, i)
		case x.in == recentGhosts:
			t.target = min(t.target+max(1, float64(t.lists[frequentGhosts].len)/float64(t.lists[recentGhosts].len)), float64(t.cfg.Chunks))
			t.move(x.in, i)
		case x.in == frequentGhosts:
			t.target = max(t.target-max(1, float64(t.lists[recentGhosts].len)/float64(t.lists[frequentGhosts].len)), 0)
			t.move(x.in, i)
		default:
			t.move(x.in, i)
		}
	}
}

// evict frees the slots of n chunks that nothing uses and that the current call of PrepareStore does not name, or
// changes nothing and returns false.
func (t *ReferenceCPUTier) evict(n int32) bool {
	t.victims = t.victims[:0]
	once, often := t.lists[recent].head, t.lists[frequent].head
	left := t.lists[recent].len // with the victims so far gone
	for ; n > 0; n-- {
		i := nowhere
		if left >= int32(t.target) {
			if i, once = t.idle(once); i != nowhere {
				left--
			}
		}
		if i == nowhere {
			if i, often = t.idle(often); i == nowhere {
				return false
			}
		}
		t.victims = append(t.victims, i)
	}
	for _, i := range t.victims {
		x := &t.entries[i]
		t.evictable--
		t.unused = append(t.unused, x.slot)
		t.EvictedPlaces = append(t.EvictedPlaces, x.slot)
		s, at := x.key.run()
		t.evicted = append(t.evicted, EvictedRun{s, at, at + 1, true})
		switch {
		case !t.cfg.ARC:
			t.unlink(i)
			t.drop(i)
		case x.in == recent:
			t.move(recentGhosts, i)
		default:
			t.move(frequentGhosts, i)
		}
	}
	t.trim(recentGhosts)
	t.trim(frequentGhosts)
	return true
}

// idle is the first entry from i on in its list that may be evicted, or nowhere, and the entry behind it.
func (t *ReferenceCPUTier) idle(i int32) (found, next int32) {
	for i != nowhere && (t.entries[i].ref != 0 || t.entries[i].call == t.call) {
		i = t.entries[i].next
	}
	if i == nowhere {
		return nowhere, nowhere
	}
	return i, t.entries[i].next
}

// trim forgets the oldest ghosts beyond the capacity of the tier.
func (t *ReferenceCPUTier) trim(l listID) {
	for t.lists[l].len > t.cfg.Chunks {
		i := t.lists[l].head
		t.unlink(i)
		t.drop(i)
	}
}

// shifts tells whether touching a chunk of list l moves ARC's target.
func shifts(l listID, target float64, chunks int32) bool {
	return (l == recentGhosts && target < float64(chunks)) || (l == frequentGhosts && target > 0)
}

// addTimes adds step, at least 1 or at most -1, to x, not negative and below 2^31, n times, rounding every sum, and stops at
// the limit in its direction.
//
// Between two powers of two floats have one distance, so that every sum is rounded like the one before, unless it lies
// halfway between two floats: there the sums are done at once.
func addTimes(x, step float64, n int32, limit float64) float64 {
	for n > 0 && x != limit {
		next := x + step
		if (step > 0) == (next >= limit) {
			return limit
		}
		_, exponent := math.Frexp(x) // x is from half of 2^exponent to under it
		edge := math.Ldexp(1, exponent)
		if step < 0 {
			edge /= 2
		}
		d := next - x
		x = next
		n--
		if math.Abs(step-d) == math.Ldexp(1, exponent-54) {
			continue
		}
		room := (edge - next) / d // none if next is over the edge
		if step > 0 {
			room = min(room, (limit-next)/d)
		}
		if k := min(n, int32(room)-1); k > 0 {
			x += float64(float64(k) * d)
			n -= k
		}
	}
	return x
}
