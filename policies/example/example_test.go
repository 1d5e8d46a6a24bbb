// Package example is the policy of the walk-through docs/adding-a-policy.md, as a user would write it. It is a test, so
// that the program does not have it.
package example

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/sim"
	"github.com/sluice-sim/sluice/traces"
)

// controller has replicas that are up, no gate, and the router with a head start.
func controller(t *testing.T, tree *prefix.Tree, replicas int, headStart float64) *policies.Controller {
	t.Helper()
	gate, err := catalog.BuildGate("none", policies.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := FewestTokens()
	p := policies.Params{"head_start_tokens": {Number: headStart}}
	if err := d.Check(p); err != nil {
		t.Fatal(err)
	}
	c := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: replicas, Gate: gate, Router: d.NewRouter(policies.Env{}, d.Resolve(p))})
	for r := range policies.ReplicaID(replicas) {
		c.Step(0, []policies.Fact{{Kind: policies.ReplicaUp, Replica: r}}, nil)
	}
	return c
}

// TestFewestTokensByHand sends turns of two threads to three replicas, one of which is down at the end.
func TestFewestTokensByHand(t *testing.T) {
	tree := &prefix.Tree{}
	c := controller(t, tree, 3, 100)
	streams := map[policies.ThreadID]prefix.StreamID{1: tree.Root(), 2: tree.Root()}
	finish := func(a policies.AttemptID) policies.Fact {
		return policies.Fact{Kind: policies.Finished, Attempt: a, OutputTokens: 1}
	}
	for i, step := range []struct {
		before []policies.Fact
		thread policies.ThreadID
		tokens int32
		want   policies.ReplicaID
		why    policies.Reason
	}{
		{nil, 1, 500, 0, policies.LeastLoaded},                                          // all equal: the lowest
		{nil, 2, 300, 1, policies.LeastLoaded},                                          // 500, 0, 0
		{[]policies.Fact{finish(1)}, 1, 600, 0, policies.Affinity},                      // 0-100, 300, 0
		{nil, 2, 50, 2, policies.LeastLoaded},                                           // 600, 300-100, 0
		{[]policies.Fact{finish(2)}, 2, 60, 2, policies.Affinity},                       // 600, 0, 50-100
		{[]policies.Fact{finish(3)}, 1, 70, 0, policies.Affinity},                       // 0-100, 0, 110
		{[]policies.Fact{{Kind: policies.ReplicaDown}}, 1, 80, 1, policies.LeastLoaded}, // its replica 0 is down
	} {
		attempt := policies.AttemptID(i + 1)
		facts := append(step.before, policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{
			Attempt: attempt, Thread: step.thread, Session: policies.SessionID(step.thread), Number: 1 + min(int32(i)/2, 1),
			Prompt: prefix.Prefix{Stream: streams[step.thread], Tokens: step.tokens},
		}})
		found := false
		for _, cmd := range c.Step(policies.Time(i+1)*policies.Second, facts, nil) {
			if cmd.Kind == policies.Dispatch && cmd.Attempt == attempt {
				found = true
				if cmd.Replica != step.want || cmd.Reason != step.why {
					t.Errorf("turn %d went to replica %d (%s), want %d (%s)", attempt, cmd.Replica, cmd.Reason, step.want, step.why)
				}
			}
		}
		if !found {
			t.Errorf("turn %d was not dispatched", attempt)
		}
	}
}

func TestFewestTokensWithoutReplicas(t *testing.T) {
	tree := &prefix.Tree{}
	c := controller(t, tree, 0, 0)
	turn := policies.Turn{Attempt: 1, Prompt: prefix.Prefix{Stream: tree.Root(), Tokens: 10}}
	if r := FewestTokens().NewRouter(policies.Env{}, FewestTokens().Resolve(nil)).Peek(0, c.View(), &turn); r != policies.NoReplica {
		t.Errorf("without replicas the turn goes to %d", r)
	}
}

// run simulates agents on three replicas under a router, with all invariants checked.
func run(t *testing.T, router policies.Declaration, p policies.Params) *results.Summary {
	t.Helper()
	trace, err := traces.Generate("swe-rollout", 1, traces.Params{"prompts": traces.Num(12), "samples": traces.Num(2), "turns": traces.Num(8)})
	if err != nil {
		t.Fatal(err)
	}
	model, err := latency.FindModel("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := latency.FindGPU("h100")
	if err != nil {
		t.Fatal(err)
	}
	law, err := latency.New(latency.Setup{Model: model, GPU: gpu, TensorParallel: 1})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := catalog.FindGate("none")
	if err != nil {
		t.Fatal(err)
	}
	e := engine.DefaultConfig()
	e.MaxModelLen = 1 << 17
	sink := results.NewCollector(results.Info{Mode: results.ModeClosed})
	totals, err := sim.Run(context.Background(), &sim.Config{
		Seed: 1, Trace: trace, Arrivals: sim.Arrivals{Process: sim.Burst},
		Signals: sim.Signals{ScrapePS: 1e11}, Replicas: 3, GPUsPerReplica: 1, Engine: e, KVBlocks: 30_000, Law: law, MaxModelLen: 1 << 17,
		Gate: gate, Router: router, GateParams: gate.Resolve(nil), RouterParams: router.Resolve(p), IntervalPS: 1e12, MaxSamples: 1000, Check: true,
	}, sink)
	if err != nil {
		t.Fatal(err)
	}
	return sink.Summary(totals)
}

// TestFewestTokensInTheSimulator: without a head start threads wander and compute their history again; with a huge one
// they stay.
func TestFewestTokensInTheSimulator(t *testing.T) {
	wander := run(t, FewestTokens(), policies.Params{"head_start_tokens": {Number: 0}})
	stay := run(t, FewestTokens(), policies.Params{"head_start_tokens": {Number: 1e9}})
	if wander.Conservation.Finished != wander.Conservation.Read || stay.Conservation.Finished != stay.Conservation.Read {
		t.Fatalf("not every turn finished: %+v, %+v", wander.Conservation, stay.Conservation)
	}
	if a, b := *wander.Whole.HitRate, *stay.Whole.HitRate; a > b-.05 {
		t.Errorf("hit rate %.3f without and %.3f with a head start", a, b)
	}
	if a, b := wander.Waste.Tokens, stay.Waste.Tokens; a < 2*b { // what is left is the system prompt, once for each replica
		t.Errorf("%d tokens computed again without and %d with a head start", a, b)
	}
}

// TestWalkthroughShowsThisFile holds the code in docs/adding-a-policy.md to the file that is compiled here.
func TestWalkthroughShowsThisFile(t *testing.T) {
	code, err := os.ReadFile("fewest_tokens_test.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/adding-a-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(code), "package example\n", "package routing\n", 1)
	if !strings.Contains(string(doc), "```go\n"+want+"```\n") {
		t.Error("docs/adding-a-policy.md does not hold fewest_tokens_test.go word for word (but for its package)")
	}
}
