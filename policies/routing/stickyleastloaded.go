package routing

import "github.com/sluice-sim/sluice/policies"

// Reads the ledger's in-flight counts (F). Keeps where each thread is and when it was last routed; one that was not for
// too long is new again. First turns go to the fewest in flight; equal ones are drawn from, by a hash of the seed and the
// attempt. Source: ai-dynamo/dynamo, lib/kv-router, sticky-min-load plugin; spec: policies 3.2.

// StickyLeastLoaded declares the router that keeps a thread where it was first placed by load.
func StickyLeastLoaded() policies.Declaration {
	return policies.Declaration{
		Name:    "sticky-least-loaded",
		Doc:     "Places a thread on the fewest turns in flight, drawn on a tie, and keeps it there until it has been idle for too long or the replica is gone.",
		Source:  "ai-dynamo/dynamo, lib/kv-router, sticky-min-load plugin; spec: policies 3.2",
		Missing: "It reads no signal.",
		Knobs: []policies.Knob{
			{Name: "idle_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 14400}, Min: 0, Max: 1e6, Unit: "s", Doc: "how long a thread may be idle and keep its place; 0 for ever"},
		},
		NewRouter: func(e policies.Env, p policies.Params) policies.Router {
			return &stickyLeastLoaded{seed: e.Seed, places: places{idle: secondsOrNever(p["idle_s"].Number)}}
		},
	}
}

type stickyLeastLoaded struct {
	seed   uint64
	places places
	ties   ties[int32]
}

func (*stickyLeastLoaded) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (s *stickyLeastLoaded) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to, why := s.choose(now, v, t)
	if to != policies.NoReplica {
		s.places.put(now, int32(t.Thread), to)
	}
	return to, why
}

func (s *stickyLeastLoaded) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	to, _ := s.choose(now, v, t)
	return to
}

func (s *stickyLeastLoaded) choose(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	place, known := s.places.get(now, int32(t.Thread))
	known = known && !t.Opens()
	if known && v.IsUp(place) {
		return place, policies.Affinity
	}
	s.ties.reset()
	for _, r := range v.Up() {
		s.ties.offer(r, v.InFlight(r))
	}
	why := policies.FirstPlacement
	if known {
		why = policies.HomeLost
	}
	return s.ties.draw(s.seed, stickyDraw, t.Attempt), why
}

// stickyDraw parts these draws from others with the same seed.
const stickyDraw = 0x737469636b79

// places is a map from threads or sessions, by number, to replicas that forgets what was not written for idle.
type places struct {
	idle policies.Time
	of   []place
}

type place struct {
	known   bool
	replica policies.ReplicaID
	at      policies.Time
}

func (p *places) get(now policies.Time, key int32) (policies.ReplicaID, bool) {
	if int(key) >= len(p.of) || !p.of[key].known || now-p.of[key].at >= p.idle {
		return policies.NoReplica, false
	}
	return p.of[key].replica, true
}

// forget drops the place of a key whose number may be given to another.
func (p *places) forget(key int32) {
	if int(key) < len(p.of) {
		p.of[key] = place{}
	}
}

func (p *places) put(now policies.Time, key int32, r policies.ReplicaID) {
	for int(key) >= len(p.of) {
		p.of = append(p.of, place{})
	}
	p.of[key] = place{true, r, now}
}
