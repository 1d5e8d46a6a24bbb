package traces

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-sim/sluice/prefix"
)

// Preset is one kind of generated workload. Its knobs are the only declaration: the scenario schema, the command
// line's help and the documentation read them here.
type Preset struct {
	Name   string
	Doc    string // what sessions of this preset do, in one or two sentences
	Source string // where the laws and their parameters come from
	Knobs  []Knob

	prepare func(*generation) (plan, error)
}

// Presets returns all presets in the order of the documentation. The result is the caller's.
func Presets() []Preset { return slices.Clone(presets) }

// FindPreset returns the preset of that name; the error for an unknown one lists the names and the nearest.
func FindPreset(name string) (Preset, error) {
	names := make([]string, len(presets))
	for i, p := range presets {
		if p.Name == name {
			return p, nil
		}
		names[i] = p.Name
	}
	return Preset{}, unknownName("preset of the trace generator", name, names)
}

// maxGeneratedTurns bounds the memory of one generated trace (a turn and its dependency take about 100 bytes).
const maxGeneratedTurns = 20_000_000

// Generate makes a trace from a preset. Knobs that are absent from params take their defaults. Every draw is a hash of
// (seed, purpose, session, turn), so that no session's draws depend on another session, and the trace is the same on
// all machines. Sessions 0 to n-1 of a trace with more sessions are those of a trace with n (bench and steady
// included; in swe-rollout sessions are ordered by prompt, and the number of samples must agree). Arrivals are the
// scenario's business, so Session.StartNS is Unknown. Start times and durations of turns are estimates, see service.
//
// Errors: an unknown preset or knob (with the nearest valid name), a value of the wrong kind or out of range, knobs that
// contradict each other, and a trace of more than 20 million turns.
func Generate(preset string, seed uint64, params Params) (*Trace, error) {
	p, err := FindPreset(preset)
	if err != nil {
		return nil, err
	}
	knobs, err := resolve(p, params)
	if err != nil {
		return nil, err
	}
	g, sessions, err := p.begin(seed, knobs, &growth{tree: &prefix.Tree{}})
	if err != nil {
		return nil, err
	}
	tr := &Trace{Name: p.Name, Tree: g.streams.tree, Models: []string{generatedModel}, Groups: g.groups, Sessions: make([]Session, sessions.n)}
	for i := range tr.Sessions {
		tr.Sessions[i] = sessions.make(i)
	}
	tr.Report = g.report(p.Name, sessions.n, int64(tr.Turns()))
	return tr, nil
}

const generatedModel = "generated"

// begin makes what the sessions of one trace have in common.
func (p *Preset) begin(seed uint64, knobs Params, s *growth) (*generation, plan, error) {
	g := &generation{seed: seed, knobs: knobs, notes: map[string]int64{}, streams: s}
	sessions, err := p.prepare(g)
	if err != nil {
		return nil, plan{}, fmt.Errorf("preset %s: %w", p.Name, err)
	}
	return g, sessions, nil
}

// plan is what a preset will make.
type plan struct {
	n    int
	make func(i int) Session // session i; called for every one in order
}

// generation is one trace at work.
type generation struct {
	seed    uint64
	knobs   Params
	notes   map[string]int64
	streams *growth
	groups  []string
}

// growth numbers the streams of a trace as they come into being. The first time it grows the tree; sessions that are
// made again get the numbers that they had.
type growth struct {
	tree  *prefix.Tree
	again bool
	next  prefix.StreamID // when made again
}

func (s *growth) fork(p prefix.Prefix) prefix.StreamID {
	if !s.again {
		return s.tree.Fork(p)
	}
	s.next++
	return s.next - 1
}

func (s *growth) root() prefix.StreamID { return s.fork(prefix.Prefix{Stream: prefix.None}) }

// knob returns a declared knob's value. A name that is not declared is a fault of the preset's code.
func (g *generation) knob(name string) Value {
	v, ok := g.knobs[name]
	if !ok {
		panic("traces: preset reads knob " + name + ", which it does not declare")
	}
	return v
}

func (g *generation) float(name string) float64 { return g.knob(name).Number }

func (g *generation) int(name string) int32 { return int32(g.knob(name).Number) }

// law is the log-normal with the median and the sigma of two knobs.
func (g *generation) law(median, sigma string) lognormal {
	return lognormal{g.float(median), g.float(sigma)}
}

func (g *generation) dice(session int) dice { return dice{g.seed, uint64(session)} }

// checkTurns refuses a trace that would be too large before memory is spent on it.
func (g *generation) checkTurns(turns float64, knobs string) error {
	if turns > maxGeneratedTurns {
		return fmt.Errorf("about %.0f turns exceed the limit of %d: lower %s", turns, maxGeneratedTurns, knobs)
	}
	return nil
}

func (g *generation) report(preset string, sessions int, turns int64) Report {
	r := Report{Format: "generated:" + preset, Sessions: int64(sessions), Turns: turns}
	for note, n := range g.notes {
		r.Notes = append(r.Notes, NoteCount{note, n})
	}
	slices.SortFunc(r.Notes, func(a, b NoteCount) int { return cmp.Compare(a.Note, b.Note) })
	return r
}
