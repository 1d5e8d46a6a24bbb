package kv

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/sluice-sim/sluice/prefix"
)

// key names the content of one block.
type key struct {
	stream prefix.StreamID
	block  int32
}

const noBlock int32 = -1

// block is one block of KV. Ids start at 1; block 0 is the head of the free queue, a circular list.
type block struct {
	ref        int32
	prev, next int32 // free queue; meaningful while ref is 0
	twin       int32 // next block with the same content, in order of registration
	hashed     bool
	key        key
}

// Reference is the pool as vLLM keeps it: every block with its id, a doubly linked free queue, and a map from content to
// the blocks that hold it, first registered first (spec: vllm 1-6).
type Reference struct {
	blocks            []block
	free              int32
	caching           bool
	content           map[key]int32 // first of the twins
	tables            [][]int32     // by handle
	spare             []Handle
	scratch           []int32
	segs              []prefix.Segment
	record, evictions bool
	evicted           int64
	events            []Event
	guards            []guard // lo is the block
	taken             []int64
}

var _ Pool = (*Reference)(nil)

// NewReference returns a pool of usable blocks. Without caching nothing is ever registered.
func NewReference(usable int32, caching bool) *Reference {
	p := &Reference{
		blocks:  make([]block, usable+1),
		free:    usable,
		caching: caching,
		content: make(map[key]int32),
	}
	for i := range p.blocks {
		n := int32(len(p.blocks))
		p.blocks[i].prev = (int32(i) + n - 1) % n
		p.blocks[i].next = (int32(i) + 1) % n
		p.blocks[i].twin = noBlock
	}
	return p
}

// Usable implements Pool.
func (p *Reference) Usable() int32 { return int32(len(p.blocks)) - 1 }

// Free implements Pool.
func (p *Reference) Free() int32 { return p.free }

// Bare implements Pool. Bare blocks are at the head of the free queue.
func (p *Reference) Bare() int32 {
	n := int32(0)
	for i := p.blocks[0].next; i != 0 && !p.blocks[i].hashed; i = p.blocks[i].next {
		n++
	}
	return n
}

// Oldest implements Pool.
func (p *Reference) Oldest(n int32, dst []prefix.StreamID) []prefix.StreamID {
	for i := p.blocks[0].next; i != 0 && n > 0; i, n = p.blocks[i].next, n-1 {
		if x := &p.blocks[i]; x.hashed && (len(dst) == 0 || dst[len(dst)-1] != x.key.stream) {
			dst = append(dst, x.key.stream)
		}
	}
	return dst
}

// Cached implements Pool.
func (p *Reference) Cached() int64 { return int64(len(p.content)) }

// Record implements Pool.
func (p *Reference) Record(on, evictions bool) { p.record, p.evictions = on, evictions }

// Evicted implements Pool.
func (p *Reference) Evicted() int64 { return p.evicted }

// Events implements Pool.
func (p *Reference) Events() []Event { return p.events }

// ClearEvents implements Pool.
func (p *Reference) ClearEvents() { p.events = p.events[:0] }

// Table returns the ids of the blocks that h holds, in order. The slice belongs to the pool.
func (p *Reference) Table(h Handle) []int32 { return p.tables[h] }

// QueueCRC is the CRC-32 (IEEE) of the free queue, head to tail, each id as a little-endian uint32.
func (p *Reference) QueueCRC() uint32 {
	crc := uint32(0)
	var b [4]byte
	for i := p.blocks[0].next; i != 0; i = p.blocks[i].next {
		binary.LittleEndian.PutUint32(b[:], uint32(i))
		crc = crc32.Update(crc, crc32.IEEETable, b[:])
	}
	return crc
}

// Lookup implements Pool.
func (p *Reference) Lookup(path []prefix.Segment, limit int32) (hits, idle int32) {
	if !p.caching {
		return 0, 0
	}
	for _, s := range path {
		for i := s.Lo; i < s.Hi; i++ {
			if i >= limit {
				return hits, idle
			}
			b, ok := p.content[key{s.Stream, i}]
			if !ok {
				return hits, idle
			}
			hits++
			if p.blocks[b].ref == 0 {
				idle++
			}
		}
	}
	return hits, idle
}

// Open implements Pool.
func (p *Reference) Open() Handle {
	if n := len(p.spare); n > 0 {
		h := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return h
	}
	p.tables = append(p.tables, nil)
	return Handle(len(p.tables) - 1)
}

