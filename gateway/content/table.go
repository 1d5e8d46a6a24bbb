package content

import (
	"errors"
	"fmt"
	"sort"

	"github.com/sluice-sim/sluice/prefix"
)

// Options bounds a Table. A field that is 0 has its default.
type Options struct {
	// MaxBlocks is how many hashes of blocks are kept; 64 Mi, of 8 bytes each.
	MaxBlocks int64
	// IdleBlocks is how many of these may belong to streams that nobody refers to. They are what is known of content that
	// an engine may still hold although it sends no KV events; the least recently used go first. 1 Mi; negative for none.
	IdleBlocks int64
	// MaxPlaced is how many blocks of one replica are kept in mind; 16 Mi.
	MaxPlaced int
}

func (o Options) orDefault() Options {
	if o.MaxBlocks <= 0 {
		o.MaxBlocks = 64 << 20
	}
	if o.IdleBlocks == 0 {
		o.IdleBlocks = 1 << 20
	}
	o.IdleBlocks = max(0, o.IdleBlocks)
	if o.MaxPlaced <= 0 {
		o.MaxPlaced = 16 << 20
	}
	return o
}

// ErrFull is a prompt for which there is no room: live sessions take all of MaxBlocks.
var ErrFull = errors.New("content: no room for the prompt's hashes beside those of live sessions")

// Table turns chains into streams of a tree. A stream lives as long as anybody refers to it: a holder (an attempt or a
// session, by Place, Hold and Drop), a replica that holds blocks of it (by Apply), or a stream that forks from it. After
// that it is idle, can still be found, and is released when idle streams take too much room. Only then is its slot used
// again, with a new generation, and nothing that is counted here refers to it.
//
// Memory: 8 bytes a block, about 100 a stream, and about 40 for each block that a replica is known to hold.
type Table struct {
	tree    *prefix.Tree
	hasher  *Hasher
	opts    Options
	streams []stream
	heads   map[uint64]prefix.StreamID // by the hash of a stream's first own block
	blocks  int64
	idle    int64 // of these, in streams that nobody refers to
	oldest  prefix.StreamID
	newest  prefix.StreamID
	engines []engine
	chain   []uint64
	spots   []spot
	stats   Stats
}

// Stats counts. What is not a gauge grows for ever.
type Stats struct {
	Streams        int64 // gauge: live
	Held           int64 // gauge: references by Place and Hold
	Blocks         int64 // gauge: hashes kept
	IdleBlocks     int64 // gauge: of these, in idle streams
	ResidentBlocks int64 // gauge: blocks that replicas are known to hold
	Released       int64 // streams
	Full           int64 // prompts for which there was no room
	Unplaced       int64 // blocks of KV events that belong to no known prefix
	Ignored        int64 // KV events of other tiers or layers
}

type stream struct {
	hashes     []uint64 // of its own blocks; empty for a prompt without a full block
	first      int32    // index of the first own block
	refs       int32
	resident   int64 // copies of its blocks on all replicas
	child      prefix.StreamID
	prev, next prefix.StreamID // siblings
	older      prefix.StreamID // of the list
	newer      prefix.StreamID
	own        bool  // somebody refers to it
	kids       int32 // streams that fork from it and are live
	idle       bool  // its blocks are counted as idle
	listed     bool  // on the list of those that can be forgotten
	sealed     bool  // what came after its last block was forgotten, so nothing can be appended
}

func (s *stream) end() int32 { return s.first + int32(len(s.hashes)) }

// New returns an empty table that grows tree. Nobody else may add to tree.
func New(tree *prefix.Tree, h *Hasher, o Options) *Table {
	return &Table{tree: tree, hasher: h, opts: o.orDefault(), heads: make(map[uint64]prefix.StreamID), oldest: prefix.None, newest: prefix.None}
}

// Place says which prefix a prompt is, and makes streams for what is new of it. The prefix's stream is held until Drop.
// The error is ErrFull, or says that c is no prompt.
func (t *Table) Place(c Chain) (prefix.Prefix, error) {
	if c.Tokens < 1 || c.Tokens > MaxPromptTokens || int64(len(c.Blocks)) > int64(c.Tokens/t.hasher.block) {
		return prefix.Prefix{}, fmt.Errorf("content: a prompt of %d tokens with %d blocks of %d", c.Tokens, len(c.Blocks), t.hasher.block)
	}
	if !t.room(int64(len(c.Blocks))) {
		t.stats.Full++
		return prefix.Prefix{}, ErrFull
	}
	var s prefix.StreamID
	if len(c.Blocks) == 0 {
		s = t.add(prefix.None, 0, nil)
	} else {
		s = t.locate(prefix.None, 0, c.Blocks, nil)
	}
	t.Hold(s)
	t.reclaim()
	return prefix.Prefix{Stream: s, Tokens: c.Tokens}, nil
}

