package routing

import "github.com/sluice-sim/sluice/policies"

// Reads running and waiting of the samples. Keeps a copy of them per replica, to which every dispatch adds; the next
// sample overwrites it. Ties go to the first in an order that starts at the client's share of the replicas.
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
			return &vllmDP{clients: int(p["client_count"].Number), client: int(p["client_index"].Number)}
		},
	}
}

type vllmDP struct {
	clients, client int
	counts          []rankCount
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

func (d *vllmDP) Observe(_ policies.Time, _ *policies.View, f *policies.Fact) {
	switch f.Kind {
	case policies.MetricsSampled:
		s := &f.Sample
		if s.Has&policies.HasRunning != 0 && s.Has&policies.HasWaiting != 0 {
			*d.of(f.Replica) = rankCount{true, s.Waiting, s.Running}
		}
	case policies.ReplicaDown:
		*d.of(f.Replica) = rankCount{}
	}
}

func (d *vllmDP) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to := d.Peek(now, v, t)
	if to != policies.NoReplica {
		d.of(to).waiting += int32(d.clients)
	}
	return to, policies.LeastLoaded
}

func (d *vllmDP) Peek(_ policies.Time, v *policies.View, _ *policies.Turn) policies.ReplicaID {
	best, least := policies.NoReplica, int64(0)
	up := v.Up()
	start := len(up) * d.client / d.clients
	for k := range up {
		r := up[(start+k)%len(up)]
		score := int64(v.InFlight(r))
		if c := d.of(r); c.known {
			score = rankScore(c.waiting, c.running)
		}
		if best == policies.NoReplica || score < least {
			best, least = r, score
		}
	}
	return best
}

// rankScore is 4W + R.
func rankScore(waiting, running int32) int64 { return 4*int64(waiting) + int64(running) }
