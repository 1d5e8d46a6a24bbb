// Package decisionlog writes, reads and replays what the decision core was told and what it said.
//
// A log is JSON Lines in one canonical form, so that equal histories are equal bytes:
//
//	{"decision_log":1,"sluice":...}          the first line: which core, with everything it was built from
//	{"first_stream":0,"streams":[[-1,0],..]} content that later lines speak of: parent and fork offset of each new stream
//	{"step":1,"now_ns":0,"facts":[..],"commands":[..]}
//
// A log is complete in itself: the same core, given the facts of each step, gives the commands of each step, whichever
// driver wrote it. Exact knowledge that only a simulator has is logged with the step that asked for it. Decoding is
// strict and bounded: what it accepts it would write in the same bytes.
//
// Like the core, the package has no I/O, no clock and no goroutine; drivers hand it a writer or lines.
package decisionlog

import (
	"errors"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// Format is the version of the form of a log.
const Format = 1

// Limits on what is decoded.
const (
	MaxLineBytes = 64 << 20 // line feed included
	MaxReplicas  = 1 << 16
	maxIDs       = 1 << 26 // sessions, threads; the core keeps a little memory for each
	maxText      = 256
	maxKnobs     = 256
	maxInstances = 1024
)

// Header says which core wrote a log.
type Header struct {
	Sluice       string // version of the program
	Seed         uint64
	Gate, Router Policy
	Retention    Policy
	Scores       ScoreForm
	Signals      policies.Signals      // what the driver told of
	Instances    int                   // router instances that share nothing; 0 is 1
	Capability   policies.Capability   // what the policies were built with
	Capabilities []policies.Capability // one for each replica
}

// Policy is a gate or router with every knob, in the order of its declaration.
type Policy struct {
	Name  string
	Knobs []Setting
}

// Setting is the value of a knob. Numbers are FloatKnob, whether whole or not.
type Setting struct {
	Name  string
	Kind  policies.KnobKind
	Value policies.Value
}

// ScoreForm is how to read the scores of a router; no terms and no direction where it has none.
type ScoreForm struct {
	Scored bool
	Lowest bool // the smallest score is the best
	Terms  []string
}

// Resolved is declaration d with params p, defaults filled in.
func Resolved(d policies.Declaration, p policies.Params) Policy {
	all := d.Resolve(p)
	out := Policy{Name: d.Name}
	for _, k := range d.Knobs {
		kind := k.Kind
		if kind == policies.IntKnob {
			kind = policies.FloatKnob
		}
		out.Knobs = append(out.Knobs, Setting{k.Name, kind, all[k.Name]})
	}
	return out
}

// Params are the knobs as policies are built with.
func (p *Policy) Params() policies.Params {
	all := policies.Params{}
	for _, s := range p.Knobs {
		all[s.Name] = s.Value
	}
	return all
}

// complete says what is missing of p for declaration d; a value of the wrong type counts.
func (p *Policy) complete(d policies.Declaration) error {
	for _, k := range d.Knobs {
		found := false
		for _, s := range p.Knobs {
			kind := k.Kind
			if kind == policies.IntKnob {
				kind = policies.FloatKnob
			}
			found = found || s.Name == k.Name && s.Kind == kind
		}
		if !found {
			return errors.New(d.Name + ": knob " + k.Name + " is missing or of another type; the log was written by another version")
		}
	}
	return d.Check(p.Params())
}

// Build makes a core as the header says, over the tree that the log's streams are read into.
func (h *Header) Build(tree *prefix.Tree, known policies.Oracle) (policies.Machine, error) {
	all, _, err := h.build(tree, known)
	if err != nil {
		return nil, err
	}
	return h.machine(all), nil
}

// build makes the router instances, and says which signals they use.
func (h *Header) build(tree *prefix.Tree, known policies.Oracle) ([]*policies.Controller, policies.Signals, error) {
	gate, err := catalog.FindGate(h.Gate.Name)
	if err == nil {
		err = h.Gate.complete(gate)
	}
	if err != nil {
		return nil, 0, err
	}
	router, err := catalog.FindRouter(h.Router.Name)
	if err == nil {
		err = h.Router.complete(router)
	}
	if err != nil {
		return nil, 0, err
	}
	retention, err := catalog.FindRetention(h.Retention.Name)
	if err == nil {
		err = h.Retention.complete(retention)
	}
	if err != nil {
		return nil, 0, err
	}
	all := make([]*policies.Controller, max(h.Instances, 1))
	for k := range all {
		env := policies.Env{Seed: policies.InstanceSeed(h.Seed, k), Capability: h.Capability}
		all[k] = policies.NewController(policies.ControllerConfig{
			Tree: tree, Replicas: len(h.Capabilities), Capabilities: h.Capabilities,
			Gate: gate.NewGate(env, h.Gate.Params()), Router: router.NewRouter(env, h.Router.Params()), Oracle: known,
			Retention: retention.NewRetention(env, h.Retention.Params()),
		})
	}
	return all, gate.Signals(h.Gate.Params()) | router.Signals(h.Router.Params()) | retention.Signals(h.Retention.Params()), nil
}

func (h *Header) machine(all []*policies.Controller) policies.Machine {
	if len(all) == 1 {
		return all[0]
	}
	return policies.NewInstances(all, func(s policies.SessionID) int { return policies.InstanceOf(h.Seed, len(all), s) })
}

// check says what of the header a log cannot hold.
func (h *Header) check() error {
	texts := append([]string{h.Sluice, h.Gate.Name, h.Router.Name, h.Retention.Name}, h.Scores.Terms...)
	for _, p := range []*Policy{&h.Gate, &h.Router, &h.Retention} {
		if len(p.Knobs) > maxKnobs {
			return errors.New("decision log: " + p.Name + " has more than " + strconv.Itoa(maxKnobs) + " knobs")
		}
		for _, s := range p.Knobs {
			texts = append(texts, s.Name, s.Value.Text)
		}
	}
	for _, s := range texts {
		if len(s) > maxText || !plain(s) {
			return errors.New("decision log: " + strconv.Quote(s) + " is not at most " + strconv.Itoa(maxText) + " printable ASCII characters without \" and \\")
		}
	}
	if n := len(h.Capabilities); n == 0 || n > MaxReplicas {
		return errors.New("decision log: " + strconv.Itoa(n) + " replicas: expected 1 to " + strconv.Itoa(MaxReplicas))
	}
	if n := h.Instances; n < 0 || n > maxInstances {
		return errors.New("decision log: " + strconv.Itoa(n) + " router instances: expected 1 to " + strconv.Itoa(maxInstances))
	}
	if n := len(h.Scores.Terms); n > policies.MaxScoreTerms {
		return errors.New("decision log: " + strconv.Itoa(n) + " score terms: expected at most " + strconv.Itoa(policies.MaxScoreTerms))
	}
	return nil
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}
