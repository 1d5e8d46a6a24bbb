// Package prefix is content identity: which tokens two prompts share, without storing a token.
//
// Content is a tree of streams. A stream is an append-only sequence of tokens that starts as a copy of its parent up to
// a fork offset; a prompt is the first Tokens tokens of a stream. Two prompts share KV exactly as far as their paths in
// the tree agree. Streams never split, so identifiers stay valid while the tree grows. A driver that runs for ever releases
// streams that nobody refers to; their slots are used again, with a new generation.
//
// The package imports nothing of ours. The driver owns the tree; everybody else only reads it.
package prefix

// StreamID names a stream of a Tree; None is no stream.
type StreamID int32

// None is the parent of a root stream.
const None StreamID = -1

// Stream is one append-only sequence of tokens.
type Stream struct {
	Parent StreamID // None for a root
	ForkAt int32    // tokens below ForkAt are the parent's, the rest are its own; 0 for a root
}

// Prefix is a prompt: the first Tokens tokens of Stream.
type Prefix struct {
	Stream StreamID
	Tokens int32
}

// Tree holds the streams of one run, or the live streams of a gateway. The zero value is empty and ready to use.
type Tree struct {
	streams []Stream

	// Of slots that were released; all empty in a tree of which nothing was.
	free        []StreamID
	generations []uint32
	changed     []StreamID // slots that were released or given to a stream, the last of changes
	changes     uint64
}

// Len is the number of slots of streams, released ones included; identifiers are 0 to Len()-1, in order of creation as long
// as no stream was released.
func (t *Tree) Len() int { return len(t.streams) }

// Stream returns the stream with identifier s.
func (t *Tree) Stream(s StreamID) Stream { return t.streams[s] }

// Root adds a stream that shares nothing with any other.
func (t *Tree) Root() StreamID { return t.add(Stream{Parent: None}) }

// Fork adds a stream whose first p.Tokens tokens are those of p. The parent recorded is the stream that owns the last
// shared token, so fork offsets strictly increase along every path; a fork at 0 is a root.
func (t *Tree) Fork(p Prefix) StreamID {
	p = t.Owner(p)
	if p.Stream == None {
		return t.Root()
	}
	return t.add(Stream{Parent: p.Stream, ForkAt: p.Tokens})
}

// Owner names the same tokens by the stream that owns the last of them; an empty prefix is owned by None.
func (t *Tree) Owner(p Prefix) Prefix {
	for p.Stream != None && p.Tokens <= t.streams[p.Stream].ForkAt {
		p.Stream = t.streams[p.Stream].Parent
	}
	if p.Tokens <= 0 {
		return Prefix{Stream: None}
	}
	return p
}

// Depth is the number of forks between s and its root.
func (t *Tree) Depth(s StreamID) int {
	d := 0
	for p := t.streams[s].Parent; p != None; p = t.streams[p].Parent {
		d++
	}
	return d
}

// Common is the number of leading tokens that a and b share.
func (t *Tree) Common(a, b Prefix) int32 {
	n := min(a.Tokens, b.Tokens)
	x, y := a.Stream, b.Stream
	dx, dy := t.Depth(x), t.Depth(y)
	for x != y {
		if dx >= dy {
			n = min(n, t.streams[x].ForkAt)
			x = t.streams[x].Parent
			dx--
		} else {
			n = min(n, t.streams[y].ForkAt)
			y = t.streams[y].Parent
			dy--
		}
		if x == None || y == None {
			return 0
		}
	}
	return n
}

// Segment is the part of a prompt that one stream owns, in blocks: Lo <= i < Hi are the block indices.
type Segment struct {
	Stream StreamID
	Lo, Hi int32
}

// Segments appends to dst, from the root down, which stream owns which full blocks of p at a block size of
// blockTokens tokens. Block i belongs to the deepest stream of the path whose fork offset lies in or before block i,
// that is floor(ForkAt/blockTokens) <= i. Streams that own no full block of p are left out, so the segments are
// contiguous from block 0 to floor(p.Tokens/blockTokens).
func (t *Tree) Segments(p Prefix, blockTokens int32, dst []Segment) []Segment {
	first := len(dst)
	hi := p.Tokens / blockTokens
	for s := p.Stream; s != None && hi > 0; s = t.streams[s].Parent {
		lo := t.streams[s].ForkAt / blockTokens
		if lo < hi {
			dst = append(dst, Segment{Stream: s, Lo: lo, Hi: hi})
			hi = lo
		}
	}
	for i, j := first, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// Extended returns a tree that holds the streams of t without copying them, and grows apart from it. Nothing may be released
// of either.
func (t *Tree) Extended() *Tree {
	n := len(t.streams)
	return &Tree{streams: t.streams[:n:n]}
}
