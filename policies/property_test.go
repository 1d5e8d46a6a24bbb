package policies_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// arm is one gate with one router. Every router meets the basic gates, every other gate two routers.
type arm struct {
	gate, router         string
	params, routerParams policies.Params
}

func arms() []arm {
	var all []arm
	for _, g := range []arm{
		{gate: "none"},
		{gate: "max-sessions", params: policies.Params{"max_sessions": {Number: 2}}},
		{gate: "session", params: policies.Params{"idle_grace_s": {Number: 1e-7}, "wait_poll_s": {Number: .001}}},
		{gate: "session", params: policies.Params{"preset": {Text: "as-shipped"}, "usage": {Text: "max"}}},
	} {
		for _, r := range catalog.Routers() {
			g.router = r.Name
			all = append(all, g)
		}
	}
	return append(append(all, gateArms()...), variantArms()...)
}

// gateArms are the gates beyond the basic ones.
func gateArms() []arm {
	var all []arm
	short := policies.Value{Number: .002}
	for _, g := range []arm{
		{gate: "session", params: policies.Params{"repair": {Text: "strict"}, "wait_poll_s": short}},
		{gate: "session", params: policies.Params{"repair": {Text: "demand"}, "preset": {Text: "as-shipped"}, "usage": {Text: "mean"}}},
		{gate: "session", params: policies.Params{"repair": {Text: "expected"}, "wait_poll_s": short}},
		{gate: "session", params: policies.Params{"repair": {Text: "aging"}, "max_wait_s": short}},
		{gate: "max-requests", params: policies.Params{"max_requests": {Number: 2}}},
		{gate: "aimd-kv", params: policies.Params{"initial_requests": {Number: 1}, "increase": {Number: 1}, "tick_s": short}},
		{gate: "llm-d-saturation", params: policies.Params{"queue_depth": {Number: 1.5}, "ttl_s": {Number: 5}, "max_queued": {Number: 3}}},
		{gate: "llm-d-saturation", params: policies.Params{"detector": {Text: "concurrency"}, "mode": {Text: "hybrid"}, "max_requests": {Number: 1}, "fairness": {Text: "program-aware"}}},
		{gate: "llm-d-saturation", params: policies.Params{"detector": {Text: "concurrency"}, "max_requests": {Number: 2}, "ceilings": {Text: "priority-holdback"}, "max_queued_bytes": {Number: 900}, "total_queued": {Number: 3}, "ttl_s": short}},
		{gate: "llm-d-saturation", params: policies.Params{"detector": {Text: "concurrency"}, "max_requests": {Number: 2}, "ceilings": {Text: "soft-reflective"}}},
		{gate: "llm-d-saturation", params: policies.Params{"flow_control": offKnob, "probabilistic_admitter": onKnob, "shed_factor": {Number: .5}}},
		{gate: "thunderagent", params: policies.Params{"tick_s": short, "buffer_tokens": {Number: 1}, "timeout_s": {Number: 7}}},
		{gate: "dynamo-session-aware", params: policies.Params{"tick_s": short, "buffer_tokens": {Number: 1}, "retention_s": short, "max_programs": {Number: 3}}},
		{gate: "concur", params: policies.Params{"initial_window": {Number: 2}, "tick_s": short}},
	} {
		for _, r := range []string{"sticky", "lmetric"} {
			g.router = r
			all = append(all, g)
		}
	}
	return all
}

func (a arm) build(tree *prefix.Tree, replicas int) *policies.Controller {
	g, err := catalog.BuildGate(a.gate, policies.Env{Seed: 3}, a.params)
	if err != nil {
		panic(err)
	}
	r, err := catalog.BuildRouter(a.router, policies.Env{Seed: 3, Capability: policies.Capability{PrefillTokensPerSec: 9000, AttentionDoubling: 7000}}, a.routerParams)
	if err != nil {
		panic(err)
	}
	capabilities := make([]policies.Capability, replicas)
	for i := range capabilities {
		capabilities[i].KVTokens = 350
	}
	return policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: replicas, Capabilities: capabilities, Gate: g, Router: r})
}

// chaos makes a stream of facts as a careless driver with broken engines would, and checks every command against what a
// driver may expect.
type chaos struct {
	t          *rapid.T
	c          *policies.Controller
	replicas   int
	up         []bool
	now        policies.Time
	next       policies.AttemptID
	threads    int
	waiting    map[policies.AttemptID]policies.ThreadID
	running    map[policies.AttemptID]policies.ReplicaID
	newest     map[policies.ThreadID]policies.AttemptID
	superseded map[policies.AttemptID]bool
	log        []policies.Entry

	admitted, ended, aborted, arrived, left, rejected int64
}

