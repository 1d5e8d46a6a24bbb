package traces

import "github.com/sluice-sim/sluice/prefix"

// Ceiling returns for every session and turn the most prompt tokens that an infinite cache could hold in any order of
// the sessions: the leading full blocks of blockTokens tokens, at most floor((prompt-1)/blockTokens), whose content is
// also computed by an earlier turn of the same thread or by any turn of another thread. A turn computes its prompt and
// all but the last token of its output. A turn that does not wait for the completion of the turn before it in its thread
// may overtake it, so it counts as the start of another thread. blockTokens must be positive.
func Ceiling(tr *Trace, blockTokens int32) [][]int32 {
	c := ceiling{tree: tr.Tree, block: blockTokens,
		others: make([]twoExtents, tr.Tree.Len()), own: make([]int32, tr.Tree.Len())}
	strands := make([][][]int32, len(tr.Sessions))
	strand := int32(0)
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		strands[i] = orderedStrands(s)
		for _, turns := range strands[i] {
			for _, t := range turns {
				c.cover(&s.Turns[t], strand)
			}
			strand++
		}
	}
	out := make([][]int32, len(tr.Sessions))
	strand = 0
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		out[i] = make([]int32, len(s.Turns))
		for _, turns := range strands[i] {
			c.strand(s, turns, strand, out[i])
			strand++
		}
	}
	return out
}

// orderedStrands cuts the threads of a session into runs of turns that wait for each other.
func orderedStrands(s *Session) [][]int32 {
	var strands [][]int32
	at := make([]int32, s.Threads) // by thread: its last strand + 1
	for i := range s.Turns {
		thread := s.Turns[i].Thread
		if n := at[thread]; n > 0 {
			turns := strands[n-1]
			if waitsFor(s, int32(i), turns[len(turns)-1]) {
				strands[n-1] = append(turns, int32(i))
				continue
			}
		}
		strands = append(strands, []int32{int32(i)})
		at[thread] = int32(len(strands))
	}
	return strands
}

// waitsFor says whether turn j cannot arrive before turn i has completed.
func waitsFor(s *Session, j, i int32) bool {
	seen := map[int32]bool{}
	var visit func(j int32) bool
	visit = func(j int32) bool {
		deps := s.Deps[s.Turns[j].DepLo:s.Turns[j].DepHi]
		for _, d := range deps {
			if d.Turn == i && d.On == OnCompletion {
				return true
			}
		}
		for _, d := range deps {
			if d.Turn > i && !seen[d.Turn] {
				seen[d.Turn] = true
				if visit(d.Turn) {
					return true
				}
			}
		}
		return false
	}
	return visit(j)
}

// twoExtents says how far a stream's blocks are computed by the strand that gets furthest and by the best of the others.
// All content of a stream starts at the block of its fork, so one end says it all. Extents are in blocks; strands are
// numbered over all sessions from 0, and a zero extent has no strand.
type twoExtents struct {
	first, second int32
	strand        int32 // of first
}

type ceiling struct {
	tree     *prefix.Tree
	block    int32
	others   []twoExtents // by stream
	own      []int32      // by stream: extent of the strand at hand, so far
	touched  []prefix.StreamID
	segments []prefix.Segment
}

// content is what a turn computes, in blocks by stream.
func (c *ceiling) content(t *Turn) []prefix.Segment {
	p := t.Prompt
	p.Tokens += t.OutputTokens - 1
	c.segments = c.tree.Segments(p, c.block, c.segments[:0])
	return c.segments
}

func (c *ceiling) cover(t *Turn, strand int32) {
	for _, s := range c.content(t) {
		e := &c.others[s.Stream]
		switch {
		case e.first > 0 && e.strand == strand:
			e.first = max(e.first, s.Hi)
		case s.Hi > e.first:
			e.first, e.second, e.strand = s.Hi, e.first, strand
		default:
			e.second = max(e.second, s.Hi)
		}
	}
}

// strand finds the hits of the turns of one strand, in their order.
func (c *ceiling) strand(s *Session, turns []int32, strand int32, hits []int32) {
	for _, i := range turns {
		hits[i] = c.hit(&s.Turns[i], strand)
		for _, seg := range c.content(&s.Turns[i]) {
			if c.own[seg.Stream] == 0 {
				c.touched = append(c.touched, seg.Stream)
			}
			c.own[seg.Stream] = max(c.own[seg.Stream], seg.Hi)
		}
	}
	for _, st := range c.touched {
		c.own[st] = 0
	}
	c.touched = c.touched[:0]
}

// hit is the tokens of the longest run of leading blocks that the strand's earlier turns or other strands compute.
func (c *ceiling) hit(t *Turn, strand int32) int32 {
	p := t.Prompt
	p.Tokens-- // at least one prompt token is always computed
	end := int32(0)
	c.segments = c.tree.Segments(p, c.block, c.segments[:0])
	for _, s := range c.segments {
		e := c.others[s.Stream]
		known := e.first
		if e.strand == strand {
			known = e.second
		}
		known = max(known, c.own[s.Stream])
		if known < s.Hi {
			return max(end, known) * c.block
		}
		end = s.Hi
	}
	return end * c.block
}
