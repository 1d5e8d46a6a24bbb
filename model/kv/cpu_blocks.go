package kv

import "github.com/sluice-sim/sluice/prefix"

// Operations on single blocks of the reference pool, for a connector that pins blocks apart from the requests that
// hold them (spec: vllm 14.3).

// Pin adds a holder to blocks, which it takes out of the free queue if they are free.
func (p *Reference) Pin(blocks []int32) {
	for _, b := range blocks {
		if p.blocks[b].ref == 0 {
			p.unlink(b)
		}
		p.blocks[b].ref++
	}
}

// Unpin takes a holder from blocks, in the order given: those that are free then go to the free queue in that order.
func (p *Reference) Unpin(blocks []int32) {
	idle := p.scratch[:0]
	front := int32(0) // the block after which the next one without content goes
	for _, b := range blocks {
		p.blocks[b].ref--
		switch {
		case p.blocks[b].ref > 0:
		case p.blocks[b].hashed:
			idle = append(idle, b)
		default:
			p.insertAfter(front, b)
			front = b
		}
	}
	for _, b := range idle {
		p.insertAfter(p.blocks[0].prev, b)
	}
	p.scratch = idle[:0]
}

// Take pops n blocks from the head of the free queue, evicting what they cached, pins them and appends them to dst.
func (p *Reference) Take(n int32, dst []int32) []int32 {
	h := p.Open()
	p.Grow(h, n)
	dst = append(dst, p.tables[h]...)
	p.tables[h] = p.tables[h][:0]
	p.spare = append(p.spare, h)
	return dst
}

// Content is what a block caches.
func (p *Reference) Content(b int32) (s prefix.StreamID, index int32, ok bool) {
	x := &p.blocks[b]
	return x.key.stream, x.key.block, x.hashed
}

// Find is the first-registered block with the content of block index of stream s, or 0.
func (p *Reference) Find(s prefix.StreamID, index int32) int32 { return p.content[key{s, index}] }

// Fill makes block b, which caches nothing, hittable as block index of stream s.
func (p *Reference) Fill(b int32, s prefix.StreamID, index int32) {
	p.blocks[b].hashed = true
	p.blocks[b].key = key{s, index}
	p.remember(b)
}

// Held tells whether something holds block b.
func (p *Reference) Held(b int32) bool { return p.blocks[b].ref > 0 }

// NextFree is the block behind block b in the free queue, or 0 at its end; behind 0 is the head.
func (p *Reference) NextFree(b int32) int32 { return p.blocks[b].next }
