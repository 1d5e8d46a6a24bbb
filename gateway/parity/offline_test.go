package parity

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/sim"
	"github.com/sluice-sim/sluice/traces"
)

// key names a turn in both worlds: sessions are numbered in the order in which they came, turns from 1.
type key struct {
	session policies.SessionID
	number  int32
}

// moments are when something was true of a turn, in the engines' nanoseconds since the first arrival.
type moments struct {
	arrived, first, finished int64
	replica                  policies.ReplicaID
	prompt, output, hit      int32
}

// decision is what a router said of a turn, and on what grounds.
type decision struct {
	turn   key
	at     int64
	said   policies.ReplicaID // by the router
	leases []map[key]bool     // by replica: the turns there, and whether they decode
	hits   []int32            // by replica: what is resident of the prompt; -1 if that is not known
	batch  []int32            // by replica: requests there, by the ledger and the last sample
}

// history is one world.
type history struct {
	turns     map[key]*moments
	decisions []decision
	attempts  map[policies.AttemptID]key
	scale     float64 // of its nanoseconds to the engines'
	begun     policies.Time
}

func newHistory(scale float64) *history {
	return &history{turns: map[key]*moments{}, attempts: map[policies.AttemptID]key{}, scale: scale, begun: -1}
}

func (h *history) time(now policies.Time) int64 { return int64(float64(now-h.begun) * h.scale) }

// note takes note of what became true.
func (h *history) note(now policies.Time, f *policies.Fact) {
	if f.Kind == policies.TurnArrived {
		if h.begun < 0 {
			h.begun = now
		}
		k := key{f.Turn.Session, f.Turn.Number}
		h.attempts[f.Turn.Attempt] = k
		h.turns[k] = &moments{arrived: h.time(now), replica: policies.NoReplica, first: -1, finished: -1, prompt: f.Turn.Prompt.Tokens}
		return
	}
	m := h.turns[h.attempts[f.Attempt]]
	switch {
	case m == nil:
	case f.Kind == policies.FirstToken:
		m.first = h.time(now)
	case f.Kind == policies.Finished:
		m.finished, m.output, m.hit = h.time(now), f.OutputTokens, f.HitTokens
	}
}

// spy is a router that is listened to. Where it sends a turn is what follow says.
type spy struct {
	policies.Router
	h      *history
	follow func(k key, said policies.ReplicaID) policies.ReplicaID
}

// Observe implements policies.Router.
func (s *spy) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	s.h.note(now, f)
	s.Router.Observe(now, v, f)
}

// Route implements policies.Router.
func (s *spy) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	said, why := s.Router.Route(now, v, t)
	d := decision{turn: key{t.Session, t.Number}, at: s.h.time(now), said: said, hits: make([]int32, v.Replicas())}
	v.AllHitTokens(t.Prompt, d.hits)
	for r := range policies.ReplicaID(v.Replicas()) {
		live := map[key]bool{}
		for le := v.FirstLease(r); le != nil; le = v.NextLease(le) {
			live[s.h.attempts[le.Attempt]] = le.Decoding
		}
		d.leases = append(d.leases, live)
		d.batch = append(d.batch, v.Batch(r))
	}
	s.h.decisions = append(s.h.decisions, d)
	to := s.follow(d.turn, said)
	s.h.turns[d.turn].replica = to
	return to, why
}

// relive repeats the gateway's decision log with a router that is listened to.
func (w *world) relive(t *testing.T, router string, log []byte) *history {
	t.Helper()
	h := newHistory(w.speed)
	d := decisionlog.NewDecoder()
	var core *policies.Controller
	for line := range bytes.Lines(log) {
		s, err := d.Take(line)
		check(t, err)
		if core == nil {
			env := policies.Env{Seed: d.Header.Seed, Capability: d.Header.Capability}
			g, err := catalog.BuildGate("none", env, nil)
			check(t, err)
			r, err := catalog.BuildRouter(router, env, nil)
			check(t, err)
			core = policies.NewController(policies.ControllerConfig{Tree: d.Tree, Replicas: len(d.Header.Capabilities), Capabilities: d.Header.Capabilities, Gate: g,
				Router: &spy{r, h, func(_ key, said policies.ReplicaID) policies.ReplicaID { return said }}})
		}
		if s == nil {
			continue
		}
		got := core.Step(s.Now, s.Facts, nil)
		if diff := cmp.Diff(s.Commands, got); diff != "" && len(s.Commands)+len(got) > 0 {
			t.Fatalf("the log does not replay at step %d (-log +core):\n%s", s.Number, diff)
		}
	}
	return h
}

// stretched is a recorded trace in the engines' time.
func (w *world) stretched(tr *traces.Trace) *traces.Trace {
	scale := func(ns *int64) {
		if *ns > 0 {
			*ns = int64(float64(*ns) * w.speed)
		}
	}
	out := *tr
	out.Sessions = slices.Clone(tr.Sessions)
	for i := range out.Sessions {
		s := &out.Sessions[i]
		s.Turns, s.Deps = slices.Clone(s.Turns), slices.Clone(s.Deps)
		scale(&s.StartNS)
		for k := range s.Turns {
			scale(&s.Turns[k].StartNS)
			scale(&s.Turns[k].DurationNS)
		}
		for k := range s.Deps {
			scale(&s.Deps[k].DelayNS)
		}
	}
	return &out
}

// simulate runs the recorded trace offline. Every turn arrives when it was recorded to; the router is asked and then led where
// the gateway went, so that each decision is made after the same history.
func (w *world) simulate(t *testing.T, router string, l *live, led map[key]*moments) *history {
	t.Helper()
	law, err := latency.New(w.setup)
	check(t, err)
	h := newHistory(1)
	c := &sim.Config{
		Seed: 1, Trace: w.stretched(l.trace), Arrivals: sim.Arrivals{Process: sim.Recorded, Speedup: 1}, Open: led != nil,
		Replicas: w.replicas, GPUsPerReplica: 1, Engine: l.config.Engine, KVBlocks: w.blocks, Law: law, MaxModelLen: l.config.Engine.MaxModelLen,
		Signals: sim.Signals{ScrapePS: int64(scrapeRealS * w.speed * 1e12)}, IntervalPS: 1e12, MaxSamples: 100,
		Capability: policies.Capability{KVTokens: int64(w.blocks) * blockTokens, BlockTokens: blockTokens},
	}
	c.Gate, err = catalog.FindGate("none")
	check(t, err)
	c.Retention, err = catalog.FindRetention("none")
	check(t, err)
	d, err := catalog.FindRouter(router)
	check(t, err)
	follow := func(k key, said policies.ReplicaID) policies.ReplicaID {
		if m := led[k]; m != nil {
			return m.replica
		}
		return said
	}
	c.Router = d
	c.Router.NewRouter = func(e policies.Env, p policies.Params) policies.Router { return &spy{d.NewRouter(e, p), h, follow} }
	c.GateParams, c.RouterParams = c.Gate.Resolve(nil), c.Router.Resolve(nil)
	_, err = sim.Run(context.Background(), c, noRows{})
	check(t, err)
	return h
}

type noRows struct{}

func (noRows) Turn(*results.Turn) error       { return nil }
func (noRows) Session(*results.Session) error { return nil }
func (noRows) Sample(*results.Sample) error   { return nil }
