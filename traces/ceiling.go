package traces

import "github.com/sluice-sim/sluice/prefix"

// SessionCeiling works out, session by session, the most prompt tokens that an infinite cache could hold in any order of
// the sessions: the leading full blocks of a prompt, at most floor((prompt-1)/block), whose content is also computed by an
// earlier turn of the same thread or by any turn of another thread. A turn computes its prompt and all but the last token of
// its output. A turn that does not wait for the completion of the turn before it in its thread may overtake it, so it counts
// as the start of another thread. It reads the session itself and what a survey kept of the others; its scratch memory is
// that of the largest session.
type SessionCeiling struct {
	*Survey
	extents extentTable
	touched []*reached
	path    []prefix.Segment
	parts   []part
	begins  []int32 // by turn: its first part
	strands strands
}

// part is the blocks, up to hi, that one stream has of what a turn computes.
type part struct {
	of *reached
	hi int32
}

// NewCeiling returns the ceiling of the surveyed source, at the survey's block size.
func NewCeiling(v *Survey) *SessionCeiling { return &SessionCeiling{Survey: v} }

// Of appends the ceiling of every turn of session number to dst. Sessions may come in any order.
func (c *SessionCeiling) Of(number int32, s *Session, dst []int32) []int32 {
	first := len(dst)
	dst = append(dst, make([]int32, len(s.Turns))...)
	hits := dst[first:]
	c.extents.clear(len(s.Turns))
	c.parts, c.begins = c.parts[:0], append(c.begins[:0], make([]int32, len(s.Turns))...)
	all := c.strands.of(s)
	for k, turns := range all {
		for _, t := range turns {
			c.begins[t] = int32(len(c.parts))
			c.path = computed(c.tree, &s.Turns[t], c.block, c.path)
			for _, g := range c.path {
				e := c.reached(g.Stream)
				c.parts = append(c.parts, part{e, g.Hi})
				if !e.surveyed {
					e.cover(strand{number, int32(k)}, g.Hi)
				}
			}
			c.parts = append(c.parts, part{}) // the end of the turn's
		}
	}
	for k, turns := range all {
		c.strand(s, turns, strand{number, int32(k)}, hits)
	}
	return dst
}

// reached is the entry of a stream.
func (c *SessionCeiling) reached(s prefix.StreamID) *reached {
	e, fresh := c.extents.at(s)
	if fresh {
		e.twoExtents, e.surveyed = c.shared[s]
	}
	return e
}

// strand finds the hits of the turns of one strand, in their order.
func (c *SessionCeiling) strand(s *Session, turns []int32, at strand, hits []int32) {
	for _, i := range turns {
		parts := c.parts[c.begins[i]:]
		limit := (s.Turns[i].Prompt.Tokens - 1) / c.block // at least one prompt token is always computed
		hits[i] = hit(parts, limit, at) * c.block
		for k := 0; parts[k].of != nil; k++ {
			e := parts[k].of
			if e.own == 0 {
				c.touched = append(c.touched, e)
			}
			e.own = max(e.own, parts[k].hi)
		}
	}
	for _, e := range c.touched {
		e.own = 0
	}
	c.touched = c.touched[:0]
}

// hit is the longest run of a turn's leading blocks, at most limit, that the strand's earlier turns or other strands compute.
func hit(parts []part, limit int32, at strand) int32 {
	end := int32(0)
	for k := 0; end < limit && parts[k].of != nil; k++ {
		e, hi := parts[k].of, min(parts[k].hi, limit)
		known := e.first
		if e.strand == at {
			known = e.second
		}
		known = max(known, e.own)
		if known < hi {
			return max(end, known)
		}
		end = hi
	}
	return end
}

// strand is a run of turns of one thread that wait for each other: the k-th of a session.
type strand struct{ session, k int32 }

