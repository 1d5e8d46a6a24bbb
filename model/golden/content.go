package golden

import "github.com/sluice-sim/sluice/prefix"

// eos is the token id of an end of sequence in golden files.
const eos = 2

// content turns sequences of token ids into a tree of streams, so that two sequences share exactly their common prefix.
type content struct {
	tree   prefix.Tree
	own    [][]int32 // tokens of each stream from its fork offset on
	forkAt []int32
	kids   map[branch]prefix.StreamID
}

// branch is a place where a stream begins: after offset tokens of parent, with token next.
type branch struct {
	parent prefix.StreamID
	offset int32
	next   int32
}

// tokens is the whole sequence of a request: prompt, and every output token that it can produce.
func (r *Request) tokens() (seq []int32, prompt int32) {
	for _, run := range r.Prompt {
		for k := range run[1] {
			seq = append(seq, run[0]+k)
		}
	}
	prompt = int32(len(seq))
	for k := range r.MaxTokens {
		if r.EOSAt != nil && k == *r.EOSAt {
			return append(seq, eos), prompt
		}
		seq = append(seq, r.Output+k)
	}
	return seq, prompt
}

// add returns the stream that holds seq, making one that forks at the longest known prefix where it is new.
func (c *content) add(seq []int32) prefix.StreamID {
	if c.kids == nil {
		c.kids = make(map[branch]prefix.StreamID)
	}
	at, pos := prefix.None, int32(0)
	for {
		next, ok := c.kids[branch{at, pos, seq[pos]}]
		if !ok {
			s := c.tree.Fork(prefix.Prefix{Stream: at, Tokens: pos})
			c.own = append(c.own, seq[pos:])
			c.forkAt = append(c.forkAt, pos)
			c.kids[branch{at, pos, seq[pos]}] = s
			return s
		}
		at = next
		for _, t := range c.own[at] {
			if t != seq[pos] {
				break
			}
			if pos++; pos == int32(len(seq)) {
				return at
			}
		}
	}
}
