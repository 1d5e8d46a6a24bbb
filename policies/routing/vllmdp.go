package routing

import "github.com/sluice-sim/sluice/policies"

// Reads running and waiting of the samples. Keeps a copy of them per replica, to which every dispatch adds; the next
// sample overwrites it; and the replicas in order of the score. Ties go to the first in an order that starts at the client's share of the replicas.
// Source: vllm, vllm/v1/engine/core_client.py; spec: policies 3.1.

// VLLMDP declares the load balancer between the data-parallel ranks of vLLM.
func VLLMDP() policies.Declaration {
	return policies.Declaration{
		Name:    "vllm-dp",
		Doc:     "Takes the replica with the smallest 4 x waiting + running; each dispatch counts as waiting until the next sample overwrites it.",
		Source:  "vllm, vllm/v1/engine/core_client.py; spec: policies 3.1",
		Needs:   policies.NeedsSamples,
		Missing: "A replica without a sample scores its turns in flight.",
		Knobs: []policies.Knob{
			{Name: "client_count", Kind: policies.IntKnob, Default: policies.Value{Number: 1}, Min: 1, Max: 1024,
				Doc: "front ends that balance independently; a dispatch counts this many times"},
			{Name: "client_index", Kind: policies.IntKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1023,
				Doc: "which of them this one is; it starts scanning at its share of the replicas"},
		},
		NewRouter: func(_ policies.Env, p policies.Params) policies.Router {
			d := &vllmDP{clients: int(p["client_count"].Number), client: int(p["client_index"].Number)}
			d.rank = policies.NewRanking(false, d.place)
			return d
		},
	}
}

type vllmDP struct {
	clients, client int
	counts          []rankCount
	rank            *policies.Ranking
}

type rankCount struct {
	known            bool
	waiting, running int32
}

func (d *vllmDP) of(r policies.ReplicaID) *rankCount {
	for int(r) >= len(d.counts) {
		d.counts = append(d.counts, rankCount{})
	}
	return &d.counts[r]
}

func (d *vllmDP) Observe(_ policies.Time, v *policies.View, f *policies.Fact) {
	switch f.Kind {
	case policies.MetricsSampled:
		s := &f.Sample
		if s.Has&policies.HasRunning != 0 && s.Has&policies.HasWaiting != 0 {
			*d.of(f.Replica) = rankCount{true, s.Waiting, s.Running}
			d.rank.Refresh(v, f.Replica)
		}
	case policies.ReplicaDown:
		*d.of(f.Replica) = rankCount{}
		d.rank.Refresh(v, f.Replica)
	}
}

func (d *vllmDP) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to := d.Peek(now, v, t)
	if to != policies.NoReplica {
		d.of(to).waiting += int32(d.clients)
		d.rank.Refresh(v, to)
	}
	return to, policies.LeastLoaded
}

func (d *vllmDP) Peek(_ policies.Time, v *policies.View, _ *policies.Turn) policies.ReplicaID {
	up := v.Up()
	if len(up) == 0 {
		return policies.NoReplica
	}
	return d.rank.First(v, up[len(up)*d.client/d.clients%len(up)])
}

// place is the replica's score.
func (d *vllmDP) place(v *policies.View, r policies.ReplicaID) policies.Place {
	if c := d.of(r); c.known {
		return policies.Place{Key: rankScore(c.waiting, c.running)}
	}
	return policies.Place{Key: int64(v.InFlight(r))}
}

// rankScore is 4W + R.
func rankScore(waiting, running int32) int64 { return 4*int64(waiting) + int64(running) }
