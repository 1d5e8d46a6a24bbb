package traces

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-sim/sluice/prefix"
)

// Problem is one breach of what a Trace promises.
type Problem struct {
	Session int // index, -1 when the whole trace is meant
	Turn    int // index in the session, -1 when the whole session is meant
	What    string
}

func (p Problem) String() string {
	switch {
	case p.Session < 0:
		return p.What
	case p.Turn < 0:
		return fmt.Sprintf("session %d: %s", p.Session, p.What)
	}
	return fmt.Sprintf("session %d, turn %d: %s", p.Session, p.Turn, p.What)
}

// maxProblems bounds the answer of Validate: a broken trace is mostly broken everywhere in the same way.
const maxProblems = 100

// Validate checks all that the records promise: indices in range, tokens positive, times not negative, dependencies to
// earlier turns, numbers counting from 1 in each thread, and outputs that do not write over each other in a stream. It
// returns at most 100 problems.
func Validate(tr *Trace) []Problem {
	v := validator{tr: tr}
	if tr.Tree == nil {
		return []Problem{{-1, -1, "no content tree"}}
	}
	for i := range tr.Sessions {
		v.session(i, &tr.Sessions[i])
	}
	v.outputs()
	return v.problems
}

type validator struct {
	tr       *Trace
	problems []Problem
	written  []output
}

// output is the place of a turn's output in its stream.
type output struct {
	stream        prefix.StreamID
	lo, hi        int64
	session, turn int
}

func (v *validator) problem(session, turn int, format string, args ...any) {
	if len(v.problems) < maxProblems {
		v.problems = append(v.problems, Problem{session, turn, fmt.Sprintf(format, args...)})
	}
}

func (v *validator) session(i int, s *Session) {
	if s.StartNS < Unknown {
		v.problem(i, -1, "start %d ns is negative", s.StartNS)
	}
	if s.Group < -1 || int(s.Group) >= len(v.tr.Groups) {
		v.problem(i, -1, "group %d of %d", s.Group, len(v.tr.Groups))
	}
	if len(s.Turns) == 0 {
		v.problem(i, -1, "no turns")
	}
	if s.Threads < 1 {
		v.problem(i, -1, "%d threads", s.Threads)
		return
	}
	numbers := make(map[int32]int32)
	for t := range s.Turns {
		turn := &s.Turns[t]
		if turn.Thread < 0 || turn.Thread >= s.Threads {
			v.problem(i, t, "thread %d of %d", turn.Thread, s.Threads)
			continue
		}
		if numbers[turn.Thread]++; turn.Number != numbers[turn.Thread] {
			v.problem(i, t, "number %d is not the %d. turn of its thread", turn.Number, numbers[turn.Thread])
		}
		if t > 0 && turn.StartNS < s.Turns[t-1].StartNS {
			v.problem(i, t, "starts before the turn above it")
		}
		v.turn(i, t, turn)
		v.deps(i, t, s, turn)
	}
}

func (v *validator) turn(i, t int, turn *Turn) {
	if turn.Model < 0 || int(turn.Model) >= len(v.tr.Models) {
		v.problem(i, t, "model %d of %d", turn.Model, len(v.tr.Models))
	}
	if turn.StartNS < 0 || turn.DurationNS < Unknown {
		v.problem(i, t, "negative time (start %d ns, duration %d ns)", turn.StartNS, turn.DurationNS)
	}
	if turn.OutputTokens < 1 {
		v.problem(i, t, "%d output tokens", turn.OutputTokens)
	}
	if turn.Prompt.Tokens < 1 {
		v.problem(i, t, "%d prompt tokens", turn.Prompt.Tokens)
	}
	st := turn.Prompt.Stream
	if st < 0 || int(st) >= v.tr.Tree.Len() {
		v.problem(i, t, "stream %d of %d", st, v.tr.Tree.Len())
		return
	}
	if fork := v.tr.Tree.Stream(st).ForkAt; turn.Prompt.Tokens < fork {
		v.problem(i, t, "prompt of %d tokens ends before the fork of its stream at %d", turn.Prompt.Tokens, fork)
	}
	lo := int64(turn.Prompt.Tokens)
	if hi := lo + int64(turn.OutputTokens); hi > 1<<31-1 {
		v.problem(i, t, "prompt and output of %d tokens, more than 2^31-1", hi)
	}
	v.written = append(v.written, output{st, lo, lo + int64(turn.OutputTokens), i, t})
}

func (v *validator) deps(i, t int, s *Session, turn *Turn) {
	if turn.DepLo < 0 || turn.DepLo > turn.DepHi || int(turn.DepHi) > len(s.Deps) {
		v.problem(i, t, "dependencies %d to %d of %d", turn.DepLo, turn.DepHi, len(s.Deps))
		return
	}
	for _, d := range s.Deps[turn.DepLo:turn.DepHi] {
		if d.Turn < 0 || int(d.Turn) >= t {
			v.problem(i, t, "waits for turn %d, which is not an earlier one", d.Turn)
		}
		if d.DelayNS < 0 {
			v.problem(i, t, "negative delay %d ns", d.DelayNS)
		}
		if d.On != OnCompletion && d.On != OnDispatch {
			v.problem(i, t, "unknown trigger %d", d.On)
		}
	}
}

// outputs finds outputs that overlap in their stream: the second one would be taken for the first.
func (v *validator) outputs() {
	slices.SortFunc(v.written, func(a, b output) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.lo, b.lo), cmp.Compare(a.session, b.session), cmp.Compare(a.turn, b.turn))
	})
	for i := 1; i < len(v.written); i++ {
		a, b := v.written[i-1], v.written[i]
		if a.stream == b.stream && b.lo < a.hi {
			v.problem(b.session, b.turn, "its output at token %d of stream %d overlaps that of session %d, turn %d; fork at the end of the prompt",
				b.lo, b.stream, a.session, a.turn)
		}
	}
}
