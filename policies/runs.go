package policies

// changeRuns adds (by = 1) or drops (by = -1) one copy of the blocks lo to hi of a holder; false if there was nothing to
// drop.
func (x *index) changeRuns(holder, lo, hi, by int32) (changed bool) {
	prev, at := noSlot, x.holders[holder].runs
	for at != noSlot && x.runs[at].hi <= lo {
		if x.runs[at].hi == lo && x.runs[at].copies == 1 && x.runs[at].next == noSlot && by > 0 {
			x.runs[at].hi = hi // what a decode does
			return true
		}
		prev, at = at, x.runs[at].next
	}
	first := prev
	for lo < hi {
		switch {
		case at == noSlot || x.runs[at].lo >= hi: // a gap up to hi
			if by > 0 {
				prev = x.insertRun(holder, prev, run{lo: lo, hi: hi, copies: 1})
				changed = true
			}
			lo = hi
		case x.runs[at].lo > lo: // a gap, then a run
			if by > 0 {
				prev = x.insertRun(holder, prev, run{lo: lo, hi: x.runs[at].lo, copies: 1})
				changed = true
			}
			lo = x.runs[at].lo
		case x.runs[at].lo < lo: // cut the run in two at lo
			prev, at = at, x.cutRun(holder, at, lo)
		default: // the run starts at lo
			if x.runs[at].hi > hi {
				x.cutRun(holder, at, hi)
			}
			lo, changed = x.runs[at].hi, true
			x.runs[at].copies += by
			if x.runs[at].copies == 0 {
				at = x.removeRun(holder, prev, at)
			} else {
				prev, at = at, x.runs[at].next
			}
		}
	}
	x.joinRuns(holder, first)
	return changed
}

// insertRun puts n behind prev, or first if prev is noSlot.
func (x *index) insertRun(holder, prev int32, n run) int32 {
	var slot int32
	if k := len(x.spareRuns); k > 0 {
		slot, x.spareRuns = x.spareRuns[k-1], x.spareRuns[:k-1]
	} else {
		x.runs = append(x.runs, run{})
		slot = int32(len(x.runs) - 1)
	}
	link := &x.holders[holder].runs
	if prev != noSlot {
		link = &x.runs[prev].next
	}
	n.next, *link = *link, slot
	x.runs[slot] = n
	return slot
}

// cutRun splits run at into [lo, block) and [block, hi) and returns the second.
func (x *index) cutRun(holder, at, block int32) int32 {
	second := x.runs[at]
	second.lo = block
	x.runs[at].hi = block
	return x.insertRun(holder, at, second)
}

func (x *index) removeRun(holder, prev, at int32) (next int32) {
	next = x.runs[at].next
	if prev == noSlot {
		x.holders[holder].runs = next
	} else {
		x.runs[prev].next = next
	}
	x.spareRuns = append(x.spareRuns, at)
	return next
}

// joinRuns merges neighbours that touch and have equally many copies, from prev on.
func (x *index) joinRuns(holder, prev int32) {
	at := prev
	if at == noSlot {
		at = x.holders[holder].runs
	}
	for at != noSlot && x.runs[at].next != noSlot {
		next := x.runs[at].next
		a, b := &x.runs[at], &x.runs[next]
		if a.hi == b.lo && a.copies == b.copies {
			a.hi = b.hi
			x.removeRun(holder, at, next)
			continue
		}
		at = next
	}
}