const chaosReplicas = 3

func newChaos(t *rapid.T, c *policies.Controller) *chaos {
	return &chaos{t: t, c: c, replicas: chaosReplicas, up: make([]bool, chaosReplicas), threads: 4,
		waiting: map[policies.AttemptID]policies.ThreadID{}, running: map[policies.AttemptID]policies.ReplicaID{},
		newest: map[policies.ThreadID]policies.AttemptID{}, superseded: map[policies.AttemptID]bool{}}
}

func (x *chaos) anyAttempt() policies.AttemptID {
	return policies.AttemptID(rapid.Int64Range(0, int64(x.next)+1).Draw(x.t, "attempt"))
}

func (x *chaos) fact() policies.Fact {
	r := policies.ReplicaID(rapid.IntRange(-1, x.replicas).Draw(x.t, "replica"))
	f := policies.Fact{Replica: r, Attempt: x.anyAttempt(), OutputTokens: 5, PromptTokens: 100, HitTokens: int32(rapid.IntRange(0, 100).Draw(x.t, "hit"))}
	f.Kind = policies.FactKind(rapid.IntRange(int(policies.TurnArrived), int(policies.ReplicaRestarted)+1).Draw(x.t, "kind"))
	f.Outcome = policies.ProbeOutcome(rapid.IntRange(0, 2).Draw(x.t, "outcome"))
	f.Usage = rapid.SampledFrom([]float64{0, .5, .85, 1, math.NaN(), -3}).Draw(x.t, "usage")
	f.Thread = policies.ThreadID(rapid.IntRange(0, x.threads).Draw(x.t, "thread"))
	f.Session = policies.SessionID(f.Thread / 2)
	f.Lo, f.Hi, f.BlockTokens = 0, int32(rapid.IntRange(0, 6).Draw(x.t, "hi")), 16
	f.Sample = policies.Sample{At: x.now, Has: policies.SampleField(rapid.IntRange(0, 15).Draw(x.t, "has")), Running: 2, Waiting: 1,
		Usage: rapid.SampledFrom([]float64{0, .5, 1}).Draw(x.t, "sampled"), QueryTokens: int64(x.now / 1e6), HitTokens: int64(x.now / 1e7)}
	if f.Kind == policies.TurnArrived || rapid.IntRange(0, 2).Draw(x.t, "turn") == 0 {
		f.Kind = policies.TurnArrived
		if x.next == 0 || rapid.IntRange(0, 5).Draw(x.t, "again") > 0 {
			x.next++
			f.Attempt = x.next
			x.arrived++
			x.waiting[f.Attempt] = f.Thread
			x.newest[f.Thread] = f.Attempt
		} else {
			f.Attempt = 1 + f.Attempt%x.next
		}
		f.Turn = policies.Turn{Attempt: f.Attempt, Thread: f.Thread, Session: f.Session, Number: int32(rapid.IntRange(1, 3).Draw(x.t, "number")), Class: int32(f.Thread % 2), Prompt: prefix.Prefix{Tokens: 100}}
	}
	return f
}

// note follows what the fact means for a driver's own books.
func (x *chaos) note(f policies.Fact) {
	switch f.Kind {
	case policies.Finished, policies.Failed:
		if _, ok := x.running[f.Attempt]; ok {
			x.ended++
		}
		delete(x.running, f.Attempt)
	case policies.AttemptSuperseded:
		x.superseded[f.Attempt] = true
	case policies.ClientGone:
		if _, ok := x.waiting[f.Attempt]; ok {
			x.left++
		}
		delete(x.waiting, f.Attempt)
	case policies.ReplicaUp, policies.ReplicaDown, policies.ReplicaDraining:
		if f.Replica >= 0 && int(f.Replica) < x.replicas {
			x.up[f.Replica] = f.Kind == policies.ReplicaUp
		}
	case policies.ReplicaRestarted:
		for a, r := range x.running {
			if r == f.Replica {
				x.ended++
				delete(x.running, a)
			}
		}
	}
}

