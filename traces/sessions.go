package traces

import (
	"errors"
	"io"

	"github.com/sluice-sim/sluice/prefix"
)

// Source is a set of sessions over one tree of content that can be read any number of times, always the same sessions in
// the same order. A Trace is one in memory; others make or read a session when it is asked for, so that what they hold
// does not grow with the number of turns.
type Source interface {
	About() *About
	// Open starts to read at the first session.
	Open() (Cursor, error)
}

// Cursor is one reading of a Source.
type Cursor interface {
	// Next returns the next session, or io.EOF behind the last. Nobody changes the session.
	Next() (*Session, error)
	Close() error
}

// About is what a source says of itself before its sessions are read.
type About struct {
	Name     string
	Tree     *prefix.Tree // of all streams of all sessions
	Models   []string     // indexed by Turn.Model
	Groups   []string     // indexed by Session.Group
	Sessions int
	Turns    int64
	Longest  int64 // tokens of the longest turn, prompt and output together
	Report   Report
}

// About implements Source. It looks at every turn.
func (t *Trace) About() *About {
	a := &About{Name: t.Name, Tree: t.Tree, Models: t.Models, Groups: t.Groups, Report: t.Report}
	for i := range t.Sessions {
		a.count(&t.Sessions[i])
	}
	return a
}

// count adds a session.
func (a *About) count(s *Session) {
	a.Sessions++
	a.Turns += int64(len(s.Turns))
	for i := range s.Turns {
		a.Longest = max(a.Longest, s.Turns[i].tokens())
	}
}

func (t *Turn) tokens() int64 { return int64(t.Prompt.Tokens) + int64(t.OutputTokens) }

// Open implements Source.
func (t *Trace) Open() (Cursor, error) { return &heldCursor{t.Sessions}, nil }

type heldCursor struct{ left []Session }

func (c *heldCursor) Next() (*Session, error) {
	if len(c.left) == 0 {
		return nil, io.EOF
	}
	s := &c.left[0]
	c.left = c.left[1:]
	return s, nil
}

func (c *heldCursor) Close() error { return nil }

// Each reads a source to its end and calls do with every session and its number from 0.
func Each(src Source, do func(number int32, s *Session) error) (err error) {
	c, err := src.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for n := int32(0); ; n++ {
		s, err := c.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(n, s); err != nil {
			return err
		}
	}
}

// Hold reads all sessions of a source into memory.
func Hold(src Source) (*Trace, error) {
	if t, ok := src.(*Trace); ok {
		return t, nil
	}
	a := src.About()
	t := &Trace{Name: a.Name, Tree: a.Tree, Models: a.Models, Groups: a.Groups, Report: a.Report, Sessions: make([]Session, 0, a.Sessions)}
	err := Each(src, func(_ int32, s *Session) error {
		t.Sessions = append(t.Sessions, *s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}
