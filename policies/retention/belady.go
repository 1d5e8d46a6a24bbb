package retention

import "github.com/sluice-sim/sluice/policies"

// Reads nothing; the driver knows the next use of every thread. Keeps nothing.
// Source: Belady's rule, greedily; spec: policies C2, papers 10.

// Belady declares the clairvoyant yardstick: every live thread's content is kept, and where an engine needs room the driver
// gives up the content whose next use is farthest away. It is no bound: in a closed loop a better hit rate moves the arrivals that
// it ranks by, and it looks at the next use only.
func Belady() policies.Declaration {
	return policies.Declaration{
		Name:    "belady",
		Doc:     "A yardstick, not a policy: keeps the content of every live thread and, where an engine needs room, gives up the thread whose next turn arrives last, by exact knowledge that only a simulator has. It is greedy, so that a policy can beat it by a little in a closed loop.",
		Source:  "Belady's rule; spec: papers 10",
		Needs:   policies.NeedsOracle,
		Missing: "It cannot be had outside a simulator: it needs the next use of everything, and an engine that can pin. Its pins do not end by themselves: a gate that waits for usage to fall can wait for ever.",
		NewRetention: func(policies.Env, policies.Params) policies.Retention {
			return belady{}
		},
	}
}

type belady struct{}

func (belady) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (belady) Keep(policies.Time, *policies.View, *policies.Fact) policies.Time {
	return policies.Never
}
