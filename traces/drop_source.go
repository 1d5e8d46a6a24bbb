package traces

import (
	"errors"
	"fmt"
	"io"
)

// dropping is a Source without some of its turns.
type dropping struct {
	Source
	about    About
	drop     func(*Session) func(*Turn) bool
	fallback int64
}

// DropOver is DropOverContext for any source. It reads the source only if some turn is that long.
func DropOver(src Source, maxContext int32) (Source, error) {
	if tr, ok := src.(*Trace); ok {
		return DropOverContext(tr, maxContext), nil
	}
	if src.About().Longest <= int64(maxContext) {
		return src, nil
	}
	return newDropping(src, overContext, longerThan(maxContext))
}

// newDropping is dropTurns for any source. It reads the source up to three times.
func newDropping(src Source, reason string, drop func(*Session) func(*Turn) bool) (Source, error) {
	x := &dropping{Source: src, drop: drop}
	c, err := x.read()
	if err == nil && c.notes[noteMedianUsed] > 0 {
		var durations []int64
		err = Each(src, func(_ int32, s *Session) error {
			durations = knownDurations(durations, s)
			return nil
		})
		if err == nil {
			x.fallback = max(0, median(durations))
			c, err = x.read()
		}
	}
	if err != nil {
		return nil, err
	}
	c.report(&x.about.Report, reason)
	return x, nil
}

// read goes through all sessions and counts what is left of them.
func (x *dropping) read() (*cutter, error) {
	x.about = *x.Source.About()
	x.about.Sessions, x.about.Turns, x.about.Longest = 0, 0, 0
	c := x.cutter()
	return c, Each(x.Source, func(_ int32, s *Session) error {
		if kept, ok := c.cut(s); ok {
			x.about.count(kept)
		}
		return nil
	})
}

func (x *dropping) cutter() *cutter {
	return &cutter{drop: x.drop, fallback: x.fallback, notes: tally{}}
}

func (x *dropping) About() *About { return &x.about }

func (x *dropping) Open() (Cursor, error) {
	c, err := x.Source.Open()
	if err != nil {
		return nil, err
	}
	return &droppingCursor{Cursor: c, cutter: x.cutter()}, nil
}

type droppingCursor struct {
	Cursor
	cutter *cutter
}

func (c *droppingCursor) Next() (*Session, error) {
	for {
		s, err := c.Cursor.Next()
		if err != nil {
			return nil, err
		}
		if kept, ok := c.cutter.cut(s); ok {
			return kept, nil
		}
	}
}

// headed is the first sessions of a Source.
type headed struct {
	Source
	about About
}

// HeadOf is Head for any source. It reads the first n sessions once.
func HeadOf(src Source, n int) (Source, error) {
	if tr, ok := src.(*Trace); ok {
		return Head(tr, n), nil
	}
	a := src.About()
	n = min(max(n, 0), a.Sessions)
	x := &headed{Source: src, about: *a}
	x.about.Sessions, x.about.Turns, x.about.Longest = 0, 0, 0
	err := errEnough
	if n > 0 {
		err = Each(src, func(_ int32, s *Session) error {
			if x.about.count(s); x.about.Sessions == n {
				return errEnough
			}
			return nil
		})
	}
	if !errors.Is(err, errEnough) {
		return nil, err
	}
	x.about.Report.leftOut(n, a.Sessions-n, a.Turns-x.about.Turns)
	return x, nil
}

var errEnough = errors.New("enough sessions were read")

// leftOut takes sessions behind the first n, and their turns, out of what was read.
func (r *Report) leftOut(n, sessions int, turns int64) {
	r.Sessions -= int64(sessions)
	r.Turns -= turns
	if sessions > 0 {
		notes := tally{}
		notes.add(fmt.Sprintf("sessions after the first %d left out", n), int64(sessions))
		r.addNotes(notes)
	}
}

func (x *headed) About() *About { return &x.about }

func (x *headed) Open() (Cursor, error) {
	c, err := x.Source.Open()
	if err != nil {
		return nil, err
	}
	return &headedCursor{c, x.about.Sessions}, nil
}

type headedCursor struct {
	Cursor
	left int
}

func (c *headedCursor) Next() (*Session, error) {
	if c.left == 0 {
		return nil, io.EOF
	}
	c.left--
	return c.Cursor.Next()
}
