package traces

import (
	"cmp"
	"slices"

	"github.com/sluice-sim/sluice/prefix"
)

// service is the estimated service time of a turn, from which generated start times and durations follow: 0.5 s plus
// 60 output tokens a second (spec: papers 9.3).
func service(output int32) int64 { return 500_000_000 + int64(output)*1_000_000_000/60 }

// conversation is the state of one thread while it is generated: where its last turn left the content.
type conversation struct {
	thread int32
	number int32 // of the last turn, 0 before the first
	last   int32 // index of the last turn in the session
	prompt prefix.Prefix
	output int32
}

// end is the length of everything said so far: the last prompt and its output.
func (c *conversation) end() int32 { return c.prompt.Tokens + c.output }

// key names the coming turn for draws.
func (c *conversation) key() uint64 { return uint64(c.thread)<<32 | uint64(c.number+1) }

// sessionBuilder collects the turns of one session.
type sessionBuilder struct {
	streams *growth
	turns   []Turn
	deps    []Dep
	threads int32
}

// open starts a thread whose content begins as a copy of p. The thread gets a stream of its own, so that nobody else
// writes where its outputs go.
func (b *sessionBuilder) open(p prefix.Prefix) conversation {
	c := conversation{thread: b.threads, last: -1, prompt: prefix.Prefix{Stream: b.streams.fork(p), Tokens: p.Tokens}}
	b.threads++
	return c
}

// rewind makes the thread continue from p instead of its own end: what came after p is forgotten.
func (b *sessionBuilder) rewind(c *conversation, p prefix.Prefix) {
	c.prompt = prefix.Prefix{Stream: b.streams.fork(p), Tokens: p.Tokens}
	c.output = 0
}

// say adds the thread's next turn: a prompt of that many tokens on the thread's stream (at least c.end(), or the prompt
// would overlap what was written there) and its output. Besides deps, a turn that is not the thread's first waits
// for the one before plus gapNS.
func (b *sessionBuilder) say(c *conversation, tokens, output int32, gapNS int64, deps ...Dep) {
	lo := int32(len(b.deps))
	if c.last >= 0 {
		b.deps = append(b.deps, Dep{Turn: c.last, On: OnCompletion, DelayNS: gapNS})
	}
	b.deps = append(b.deps, deps...)
	start := int64(0)
	for _, d := range b.deps[lo:] {
		start = max(start, b.completion(d.Turn)+d.DelayNS)
	}
	c.prompt.Tokens = tokens
	c.output = output
	c.number++
	c.last = int32(len(b.turns))
	b.turns = append(b.turns, Turn{
		Thread: c.thread, Number: c.number,
		Prompt: c.prompt, OutputTokens: output,
		StartNS: start, DurationNS: service(output),
		DepLo: lo, DepHi: int32(len(b.deps)),
	})
}

func (b *sessionBuilder) completion(turn int32) int64 {
	return b.turns[turn].StartNS + b.turns[turn].DurationNS
}

// finish returns the session with its turns in order of estimated start.
func (b *sessionBuilder) finish(name string, group int32) Session {
	s := Session{Name: name, StartNS: Unknown, Group: group, Threads: b.threads, Turns: b.turns, Deps: b.deps}
	if b.threads == 1 {
		return s
	}
	order := make([]int32, len(b.turns))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(x, y int32) int {
		p, q := &b.turns[x], &b.turns[y]
		return cmp.Or(cmp.Compare(p.StartNS, q.StartNS), cmp.Compare(p.Thread, q.Thread), cmp.Compare(x, y))
	})
	place := make([]int32, len(order))
	s.Turns = make([]Turn, len(order))
	s.Deps = make([]Dep, 0, len(b.deps))
	for i, from := range order {
		place[from] = int32(i)
		t := b.turns[from]
		lo := int32(len(s.Deps))
		for _, d := range b.deps[t.DepLo:t.DepHi] {
			d.Turn = place[d.Turn]
			s.Deps = append(s.Deps, d)
		}
		t.DepLo, t.DepHi = lo, int32(len(s.Deps))
		s.Turns[i] = t
	}
	return s
}