// Hold implements Pool.
func (p *Reference) Hold(h Handle, path []prefix.Segment, n int32) {
	t := p.tables[h]
	if len(t) != 0 {
		panic(fmt.Sprintf("kv: hold on table %d, which has %d blocks", h, len(t)))
	}
	p.segs = clip(path, 0, n, p.segs[:0])
	for _, s := range p.segs {
		for i := s.Lo; i < s.Hi; i++ {
			b, ok := p.content[key{s.Stream, i}]
			if !ok {
				panic(fmt.Sprintf("kv: hold of block %d of stream %d, which is not resident", i, s.Stream))
			}
			if p.blocks[b].ref == 0 {
				p.unlink(b)
			}
			p.blocks[b].ref++
			t = append(t, b)
		}
	}
	p.tables[h] = t
}

// Grow implements Pool.
func (p *Reference) Grow(h Handle, n int32) {
	if n > p.free {
		panic(fmt.Sprintf("kv: %d blocks asked for, %d free", n, p.free))
	}
	first := len(p.tables[h])
	for range n {
		b := p.blocks[0].next
		p.unlink(b)
		p.tables[h] = append(p.tables[h], b)
		p.take(b)
	}
	for _, b := range p.tables[h][first:] {
		p.blocks[b].ref = 1
		if p.blocks[b].hashed {
			k := p.blocks[b].key
			p.forget(b)
			p.evicted++
			if p.evictions {
				p.events = append(p.events, Event{Kind: Evicted, Stream: k.stream, Lo: k.block, Hi: k.block + 1, Block: b})
			}
		}
	}
}

// Register implements Pool.
func (p *Reference) Register(h Handle, path []prefix.Segment, from, to int32) {
	if !p.caching || from >= to {
		return
	}
	p.segs = clip(path, from, to, p.segs[:0])
	at := from
	for n, s := range p.segs {
		for i := s.Lo; i < s.Hi; i++ {
			b := p.tables[h][at]
			at++
			p.blocks[b].hashed = true
			p.blocks[b].key = key{s.Stream, i}
			p.remember(b)
		}
		if p.record {
			p.events = append(p.events, Event{Kind: Stored, More: n > 0, Handle: h, Stream: s.Stream, Lo: s.Lo, Hi: s.Hi})
		}
	}
	if at != to {
		panic(fmt.Sprintf("kv: path covers blocks to %d of %d to register", at, to))
	}
}

// Release implements Pool.
func (p *Reference) Release(h Handle) {
	t := p.tables[h]
	slices.Reverse(t)
	p.Unpin(t)
	p.tables[h] = t[:0]
	p.spare = append(p.spare, h)
}

// Reset implements Pool.
func (p *Reference) Reset() bool {
	if p.free != p.Usable() {
		return false
	}
	for i := range p.blocks {
		p.blocks[i].hashed = false
		p.blocks[i].twin = noBlock
	}
	clear(p.content)
	if p.record {
		p.events = append(p.events, Event{Kind: Cleared})
	}
	return true
}

func (p *Reference) unlink(b int32) {
	x := &p.blocks[b]
	p.blocks[x.prev].next = x.next
	p.blocks[x.next].prev = x.prev
	p.free--
}

func (p *Reference) insertAfter(at, b int32) {
	next := p.blocks[at].next
	p.blocks[b].prev, p.blocks[b].next = at, next
	p.blocks[at].next = b
	p.blocks[next].prev = b
	p.free++
}

// remember adds b as the last twin of its content.
func (p *Reference) remember(b int32) {
	k := p.blocks[b].key
	p.blocks[b].twin = noBlock
	first, ok := p.content[k]
	if !ok {
		p.content[k] = b
		return
	}
	for p.blocks[first].twin != noBlock {
		first = p.blocks[first].twin
	}
	p.blocks[first].twin = b
}

// forget removes b from the twins of its content.
func (p *Reference) forget(b int32) {
	k := p.blocks[b].key
	p.blocks[b].hashed = false
	first := p.content[k]
	switch {
	case first != b:
		for p.blocks[first].twin != b {
			first = p.blocks[first].twin
		}
		p.blocks[first].twin = p.blocks[b].twin
	case p.blocks[b].twin != noBlock:
		p.content[k] = p.blocks[b].twin
	default:
		delete(p.content, k)
	}
	p.blocks[b].twin = noBlock
}