// Hold adds a reference to s, which is live.
func (t *Table) Hold(s prefix.StreamID) {
	t.streams[s].refs++
	t.stats.Held++
	t.settle(s)
}

// Drop takes a reference back.
func (t *Table) Drop(s prefix.StreamID) {
	if t.streams[s].refs--; t.streams[s].refs < 0 {
		panic("content: a stream was dropped more often than held")
	}
	t.stats.Held--
	t.settle(s)
	if st := &t.streams[s]; st.refs == 0 && len(st.hashes) == 0 {
		t.release(s) // nobody can find it again
	}
	t.reclaim()
}

// Path appends where p lies, from the root down.
func (t *Table) Path(p prefix.Prefix, dst Path) Path {
	first := len(dst)
	for s, upto := p.Stream, p.Tokens; s != prefix.None; {
		dst = append(dst, Step{s, t.tree.Generation(s), upto})
		st := t.tree.Stream(s)
		s, upto = st.Parent, st.ForkAt
	}
	for i, j := first, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// Stats returns the counts as of now.
func (t *Table) Stats() Stats {
	s := t.stats
	s.Streams, s.Blocks, s.IdleBlocks = int64(t.tree.Live()), t.blocks, t.idle
	return s
}

// locate follows blocks, of which the first has index i, from stream s, which owns block i-1 (None if i is 0), and makes
// what is new. It returns the stream that owns the last of blocks; visit, if not nil, is told which stream owns which.
func (t *Table) locate(s prefix.StreamID, i int32, blocks []uint64, visit func(s prefix.StreamID, lo, hi int32)) prefix.StreamID {
	for len(blocks) > 0 {
		if s != prefix.None {
			if n := t.match(s, i, blocks); n > 0 {
				if visit != nil {
					visit(s, i, i+n)
				}
				i, blocks = i+n, blocks[n:]
				continue
			}
		}
		if next, ok := t.heads[blocks[0]]; ok && t.streams[next].first == i {
			s = next
			continue
		}
		switch {
		case s != prefix.None && t.streams[s].end() == i && !t.streams[s].sealed:
			t.append(s, blocks)
		default:
			s = t.add(s, i, blocks)
		}
	}
	return s
}

// match is how many of blocks, the first with index i, are the stream's own. Chained hashes that are equal once were equal
// always, so the first that differs can be searched for.
func (t *Table) match(s prefix.StreamID, i int32, blocks []uint64) int32 {
	st := &t.streams[s]
	own := st.hashes[min(i-st.first, int32(len(st.hashes))):]
	n := min(len(own), len(blocks))
	if n == 0 || own[0] != blocks[0] {
		return 0
	}
	if own[n-1] == blocks[n-1] {
		return int32(n)
	}
	return int32(sort.Search(n, func(k int) bool { return own[k] != blocks[k] }))
}

// append makes blocks the next ones of s.
func (t *Table) append(s prefix.StreamID, blocks []uint64) {
	st := &t.streams[s]
	st.hashes = append(st.hashes, blocks...)
	t.count(s, len(blocks))
}

// add makes a stream that forks from s before block i, or a root if s is None, and begins with blocks.
func (t *Table) add(s prefix.StreamID, i int32, blocks []uint64) prefix.StreamID {
	var n prefix.StreamID
	if s == prefix.None {
		n = t.tree.Root()
	} else {
		n = t.tree.Fork(prefix.Prefix{Stream: s, Tokens: i * t.hasher.block})
	}
	for int(n) >= len(t.streams) {
		t.streams = append(t.streams, stream{})
	}
	t.streams[n] = stream{hashes: append([]uint64(nil), blocks...), first: i, child: prefix.None, prev: prefix.None, next: prefix.None,
		older: prefix.None, newer: prefix.None}
	t.blocks += int64(len(blocks))
	if len(blocks) > 0 {
		t.heads[blocks[0]] = n
	}
	if s != prefix.None {
		p, st := &t.streams[s], &t.streams[n]
		st.next = p.child
		if p.child != prefix.None {
			t.streams[p.child].prev = n
		}
		p.child = n
		t.settle(s)
	}
	t.settle(n)
	return n
}
