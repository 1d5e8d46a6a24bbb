package gateway

import (
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/scenarios"
)

// CoreConfig says what the decision core is made of. The header of a decision log has all of it.
type CoreConfig struct {
	Version      string // of the program
	Seed         uint64 // of the draws that policies make
	Policy       scenarios.Policy
	Capabilities []policies.Capability // one for each replica; unknown figures are 0
}

// signals is what the policies need to be told of.
func (c *CoreConfig) signals() (policies.Signals, error) {
	gate, router, err := c.declarations()
	if err != nil {
		return 0, err
	}
	return gate.Signals(c.Policy.Gate.Params) | router.Signals(c.Policy.Router.Params), nil
}

func (c *CoreConfig) declarations() (gate, router policies.Declaration, err error) {
	if gate, err = catalog.FindGate(c.Policy.Gate.Name); err != nil {
		return gate, router, err
	}
	router, err = catalog.FindRouter(c.Policy.Router.Name)
	return gate, router, err
}

// build makes the core over tree, and the recorder that writes its log to w.
func (c *CoreConfig) build(tree *prefix.Tree, w decisionlog.Writer) (*policies.Controller, *decisionlog.Recorder, error) {
	gate, router, err := c.declarations()
	if err != nil {
		return nil, nil, err
	}
	retention, err := catalog.FindRetention("none")
	if err != nil {
		return nil, nil, err
	}
	signals, err := c.signals()
	if err != nil {
		return nil, nil, err
	}
	h := decisionlog.Header{
		Sluice: c.Version, Seed: c.Seed, Gate: decisionlog.Resolved(gate, c.Policy.Gate.Params), Router: decisionlog.Resolved(router, c.Policy.Router.Params),
		Retention: decisionlog.Resolved(retention, nil), Signals: signals, Instances: 1,
		Capability: c.Capabilities[0], Capabilities: c.Capabilities,
	}
	recorder := decisionlog.NewRecorder(w, h)
	env := policies.Env{Seed: policies.InstanceSeed(c.Seed, 0), Capability: h.Capability}
	return policies.NewController(policies.ControllerConfig{
		Tree: tree, Replicas: len(c.Capabilities), Capabilities: c.Capabilities,
		Gate:   gate.NewGate(env, gate.Resolve(c.Policy.Gate.Params)),
		Router: recorder.Router(router).NewRouter(env, router.Resolve(c.Policy.Router.Params)),
	}), recorder, nil
}
