package fakevllm

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/sluice-sim/sluice/prefix"
)

// blockHashes is the chain of hashes of the full blocks of a text, low 64 bits: each covers its block and all before it.
// A salt tells apart what must not be shared.
func blockHashes(tokens []uint32, blockTokens int32, salt string) []uint64 {
	n := len(tokens) / int(blockTokens)
	hashes := make([]uint64, 0, n)
	parent := sha256.Sum256([]byte("sluice-none-hash" + salt))
	buf := make([]byte, 0, 32+4*blockTokens)
	for i := range n {
		buf = append(buf[:0], parent[:]...)
		for _, t := range tokens[i*int(blockTokens) : (i+1)*int(blockTokens)] {
			buf = binary.LittleEndian.AppendUint32(buf, t)
		}
		parent = sha256.Sum256(buf)
		hashes = append(hashes, binary.BigEndian.Uint64(parent[24:]))
	}
	return hashes
}

// place is what the engine calls a block's content: its position in a stream.
type place struct {
	stream prefix.StreamID
	block  int32
}

// content gives blocks their places. A block keeps its place as long as it is resident or a live request names it.
type content struct {
	blockTokens int32
	known       map[uint64]place
	streams     []stream
	spare       []prefix.StreamID
}

// stream is a run of blocks, one after the other in the same texts.
type stream struct {
	lo     int32 // position of the first
	parent uint64
	root   bool // there is no parent
	salted bool // more than tokens went into the hashes
	blocks []named
	tokens []uint32
}

type named struct {
	hash     uint64
	live     int32 // live requests that name it
	resident int32 // copies in the pool
}

func newContent(blockTokens int32) content {
	return content{blockTokens: blockTokens, known: map[uint64]place{}}
}

// name returns the path of a text, given by the hashes of its blocks and its tokens, and holds every block on it until
// release.
func (c *content) name(hashes []uint64, tokens []uint32, salted bool) []prefix.Segment {
	var path []prefix.Segment
	for i, h := range hashes {
		p, ok := c.known[h]
		if !ok {
			p = c.add(path, hashes, int32(i), tokens, salted)
		}
		c.block(p).live++
		if n := len(path) - 1; n >= 0 && path[n].Stream == p.stream {
			path[n].Hi++
		} else {
			path = append(path, prefix.Segment{Stream: p.stream, Lo: p.block, Hi: p.block + 1})
		}
	}
	return path
}

// add gives a new block a place: behind the block before it if that is the last of its stream, else in a new stream.
func (c *content) add(path []prefix.Segment, hashes []uint64, i int32, tokens []uint32, salted bool) place {
	id := prefix.None
	if n := len(path) - 1; n >= 0 {
		if s := &c.streams[path[n].Stream]; s.lo+int32(len(s.blocks)) == i {
			id = path[n].Stream
		}
	}
	if id == prefix.None {
		id = c.newStream()
		s := &c.streams[id]
		s.lo, s.root, s.salted = i, i == 0, salted
		if i > 0 {
			s.parent = hashes[i-1]
		}
	}
	s := &c.streams[id]
	s.blocks = append(s.blocks, named{hash: hashes[i]})
	s.tokens = append(s.tokens, tokens[i*c.blockTokens:(i+1)*c.blockTokens]...)
	c.known[hashes[i]] = place{id, i}
	return place{id, i}
}

func (c *content) newStream() prefix.StreamID {
	if n := len(c.spare); n > 0 {
		id := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return id
	}
	c.streams = append(c.streams, stream{})
	return prefix.StreamID(len(c.streams) - 1)
}

func (c *content) block(p place) *named {
	s := &c.streams[p.stream]
	return &s.blocks[p.block-s.lo]
}

// release lets go of a path of name.
func (c *content) release(path []prefix.Segment) {
	for k := len(path) - 1; k >= 0; k-- {
		s := &c.streams[path[k].Stream]
		for i := path[k].Lo; i < path[k].Hi; i++ {
			s.blocks[i-s.lo].live--
		}
		c.trim(path[k].Stream)
	}
}

// stored and evicted follow what the pool holds.
func (c *content) stored(id prefix.StreamID, lo, hi int32) {
	s := &c.streams[id]
	for i := lo; i < hi; i++ {
		s.blocks[i-s.lo].resident++
	}
}

func (c *content) evicted(id prefix.StreamID, lo, hi int32) {
	s := &c.streams[id]
	for i := lo; i < hi; i++ {
		s.blocks[i-s.lo].resident--
	}
	c.trim(id)
}

// cleared says that nothing is resident any more.
func (c *content) cleared() {
	for id := range c.streams {
		for i := range c.streams[id].blocks {
			c.streams[id].blocks[i].resident = 0
		}
		c.trim(prefix.StreamID(id))
	}
}

// trim forgets the last blocks of a stream as far as nobody needs them.
func (c *content) trim(id prefix.StreamID) {
	s := &c.streams[id]
	n := len(s.blocks)
	if n == 0 {
		return
	}
	for n > 0 && s.blocks[n-1].live == 0 && s.blocks[n-1].resident == 0 {
		n--
		delete(c.known, s.blocks[n].hash)
	}
	s.blocks = s.blocks[:n]
	s.tokens = s.tokens[:int32(n)*c.blockTokens]
	if n == 0 {
		s.blocks, s.tokens = nil, nil
		c.spare = append(c.spare, id)
	}
}

// path is where a text would be found; it holds nothing and ends at the first block that has no place.
func (c *content) path(hashes []uint64) []prefix.Segment {
	var path []prefix.Segment
	for _, h := range hashes {
		p, ok := c.known[h]
		if !ok {
			break
		}
		if n := len(path) - 1; n >= 0 && path[n].Stream == p.stream {
			path[n].Hi++
		} else {
			path = append(path, prefix.Segment{Stream: p.stream, Lo: p.block, Hi: p.block + 1})
		}
	}
	return path
}