// twoExtents says how far a stream's blocks are computed by the strand that gets furthest and by the best of the others.
// All content of a stream starts at the block of its fork, so one end says it all. Extents are in blocks; a zero extent
// has no strand.
type twoExtents struct {
	first, second int32
	strand        strand // of first
}

func (e *twoExtents) cover(by strand, hi int32) {
	switch {
	case e.first > 0 && e.strand == by:
		e.first = max(e.first, hi)
	case hi > e.first:
		e.first, e.second, e.strand = hi, e.first, by
	default:
		e.second = max(e.second, hi)
	}
}

// reached is the extents of a stream while one session is looked at.
type reached struct {
	twoExtents
	surveyed bool  // the survey has them, of all sessions
	own      int32 // extent of the strand at hand, so far
	stream   prefix.StreamID
	next     *reached // with the same place in the table
}

// extentTable holds the entries of the streams that a session has blocks of. They stay where they are.
type extentTable struct {
	heads  []*reached // by the low bits of the stream; the length is a power of two
	blocks [][]reached
	used   int
}

const extentBlock = 64

// clear empties the table and makes room for about n streams.
func (x *extentTable) clear(n int) {
	if n > len(x.heads) {
		size := 64
		for size < n {
			size *= 2
		}
		x.heads = make([]*reached, size)
	} else {
		for i := range x.used {
			e := &x.blocks[i/extentBlock][i%extentBlock]
			x.heads[int(e.stream)&(len(x.heads)-1)] = nil
		}
	}
	x.used = 0
}

// at is the entry of s; fresh says that it was not there.
func (x *extentTable) at(s prefix.StreamID) (e *reached, fresh bool) {
	head := &x.heads[int(s)&(len(x.heads)-1)]
	for e = *head; e != nil; e = e.next {
		if e.stream == s {
			return e, false
		}
	}
	if x.used == len(x.blocks)*extentBlock {
		x.blocks = append(x.blocks, make([]reached, extentBlock))
	}
	e = &x.blocks[x.used/extentBlock][x.used%extentBlock]
	x.used++
	*e = reached{stream: s, next: *head}
	*head = e
	return e, true
}

// strands cuts sessions into strands; the scratch is kept from one to the next.
type strands struct {
	all  [][]int32
	last []int32 // by thread: its last strand + 1
}

// of is the turns of every strand of a session, valid until the next call.
func (x *strands) of(s *Session) [][]int32 {
	x.last = append(x.last[:0], make([]int32, s.Threads)...)
	n := 0
	for i := range s.Turns {
		thread := s.Turns[i].Thread
		if k := x.last[thread]; k > 0 {
			turns := x.all[k-1]
			if waitsFor(s, int32(i), turns[len(turns)-1]) {
				x.all[k-1] = append(turns, int32(i))
				continue
			}
		}
		if n == len(x.all) {
			x.all = append(x.all, nil)
		}
		x.all[n] = append(x.all[n][:0], int32(i))
		n++
		x.last[thread] = int32(n)
	}
	return x.all[:n]
}

// waitsFor says whether turn j cannot arrive before turn i has completed.
func waitsFor(s *Session, j, i int32) bool {
	for _, d := range s.Deps[s.Turns[j].DepLo:s.Turns[j].DepHi] {
		if d.Turn == i && d.On == OnCompletion {
			return true
		}
	}
	return waitsBehind(s, j, i, map[int32]bool{})
}

// waitsBehind says whether a turn that j waits for cannot arrive before turn i has completed.
func waitsBehind(s *Session, j, i int32, seen map[int32]bool) bool {
	deps := s.Deps[s.Turns[j].DepLo:s.Turns[j].DepHi]
	for _, d := range deps {
		if d.Turn == i && d.On == OnCompletion {
			return true
		}
	}
	for _, d := range deps {
		if d.Turn > i && !seen[d.Turn] {
			seen[d.Turn] = true
			if waitsBehind(s, d.Turn, i, seen) {
				return true
			}
		}
	}
	return false
}
