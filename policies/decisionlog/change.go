package decisionlog

import (
	"errors"
	"slices"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
)

// changeMark begins a header, also one after the first line: from there on the core has other knobs.
const changeMark = `{"decision_log":`

// Change says that from the next Step on the core has other knobs: those of gate and router, which are the policies that it
// had. A changed router is built by Router anew.
func (r *Recorder) Change(gate, router Policy) {
	r.header.Gate, r.header.Router = gate, router
	r.begun = false
}

// Changed says whether the line that was taken last changes knobs; Header has them.
func (d *Decoder) Changed() bool { return d.changed }

// change takes a header that changes knobs, and nothing else.
func (d *Decoder) change(c *cursor) {
	h, was := readHeader(c), &d.Header
	if c.err != nil {
		return
	}
	same := h
	same.Gate.Knobs, same.Router.Knobs, same.Scores, same.Signals = was.Gate.Knobs, was.Router.Knobs, was.Scores, was.Signals
	if string(same.Append(nil)) != string(was.Append(nil)) || was.Instances > 1 {
		c.err = errors.New("a header that changes more than knobs of gate and router")
		return
	}
	d.Header, d.changed = h, true
}

// replace gives m, a core that was built as was says, the knobs of h. What has other knobs is built anew.
func (h *Header) replace(m policies.Machine, was *Header) error {
	core, ok := m.(*policies.Controller)
	if !ok {
		return errors.New("several router instances cannot change their knobs")
	}
	env := policies.Env{Seed: policies.InstanceSeed(h.Seed, 0), Capability: h.Capability}
	var gate policies.Gate
	var router policies.Router
	if !slices.Equal(h.Gate.Knobs, was.Gate.Knobs) {
		d, err := catalog.FindGate(h.Gate.Name)
		if err == nil {
			err = h.Gate.complete(d)
		}
		if err != nil {
			return err
		}
		gate = d.NewGate(env, h.Gate.Params())
	}
	if !slices.Equal(h.Router.Knobs, was.Router.Knobs) {
		d, err := catalog.FindRouter(h.Router.Name)
		if err == nil {
			err = h.Router.complete(d)
		}
		if err != nil {
			return err
		}
		router = d.NewRouter(env, h.Router.Params())
	}
	core.Replace(gate, router)
	return nil
}
