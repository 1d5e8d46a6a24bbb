package kv

// A guarded block is one that a transfer still reads although its holder has released it or is about to. The pool
// notices when it is allocated again; Guards tells when it is held again. The connector then has the transfer finish
// before the next step runs (spec: vllm 14.2).

// guard is blocks of the extent pool: [lo, hi) of a lane, or, where lane is nowhere, of the free blocks without
// content, counted from the one that would be allocated last.
type guard struct {
	lane, lo, hi int32
	tag          int64
}

func retag(guards []guard, taken []int64, from, to int64) {
	for i := range guards {
		if guards[i].tag == from {
			guards[i].tag = to
		}
	}
	for i := range taken {
		if taken[i] == from {
			taken[i] = to
		}
	}
}

// Guard watches blocks [lo, hi) of table h, which is about to be released, under a tag.
func (p *Extent) Guard(h Handle, lo, hi int32, tag int64) {
	t := &p.tables[h]
	at := int32(0)
	for _, s := range t.spans {
		a, b := max(lo-at, 0), min(hi-at, s.hi-s.lo)
		if a < b {
			p.guards = append(p.guards, guard{s.lane, s.lo + a, s.lo + b, tag})
		}
		at += s.hi - s.lo
	}
	if a, b := max(lo-at, 0), min(hi-at, t.fresh); a < b {
		p.guards = append(p.guards, guard{nowhere, p.bare + a, p.bare + b, tag})
	}
}

// Unguard forgets a tag.
func (p *Extent) Unguard(tag int64) {
	kept := p.guards[:0]
	for _, g := range p.guards {
		if g.tag != tag {
			kept = append(kept, g)
		}
	}
	p.guards = kept
}

// Retag gives what is watched under a tag another.
func (p *Extent) Retag(from, to int64) { retag(p.guards, p.taken, from, to) }

// Guards appends to dst the tags of guarded blocks among the first n of table h, which may repeat.
func (p *Extent) Guards(h Handle, n int32, dst []int64) []int64 {
	at := int32(0)
	for _, s := range p.tables[h].spans {
		hi := min(s.hi, s.lo+n-at)
		for _, g := range p.guards {
			if g.lane == s.lane && g.lo < hi && s.lo < g.hi {
				dst = append(dst, g.tag)
			}
		}
		at += s.hi - s.lo
	}
	return dst
}

// Taken returns the tags of guarded blocks that Grow has allocated again since the last call of ClearTaken; they may
// repeat.
func (p *Extent) Taken() []int64 { return p.taken }

// ClearTaken empties what Taken returns.
func (p *Extent) ClearTaken() { p.taken = p.taken[:0] }

// take notes that blocks [lo, hi) of lane l, or of the blocks without content, have been allocated.
func (p *Extent) take(l, lo, hi int32) {
	for _, g := range p.guards {
		if g.lane == l && g.lo < hi && lo < g.hi {
			p.taken = append(p.taken, g.tag)
		}
	}
}

// bareGuards moves guards to the places that the blocks have when all blocks, which are free, lose their content and
// keep their order.
func (p *Extent) bareGuards() {
	guards := append([]guard(nil), p.guards...)
	p.guards = p.guards[:0]
	above := p.usable - p.bare // blocks under those that had no content before
	for _, g := range guards {
		if g.lane == nowhere {
			p.guards = append(p.guards, guard{nowhere, above + g.lo, above + g.hi, g.tag})
			continue
		}
		top := above
		for i := p.oldestIdle; i != nowhere; i = p.pieces[i].newer {
			x := &p.pieces[i]
			top -= x.hi - x.lo
			if a, b := max(x.lo, g.lo), min(x.hi, g.hi); x.lane == g.lane && a < b {
				p.guards = append(p.guards, guard{nowhere, top + a - x.lo, top + b - x.lo, g.tag})
			}
		}
	}
}

// Guard watches blocks [lo, hi) of table h, which is about to be released, under a tag.
func (p *Reference) Guard(h Handle, lo, hi int32, tag int64) {
	for _, b := range p.tables[h][lo:hi] {
		p.guards = append(p.guards, guard{lo: b, tag: tag})
	}
}

// Unguard forgets a tag.
func (p *Reference) Unguard(tag int64) {
	kept := p.guards[:0]
	for _, g := range p.guards {
		if g.tag != tag {
			kept = append(kept, g)
		}
	}
	p.guards = kept
}

// Retag gives what is watched under a tag another.
func (p *Reference) Retag(from, to int64) { retag(p.guards, p.taken, from, to) }

// Guards appends to dst the tags of guarded blocks among the first n of table h, which may repeat.
func (p *Reference) Guards(h Handle, n int32, dst []int64) []int64 {
	for _, b := range p.tables[h][:n] {
		for _, g := range p.guards {
			if g.lo == b {
				dst = append(dst, g.tag)
			}
		}
	}
	return dst
}

// Taken returns the tags of guarded blocks that Grow has allocated again since the last call of ClearTaken; they may
// repeat.
func (p *Reference) Taken() []int64 { return p.taken }

// ClearTaken empties what Taken returns.
func (p *Reference) ClearTaken() { p.taken = p.taken[:0] }

// take notes that a block has been allocated.
func (p *Reference) take(b int32) {
	for _, g := range p.guards {
		if g.lo == b {
			p.taken = append(p.taken, g.tag)
		}
	}
}
