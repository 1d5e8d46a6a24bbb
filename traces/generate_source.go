package traces

import (
	"io"

	"github.com/sluice-sim/sluice/prefix"
)

// generated is a Source whose sessions are made when they are asked for.
type generated struct {
	preset Preset
	seed   uint64
	knobs  Params
	about  About
}

// GenerateSource is Generate for traces that need not fit in memory: it makes every session once, to number the streams
// and to count, and again whenever it is read. What it holds is the tree of content, 8 bytes for each stream.
func GenerateSource(preset string, seed uint64, params Params) (Source, error) {
	p, err := FindPreset(preset)
	if err != nil {
		return nil, err
	}
	knobs, err := resolve(p, params)
	if err != nil {
		return nil, err
	}
	x := &generated{preset: p, seed: seed, knobs: knobs}
	g, sessions, err := p.begin(seed, knobs, &growth{tree: &prefix.Tree{}})
	if err != nil {
		return nil, err
	}
	x.about = About{Name: p.Name, Tree: g.streams.tree, Models: []string{generatedModel}, Groups: g.groups}
	for i := range sessions.n {
		s := sessions.make(i)
		x.about.count(&s)
	}
	x.about.Report = g.report(p.Name, sessions.n, x.about.Turns)
	return x, nil
}

func (x *generated) About() *About { return &x.about }

func (x *generated) Open() (Cursor, error) {
	_, sessions, err := x.preset.begin(x.seed, x.knobs, &growth{tree: x.about.Tree, again: true})
	if err != nil {
		return nil, err
	}
	return &generatedCursor{plan: sessions}, nil
}

type generatedCursor struct {
	plan
	next int
}

func (c *generatedCursor) Next() (*Session, error) {
	if c.next == c.n {
		return nil, io.EOF
	}
	s := c.make(c.next)
	c.next++
	return &s, nil
}

func (c *generatedCursor) Close() error { return nil }
