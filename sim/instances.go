package sim

import "github.com/sluice-sim/sluice/policies"

// core is the policies as a run needs them: one Controller, or several router instances.
type core interface {
	policies.Machine
	Audit() policies.Audit
	Leases(visit func(*policies.Lease))
}

// newCore makes the router instances.
func (r *run) newCore(exactly policies.Oracle) core {
	c := r.cfg
	capabilities := make([]policies.Capability, c.Replicas)
	for i := range capabilities {
		capabilities[i] = c.Capability
	}
	all := make([]*policies.Controller, max(c.Routers, 1))
	for k := range all {
		env := policies.Env{Seed: policies.InstanceSeed(c.Seed, k), Capability: c.Capability}
		all[k] = policies.NewController(policies.ControllerConfig{
			Tree: r.tree, Replicas: c.Replicas, Capabilities: capabilities,
			Gate: c.Gate.NewGate(env, c.GateParams), Router: c.Router.NewRouter(env, c.RouterParams), Oracle: exactly,
			Retention: c.newRetention(env),
		})
	}
	if len(all) == 1 {
		return all[0]
	}
	return policies.NewInstances(all, func(s policies.SessionID) int { return policies.InstanceOf(c.Seed, len(all), s) })
}
