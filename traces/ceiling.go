package traces

import "github.com/sluice-sim/sluice/prefix"

// Ceiling returns for every session and turn the most prompt tokens that an infinite cache could hold in any order of
// the sessions: the leading full blocks of blockTokens tokens, at most floor((prompt-1)/blockTokens), whose content is
// also computed by an earlier turn of the same thread or by any turn of another thread. A turn computes its prompt and
// all but the last token of its output. blockTokens must be positive.
func Ceiling(tr *Trace, blockTokens int32) [][]int32 {
	c := ceiling{tree: tr.Tree, block: blockTokens,
		others: make([]twoExtents, tr.Tree.Len()), own: make([]int32, tr.Tree.Len())}
	thread := int32(0)
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		for t := range s.Turns {
			c.cover(&s.Turns[t], thread+s.Turns[t].Thread)
		}
		thread += s.Threads
	}
	out := make([][]int32, len(tr.Sessions))
	thread = 0
	for i := range tr.Sessions {
		out[i] = c.session(&tr.Sessions[i], thread)
		thread += tr.Sessions[i].Threads
	}
	return out
}

// twoExtents says how far a stream's blocks are computed by the thread that gets furthest and by the best of the others.
// All content of a stream starts at the block of its fork, so one end says it all. Extents are in blocks; threads are
// numbered over all sessions from 0, and a zero extent has no thread.
type twoExtents struct {
	first, second int32
	thread        int32 // of first
}

type ceiling struct {
	tree     *prefix.Tree
	block    int32
	others   []twoExtents // by stream
	own      []int32      // by stream: extent of the thread at hand, so far
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

func (c *ceiling) cover(t *Turn, thread int32) {
	for _, s := range c.content(t) {
		e := &c.others[s.Stream]
		switch {
		case e.first > 0 && e.thread == thread:
			e.first = max(e.first, s.Hi)
		case s.Hi > e.first:
			e.first, e.second, e.thread = s.Hi, e.first, thread
		default:
			e.second = max(e.second, s.Hi)
		}
	}
}

// session walks the threads of a session one after the other, each in recorded order.
func (c *ceiling) session(s *Session, firstThread int32) []int32 {
	hits := make([]int32, len(s.Turns))
	byThread := make([][]int32, s.Threads)
	for i := range s.Turns {
		byThread[s.Turns[i].Thread] = append(byThread[s.Turns[i].Thread], int32(i))
	}
	for thread, turns := range byThread {
		for _, i := range turns {
			hits[i] = c.hit(&s.Turns[i], firstThread+int32(thread))
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
	return hits
}

// hit is the tokens of the longest run of leading blocks that the thread's earlier turns or other threads compute.
func (c *ceiling) hit(t *Turn, thread int32) int32 {
	p := t.Prompt
	p.Tokens-- // at least one prompt token is always computed
	end := int32(0)
	c.segments = c.tree.Segments(p, c.block, c.segments[:0])
	for _, s := range c.segments {
		e := c.others[s.Stream]
		known := e.first
		if e.thread == thread {
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
