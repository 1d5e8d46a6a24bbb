package traces

import (
	"iter"
	"slices"
)

// capping is a Source whose tool gaps are no longer than a cap.
type capping struct {
	Source
	about   About
	limitNS int64
}

// capIdle cuts tool gaps to at most limitNS, as the readers of other formats do. It reads the source once.
func capIdle(src Source, limitNS int64) (Source, error) {
	x := &capping{Source: src, about: *src.About(), limitNS: limitNS}
	notes := tally{}
	err := Each(src, func(_ int32, s *Session) error {
		for range x.long(s) {
			notes.add(noteCapped, 1)
		}
		return nil
	})
	x.about.Report.addNotes(notes)
	return x, err
}

// long is the dependencies whose delay is a tool gap over the cap. What a turn waits after the dispatch of a turn of its own
// thread, which it does not wait to see completed, is no gap: the two overlap.
func (x *capping) long(s *Session) iter.Seq[int] {
	return func(yield func(int) bool) {
		for t := range s.Turns {
			turn := &s.Turns[t]
			deps := s.Deps[turn.DepLo:turn.DepHi]
			for i, d := range deps {
				if d.DelayNS <= x.limitNS {
					continue
				}
				if d.On == OnDispatch && s.Turns[d.Turn].Thread == turn.Thread &&
					!slices.ContainsFunc(deps, func(e Dep) bool { return e.Turn == d.Turn && e.On == OnCompletion }) {
					continue
				}
				if !yield(int(turn.DepLo) + i) {
					return
				}
			}
		}
	}
}

func (x *capping) About() *About { return &x.about }

func (x *capping) Open() (Cursor, error) {
	c, err := x.Source.Open()
	if err != nil {
		return nil, err
	}
	return &cappingCursor{c, x}, nil
}

type cappingCursor struct {
	Cursor
	of *capping
}

func (c *cappingCursor) Next() (*Session, error) {
	s, err := c.Cursor.Next()
	if err != nil {
		return nil, err
	}
	out := s
	for i := range c.of.long(s) {
		if out == s {
			changed := *s
			changed.Deps = slices.Clone(s.Deps)
			out = &changed
		}
		out.Deps[i].DelayNS = c.of.limitNS
	}
	return out, nil
}
