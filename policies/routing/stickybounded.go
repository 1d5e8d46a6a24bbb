package routing

import "github.com/sluice-sim/sluice/policies"

// Reads the ledger's in-flight counts (F) and what Dynamo's cost reads. Keeps a map thread -> replica of the most recently
// routed threads. A thread that has to leave moves for good. Ties as for Dynamo's cost.
// Source: ai-dynamo/dynamo, lib/kv-router, sticky-session plugin, bounded; spec: policies 3.2.

// StickyBounded declares the router that keeps a thread on its replica while that has few turns in flight.
func StickyBounded() policies.Declaration {
	return policies.Declaration{
		Name:      "sticky-bounded",
		Doc:       "Keeps a thread on its replica while the turns in flight there are within a factor of the mean; otherwise, and at first, the thread moves to the smallest cost of the router dynamo.",
		Source:    "ai-dynamo/dynamo, lib/kv-router, sticky session plugin; spec: policies 3.2",
		Needs:     policies.NeedsKVEvents | policies.NeedsProgress,
		NeedsWith: withoutEvents(policies.NeedsKVEvents|policies.NeedsProgress, dynamoEvents),
		Missing:   dynamoMissing,
		Omits:     dynamoOmits,
		Knobs: append([]policies.Knob{
			{Name: "bound", Kind: policies.FloatKnob, Default: policies.Value{Number: 1.25}, Min: 0, Max: 1e9,
				Doc: "multiple of the mean turns in flight above which a thread leaves; a huge one never lets it"},
			{Name: "capacity_threads", Kind: policies.IntKnob, Default: policies.Value{Number: 10000}, Min: 1, Max: 1e8,
				Unit: "threads", Doc: "threads remembered; the least recently routed is forgotten first"},
		}, dynamoKnobs()...),
		NewRouter: func(e policies.Env, p policies.Params) policies.Router {
			return &stickyBounded{bound: p["bound"].Number, homes: newHomes(int(p["capacity_threads"].Number)), cost: newDynamoCost(e, p)}
		},
	}
}

type stickyBounded struct {
	bound float64
	homes homes
	cost  dynamoCost
}

func (s *stickyBounded) Observe(_ policies.Time, _ *policies.View, f *policies.Fact) {
	s.cost.resident.observe(f)
}

func (s *stickyBounded) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to, why := s.choose(now, v, t)
	if to != policies.NoReplica {
		s.homes.put(t.Thread, to)
		s.cost.sent(now, v, t, to)
	}
	return to, why
}

func (s *stickyBounded) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	to, _ := s.choose(now, v, t)
	return to
}

func (s *stickyBounded) choose(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	home, known := s.homes.of(t)
	switch {
	case !known:
		return s.cost.pick(now, v, t), policies.FirstPlacement
	case !v.IsUp(home):
		return s.cost.pick(now, v, t), policies.HomeLost
	}
	sum := int64(0)
	for _, r := range v.Up() {
		sum += int64(v.InFlight(r))
	}
	if overloadFits(int64(v.InFlight(home)), sum, len(v.Up()), s.bound) {
		return home, policies.Affinity
	}
	return s.cost.pick(now, v, t), policies.LoadBound
}
