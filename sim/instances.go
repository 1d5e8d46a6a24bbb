package sim

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// core is the policies as a run needs them: one Controller, or several router instances.
type core interface {
	policies.Machine
	Audit() policies.Audit
	Leases(visit func(*policies.Lease))
}

// InstanceOf is which of n router instances serves a session, drawn from the seed.
func InstanceOf(seed uint64, n int, s policies.SessionID) int {
	return int(exact.UniformInt(exact.Hash2(seed, purposeInstance, uint64(s)), int64(n)))
}

// newCore makes the router instances. The first one has the seed of the run, the others have seeds of their own.
func (r *run) newCore(exactly policies.Oracle) core {
	c := r.cfg
	capabilities := make([]policies.Capability, c.Replicas)
	for i := range capabilities {
		capabilities[i] = c.Capability
	}
	all := make([]*policies.Controller, max(c.Routers, 1))
	for k := range all {
		env := policies.Env{Seed: c.Seed, Capability: c.Capability}
		if k > 0 {
			env.Seed = exact.Hash2(c.Seed, purposeInstance, ^uint64(k))
		}
		all[k] = policies.NewController(policies.ControllerConfig{
			Tree: r.tree, Replicas: c.Replicas, Capabilities: capabilities,
			Gate: c.Gate.NewGate(env, c.GateParams), Router: c.Router.NewRouter(env, c.RouterParams), Oracle: exactly,
		})
	}
	if len(all) == 1 {
		return all[0]
	}
	return policies.NewInstances(all, func(s policies.SessionID) int { return InstanceOf(c.Seed, len(all), s) })
}
