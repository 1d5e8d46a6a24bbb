package traces

import (
	"context"
	"fmt"

	"github.com/sluice-sim/sluice/prefix"
)

// Survey is what a run has to know of all sessions of a source before it begins, at one block size: one reading of the
// source, of which it keeps what sessions have in common. While it reads it takes 20 bytes for each stream.
type Survey struct {
	block  int32
	tree   *prefix.Tree
	shared map[prefix.StreamID]twoExtents // by stream that more than one session has

	Sessions int
	Turns    int64
	// Faults that a run refuses, each with the first turn or session that has it; 0 and "" when there is none.
	Empty, OverLimit, NoStart                int64
	FirstEmpty, FirstOverLimit, FirstNoStart string
	InOrder                                  bool // recorded starts never go back
}

// NewSurvey reads a source. limit is the most tokens of a turn, prompt and output together, that count as no fault.
// blockTokens must be positive. It stops with the context's error when ctx is cancelled.
func NewSurvey(ctx context.Context, src Source, blockTokens int32, limit int64) (*Survey, error) {
	a := src.About()
	v := &Survey{block: blockTokens, tree: a.Tree, InOrder: true}
	x := surveyor{Survey: v, extents: make([]twoExtents, a.Tree.Len()), owner: make([]int32, a.Tree.Len())}
	for i := range x.owner {
		x.owner[i] = nobody
	}
	last := Unknown
	err := Each(src, func(number int32, s *Session) error {
		if v.Sessions++; v.Sessions%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		v.Turns += int64(len(s.Turns))
		v.InOrder = v.InOrder && s.StartNS >= last
		last = s.StartNS
		if s.StartNS == Unknown {
			markFault(&v.NoStart, &v.FirstNoStart, s, nil)
		}
		for i := range s.Turns {
			t := &s.Turns[i]
			if t.Prompt.Tokens < 1 || t.OutputTokens < 1 {
				markFault(&v.Empty, &v.FirstEmpty, s, t)
			}
			if t.tokens() > limit {
				markFault(&v.OverLimit, &v.FirstOverLimit, s, t)
			}
		}
		x.session(number, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.shared = make(map[prefix.StreamID]twoExtents, x.common)
	for s, o := range x.owner {
		if o == everybody {
			v.shared[prefix.StreamID(s)] = x.extents[s]
		}
	}
	return v, nil
}

// markFault counts a fault and says in words where it is, the first time.
func markFault(n *int64, first *string, s *Session, t *Turn) {
	if *n++; *n > 1 {
		return
	}
	if *first = "session " + s.Name; t != nil {
		*first = fmt.Sprintf("session %s turn %d of thread %d has %d prompt and %d output tokens", s.Name, t.Number, t.Thread, t.Prompt.Tokens, t.OutputTokens)
	}
}

// Shared says whether more than one session has the stream. What is not shared concerns nobody once
// its session is over.
func (v *Survey) Shared(s prefix.StreamID) bool {
	_, ok := v.shared[s]
	return ok
}

const (
	nobody    int32 = -1
	everybody int32 = -2
)

// surveyor is a survey at work.
type surveyor struct {
	*Survey
	extents []twoExtents // by stream
	owner   []int32      // by stream: the session that has it, nobody, or everybody for more than one
	common  int          // streams of everybody
	path    []prefix.Segment
	strands strands
}

func (x *surveyor) session(number int32, s *Session) {
	for i := range s.Turns {
		x.touch(number, s.Turns[i].Prompt.Stream)
	}
	for k, turns := range x.strands.of(s) {
		for _, t := range turns {
			x.path = computed(x.tree, &s.Turns[t], x.block, x.path)
			for _, g := range x.path {
				x.extents[g.Stream].cover(strand{number, int32(k)}, g.Hi)
			}
		}
	}
}

// touch notes that a session has a stream and all that it forks from.
func (x *surveyor) touch(number int32, s prefix.StreamID) {
	for ; s != prefix.None; s = x.tree.Stream(s).Parent {
		switch o := &x.owner[s]; *o {
		case nobody:
			*o = number
		case number, everybody: // then so is what it forks from
			return
		default:
			*o = everybody
			x.common++
		}
	}
}

// computed is what a turn computes, in blocks by stream: its prompt and all but the last token of its output.
func computed(tree *prefix.Tree, t *Turn, block int32, path []prefix.Segment) []prefix.Segment {
	p := t.Prompt
	p.Tokens += t.OutputTokens - 1
	return tree.Segments(p, block, path[:0])
}
