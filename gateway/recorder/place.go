package recorder

import (
	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/prefix"
)

// place gives the prompts of a session their streams in the file. A thread has streams of its own, so that outputs never
// meet; what it shares with others it forks from theirs.
func (f *file) place(turns []turn) []prefix.Prefix {
	out := make([]prefix.Prefix, len(turns))
	last := map[int32]int{} // by thread
	for i := range turns {
		t := &turns[i]
		if j, ok := last[t.thread]; ok && t.shared > 0 {
			out[i] = f.next(out[j], turns[j].output, t)
		} else {
			out[i] = f.first(t)
		}
		last[t.thread] = i
		for _, step := range t.path {
			f.learn(step, prefix.Prefix{Stream: out[i].Stream, Tokens: step.Upto})
		}
	}
	return out
}

// next is the prompt of a turn that shares something with the one before it in its thread, at p. It runs on in the same
// stream when it holds all of that turn's output: when so much is shared, or when what is shared ends within the
// prompt's last block, which has no hash, so that nothing speaks against it.
func (f *file) next(p prefix.Prefix, output int32, t *turn) prefix.Prefix {
	end := p.Tokens + output
	same := t.shared
	if t.shared >= p.Tokens/f.block*f.block && t.shared < p.Tokens {
		same = end
	}
	same = min(same, end, t.prompt)
	if from := f.longest(t.path); from.Tokens > same { // another prompt is better evidence than an output
		return prefix.Prefix{Stream: f.tree.Fork(from), Tokens: t.prompt}
	}
	if same == end {
		return prefix.Prefix{Stream: p.Stream, Tokens: t.prompt}
	}
	return prefix.Prefix{Stream: f.tree.Fork(prefix.Prefix{Stream: p.Stream, Tokens: same}), Tokens: t.prompt}
}

// longest is the longest known prefix of a path, in whole blocks.
func (f *file) longest(path content.Path) prefix.Prefix {
	for i := len(path) - 1; i >= 0; i-- {
		if h, ok := f.known[nameOf(path[i])]; ok {
			if n := min(h.upto, path[i].Upto) / f.block * f.block; n > 0 {
				return prefix.Prefix{Stream: h.stream, Tokens: n}
			}
		}
	}
	return prefix.Prefix{Stream: prefix.None}
}

// first is the prompt of a turn that shares nothing with its thread. It forks from the longest known prefix.
func (f *file) first(t *turn) prefix.Prefix {
	return prefix.Prefix{Stream: f.tree.Fork(f.longest(t.path)), Tokens: t.prompt}
}

// learn notes that p has the content of the gateway's stream named by step, if that is more than was known.
func (f *file) learn(step content.Step, p prefix.Prefix) {
	name := nameOf(step)
	if h, ok := f.known[name]; !ok || h.upto < p.Tokens {
		f.known[name] = held{p.Stream, p.Tokens}
	}
}

func nameOf(s content.Step) content.Step {
	return content.Step{Stream: s.Stream, Generation: s.Generation}
}