func (x *chaos) step(facts []policies.Fact) {
	out := x.c.Step(x.now, facts, nil)
	x.log = append(x.log, policies.Entry{Now: x.now, Facts: facts, Commands: out})
	for i, c := range out {
		thread, waits := x.waiting[c.Attempt]
		if !waits && c.Kind != policies.Dispatch {
			x.t.Fatalf("%+v of an attempt that does not wait", c)
		}
		switch c.Kind {
		case policies.Admit:
			if i+1 >= len(out) || out[i+1].Kind != policies.Dispatch || out[i+1].Attempt != c.Attempt || out[i+1].Replica != c.Replica {
				x.t.Fatalf("admit of %d without its dispatch", c.Attempt)
			}
		case policies.Dispatch:
			if out[max(i, 1)-1].Kind != policies.Admit {
				x.t.Fatalf("dispatch of %d without its admit", c.Attempt)
			}
			if c.Replica < 0 || !x.up[c.Replica] {
				x.t.Fatalf("dispatch of %d to %d, which is not up", c.Attempt, c.Replica)
			}
			delete(x.waiting, c.Attempt)
			x.running[c.Attempt] = c.Replica
			x.admitted++
		case policies.Abort:
			if c.Attempt >= x.newest[thread] && !x.superseded[c.Attempt] {
				x.t.Fatalf("abort of %d, which is the newest of thread %d", c.Attempt, thread)
			}
			delete(x.waiting, c.Attempt)
			x.aborted++
		case policies.Reject:
			delete(x.waiting, c.Attempt)
			x.rejected++
		case policies.ProbeUsage, policies.ProbePrefix:
			if c.Replica < 0 || !x.up[c.Replica] {
				x.t.Fatalf("probe of %d, which is not up", c.Replica)
			}
		}
	}
	a := x.c.Audit()
	if a.Admitted != x.admitted || a.Live != int64(len(x.running)) || a.Finished+a.Failed+a.Cancelled != x.ended || a.Superseded != x.aborted || a.Rejected != x.rejected || a.Waiting != int64(len(x.waiting)) {
		x.t.Fatalf("audit %+v; driver: admitted %d ended %d aborted %d running %d waiting %d", a, x.admitted, x.ended, x.aborted, len(x.running), len(x.waiting))
	}
	if x.c.NextWake() <= x.now {
		x.t.Fatalf("next wake %d is not after %d", x.c.NextWake(), x.now)
	}
}

func (x *chaos) run() {
	var all []policies.Fact
	for r := range policies.ReplicaID(x.replicas) {
		if rapid.IntRange(0, 3).Draw(x.t, "down at first") > 0 {
			f := policies.Fact{Kind: policies.ReplicaUp, Replica: r}
			x.note(f)
			all = append(all, f)
		}
	}
	x.step(all)
	for range rapid.IntRange(1, 60).Draw(x.t, "steps") {
		x.now += policies.Time(rapid.SampledFrom([]int64{0, 1, 1e6, 6e9}).Draw(x.t, "pass"))
		var facts []policies.Fact
		for range rapid.IntRange(0, 3).Draw(x.t, "facts") {
			f := x.fact()
			x.note(f)
			facts = append(facts, f)
		}
		x.step(facts)
	}
}

// drain ends everything the way a driver does: all leases end, all clients go.
func (x *chaos) drain() {
	for range 3 {
		var facts []policies.Fact
		for a := range policies.AttemptID(x.next + 1) {
			for _, k := range []policies.FactKind{policies.ClientGone, policies.Failed} {
				f := policies.Fact{Kind: k, Attempt: a}
				x.note(f)
				facts = append(facts, f)
			}
		}
		x.now++
		x.step(facts)
	}
	if a := x.c.Audit(); a.Live != 0 || a.Waiting != 0 || a.Admitted+a.Superseded+a.Rejected+x.left != x.arrived {
		x.t.Fatalf("after everything ended: %+v, arrived %d, left %d", a, x.arrived, x.left)
	}
	for r := range policies.ReplicaID(x.replicas) {
		v := x.c.View()
		if v.InFlight(r) != 0 || v.QueuedTokens(r) != 0 || v.QueuedMoment(r) != 0 || v.DecodeTokens(r) != 0 || v.PromptTokens(r) != 0 || v.FirstLease(r) != nil {
			x.t.Fatalf("the ledger of %d is not empty", r)
		}
	}
}

func TestLeasesAreConserved(t *testing.T) {
	for _, a := range arms() {
		t.Run(a.name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				tree := &prefix.Tree{}
				tree.Root()
				x := newChaos(t, a.build(tree, chaosReplicas))
				x.run()
				x.drain()

				// The log, replayed, gives the same commands.
				if err := policies.Replay(a.build(tree, chaosReplicas), x.log); err != nil {
					t.Fatal(err)
				}
				// A shift in time changes nothing but the times.
				later := a.build(tree, chaosReplicas)
				for _, e := range x.log {
					facts := slices.Clone(e.Facts)
					for i := range facts {
						facts[i].Sample.At += 1e15
					}
					if d := cmp.Diff(e.Commands, later.Step(e.Now+1e15, facts, nil)); d != "" {
						t.Fatalf("shifted by 1e15 ns it differs at %d:\n%s", e.Now, d)
					}
				}
			})
		})
	}
}
