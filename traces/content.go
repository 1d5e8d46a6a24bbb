package traces

import "github.com/sluice-sim/sluice/prefix"

// content turns prompts with chained prefix hashes into streams: it walks the ids, finds the longest known path, and
// extends or forks. One content covers one namespace of ids and one model, for KV is not shared between models.
// (spec: decided, "Trace to content"; design, "Content identity")
type content struct {
	tree  *prefix.Tree
	block int32 // tokens of a hashed block
	reuse OutputReuse
	at    []prefix.StreamID // by node: a stream that holds the path up to the node; prefix.None when it is unknown
}

// tail is what the next turn of a thread may extend.
type tail struct {
	prompt    prefix.Prefix
	out       int32
	full      int32 // full blocks of the prompt
	last      int32 // node of the last of them
	continued bool  // a later prompt runs on in the same stream
	branched  bool  // a later prompt holds one more full block
}

func newContent(tree *prefix.Tree, block int32, reuse OutputReuse, nodes int) *content {
	c := &content{tree: tree, block: block, reuse: reuse, at: make([]prefix.StreamID, nodes)}
	for i := range c.at {
		c.at[i] = prefix.None
	}
	return c
}

// known is the number of leading nodes of path that an earlier prompt had.
func (c *content) known(path []int32) int32 {
	// A known node makes all nodes before it known, so that a binary search would do as well; prompts mostly extend what
	// is known, so the end is tried first.
	k := len(path)
	for k > 0 && c.at[path[k-1]] == prefix.None {
		k--
	}
	return int32(k)
}

// add places a prompt of in tokens, whose full blocks are path, and makes room for its output. prev is the turn that it
// may extend, nil for none; root makes the stream of a prompt that shares nothing known.
//
// The prompt extends prev when the longest known path is exactly the full blocks of prev, at least one. It then also
// shares what has no id: the part block of prev's prompt, and prev's output as far as it fits. A longer known path is
// better evidence and wins.
func (c *content) add(path []int32, in, out int32, prev *tail, root func() prefix.StreamID) *tail {
	k := c.known(path)
	t := &tail{out: out, full: int32(len(path)), last: -1}
	if len(path) > 0 {
		t.last = path[len(path)-1]
	}
	stream := prefix.None
	switch {
	case prev != nil && k > 0 && path[k-1] == prev.last: // a node has one place, so k is the number of prev's full blocks
		stream = c.extend(prev, t, in)
		if t.full > prev.full {
			prev.branched = true
		}
	case k > 0:
		stream = c.tree.Fork(prefix.Prefix{Stream: c.at[path[k-1]], Tokens: k * c.block})
	default:
		stream = root()
	}
	for _, n := range path[k:] {
		c.at[n] = stream
	}
	t.prompt = prefix.Prefix{Stream: stream, Tokens: in}
	return t
}

// extend returns the stream of a prompt that extends prev. It is prev's own stream when the prompt holds all of prev's
// output and nothing else runs on there; otherwise a fork at the end of what is shared, so that the prompt's own output
// meets no other.
func (c *content) extend(prev, t *tail, in int32) prefix.StreamID {
	end := prev.prompt.Tokens
	if c.reuse == ReuseFull {
		end += prev.out
	}
	if prev.branched && t.full > prev.full && end >= (prev.full+1)*c.block {
		// Another prompt extends prev too and its next block has another id, so that block cannot be prev's output.
		end = prev.full * c.block
	}
	if c.reuse == ReuseFull && in >= end && end > prev.prompt.Tokens && !prev.continued {
		prev.continued = true
		return prev.prompt.Stream
	}
	return c.tree.Fork(prefix.Prefix{Stream: prev.prompt.Stream, Tokens: min(end, in)})
}
