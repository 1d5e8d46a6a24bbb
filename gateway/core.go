package gateway

import (
	"fmt"
	"maps"

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

// reknob gives the core the knobs of p, which names the policies that it has; what has other knobs is built anew.
func (c *CoreConfig) reknob(core *policies.Controller, recorder *decisionlog.Recorder, p scenarios.Policy) error {
	if p.Gate.Name != c.Policy.Gate.Name || p.Router.Name != c.Policy.Router.Name || p.Retention.Name != c.Policy.Retention.Name {
		return fmt.Errorf("the gate %s and the router %s run; other policies need a new start", c.Policy.Gate.Name, c.Policy.Router.Name)
	}
	gate, router, err := c.declarations()
	if err != nil {
		return err
	}
	recorder.Change(decisionlog.Resolved(gate, p.Gate.Params), decisionlog.Resolved(router, p.Router.Params))
	env := policies.Env{Seed: policies.InstanceSeed(c.Seed, 0), Capability: c.Capabilities[0]}
	var newGate policies.Gate
	var newRouter policies.Router
	if !maps.Equal(gate.Resolve(p.Gate.Params), gate.Resolve(c.Policy.Gate.Params)) {
		newGate = gate.NewGate(env, gate.Resolve(p.Gate.Params))
	}
	if !maps.Equal(router.Resolve(p.Router.Params), router.Resolve(c.Policy.Router.Params)) {
		newRouter = recorder.Router(router).NewRouter(env, router.Resolve(p.Router.Params))
	}
	core.Replace(newGate, newRouter)
	c.Policy = p
	return nil
}
