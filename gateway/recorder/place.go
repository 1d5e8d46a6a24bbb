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
		f.learn(t.leaf, out[i])
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
	if same >= end && t.prompt >= end {
		return prefix.Prefix{Stream: p.Stream, Tokens: t.prompt}
	}
	return prefix.Prefix{Stream: f.tree.Fork(prefix.Prefix{Stream: p.Stream, Tokens: min(same, end, t.prompt)}), Tokens: t.prompt}
}

// first is the prompt of a turn that shares nothing with its thread. It forks from the longest known prefix.
func (f *file) first(t *turn) prefix.Prefix {
	from := prefix.Prefix{Stream: prefix.None}
	path := t.path
	for i := len(path) - 1; i >= 0; i-- {
		if h, ok := f.known[nameOf(path[i])]; ok {
			n := min(h.upto, path[i].Upto)
			if n /= f.block; n > 0 {
				from = prefix.Prefix{Stream: h.stream, Tokens: n * f.block}
				break
			}
		}
	}
	p := prefix.Prefix{Stream: f.tree.Fork(from), Tokens: t.prompt}
	for _, step := range path {
		f.learn(step, prefix.Prefix{Stream: p.Stream, Tokens: step.Upto})
	}
	return p
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
