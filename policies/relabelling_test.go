package policies_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// symmetric are the routers that choose by what is on the replicas, with knobs under which they do not draw.
var symmetric = []arm{
	{router: "least-requests"}, {router: "least-pending-tokens"}, {router: "least-work"}, {router: "vllm-dp"}, {router: "aibrix-prefix-cache"},
	{router: "llm-d", routerParams: policies.Params{"preset": {Text: "precise-prefix"}, "running_requests_weight": {Number: .37}}},
	{router: "llm-d", routerParams: policies.Params{"preset": {Text: "precise-prefix"}, "prefix_scale": {Text: "min-max"}, "output_ratio": {Number: 1.5}, "token_load_weight": {Number: .37}}},
	{router: "llm-d", routerParams: policies.Params{"prefix": {Text: "events"}, "affinity_filter": onKnob, "affinity_threshold": {Number: .05}, "affinity_rate": {Number: 20}, "running_requests_weight": {Number: .37}}},
	{router: "smg-cache-aware"}, {router: "smg-cache-aware", routerParams: policies.Params{"index": {Text: "events"}}},
	{router: "dynamo"}, {router: "preble"}, {router: "preble", routerParams: policies.Params{"warm_up_turns": {Number: 0}, "imbalance": {Number: 1}}},
	{router: "sticky"}, {router: "sticky-bounded"}, {router: "lmetric"}, {router: "smetric"}, {router: "smetric-figure"},
	{router: "bailian", routerParams: policies.Params{"form": {Text: "linear"}}}, {router: "bailian", routerParams: policies.Params{"top_k": {Number: 1}}},
	{router: "oracle"},
}

// labelled is a world in which replica i is called label[i].
type labelled struct {
	loads, hits, queued, done []int32 // by replica, all different
	label                     []policies.ReplicaID
	last                      policies.Turn
}

// Completion implements policies.Oracle.
func (x *labelled) Completion(_ policies.Time, r policies.ReplicaID, _ *policies.Turn) policies.Time {
	return policies.Time(x.done[slices.Index(x.label, r)])
}

// choice is where a sends the last turn after every replica was given its load, alone in taking new turns, by a itself.
func (x *labelled) choice(t *rapid.T, a arm) policies.ReplicaID {
	tree := &prefix.Tree{}
	tree.Root()
	other := tree.Root()
	r, err := catalog.BuildRouter(a.router, policies.Env{Capability: policies.Capability{PrefillTokensPerSec: 900, AttentionDoubling: 7000}}, a.routerParams)
	if err != nil {
		t.Fatal(err)
	}
	c := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: len(x.label), Gate: none(), Router: r, Oracle: x})
	next := policies.AttemptID(0)
	for i, to := range x.label {
		facts := upAll(len(x.label))
		for _, r := range x.label {
			if r != to {
				facts = append(facts, policies.Fact{Kind: policies.ReplicaDraining, Replica: r})
			}
		}
		for range x.loads[i] + 1 {
			next++
			f := turn(next, policies.ThreadID(next))
			f.Turn.Prompt = prefix.Prefix{Stream: other, Tokens: x.queued[i]}
			facts = append(facts, f)
		}
		c.Step(0, append(facts,
			policies.Fact{Kind: policies.MetricsSampled, Replica: to, Sample: policies.Sample{Has: policies.HasRunning | policies.HasWaiting, Running: 2 * x.loads[i]}},
			policies.Fact{Kind: policies.BlocksStored, Replica: to, Hi: x.hits[i] + 1, BlockTokens: 16}), nil)
		if n := c.View().InFlight(to); n != x.loads[i]+1 {
			t.Fatalf("%d turns on %d, want %d", n, to, x.loads[i]+1)
		}
	}
	c.Step(0, upAll(len(x.label)), nil)
	return r.Peek(0, c.View(), &x.last)
}

func drawLabelled(t *rapid.T) (plain, renamed *labelled) {
	plain = &labelled{
		loads: rapid.Permutation([]int32{0, 1, 2, 3}).Draw(t, "loads"), hits: rapid.Permutation([]int32{0, 3, 7, 12}).Draw(t, "hits"),
		queued: rapid.Permutation([]int32{101, 307, 653, 1103}).Draw(t, "queued"), done: rapid.Permutation([]int32{5, 8, 13, 21}).Draw(t, "done"),
		label: []policies.ReplicaID{0, 1, 2, 3},
		last: policies.Turn{Attempt: 99, Thread: policies.ThreadID(rapid.IntRange(1, 20).Draw(t, "thread")), Number: int32(rapid.IntRange(1, 2).Draw(t, "number")),
			Prompt: prefix.Prefix{Stream: prefix.StreamID(rapid.IntRange(0, 1).Draw(t, "stream")), Tokens: int32(rapid.SampledFrom([]int{230, 500, 2000}).Draw(t, "tokens"))}},
	}
	other := *plain
	other.label = rapid.Permutation(plain.label).Draw(t, "labels")
	return plain, &other
}

// A router that chooses by what is on replicas must choose the same one under another number, unless it broke a tie. The
// ties are taken out by giving every replica another load.
func TestRelabellingReplicas(t *testing.T) {
	for _, a := range symmetric {
		t.Run(a.name(), func(t *testing.T) {
			chosen := map[policies.ReplicaID]bool{}
			rapid.Check(t, func(t *rapid.T) {
				x, y := drawLabelled(t)
				plain, renamed := x.choice(t, a), y.choice(t, a)
				if y.label[plain] != renamed {
					t.Fatalf("chose %d, and %d when that is called %d", plain, renamed, y.label[plain])
				}
				chosen[plain] = true
			})
			if len(chosen) < 4 {
				t.Errorf("only %v were ever chosen", chosen)
			}
		})
	}
}

// Where equal prefixes are on every replica, sent there or by KV events, only the loads tell them apart. (The home of smetric
// is the lowest of them by its rule.)
func TestRelabellingReplicasWithEqualPrefixes(t *testing.T) {
	for _, a := range symmetric {
		if strings.HasPrefix(a.router, "smetric") {
			continue
		}
		t.Run(a.name(), func(t *testing.T) {
			chosen := map[policies.ReplicaID]bool{}
			rapid.Check(t, func(t *rapid.T) {
				x, y := drawLabelled(t)
				for _, w := range []*labelled{x, y} {
					w.hits, w.queued = []int32{7, 7, 7, 7}, []int32{307, 307, 307, 307}
				}
				plain, renamed := x.choice(t, a), y.choice(t, a)
				if y.label[plain] != renamed {
					t.Fatalf("chose %d, and %d when that is called %d", plain, renamed, y.label[plain])
				}
				chosen[plain] = true
			})
			if len(chosen) < 4 {
				t.Errorf("only %v were ever chosen", chosen)
			}
		})
	}
}

// placed is where a gate places the last of five programs. The replicas come up one by one, and each program goes to the one
// that is empty; some of the first four act by then.
func (x *labelled) placed(t *rapid.T, gate string, acting []bool) policies.ReplicaID {
	g, err := catalog.BuildGate(gate, policies.Env{}, policies.Params{"acting_weight": {Number: .7}})
	if err != nil {
		t.Fatal(err)
	}
	tree := &prefix.Tree{}
	tree.Root()
	capabilities := make([]policies.Capability, len(x.label))
	for i := range capabilities {
		capabilities[i].KVTokens = 10000
	}
	c := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: len(x.label), Capabilities: capabilities, Gate: g, Router: &alwaysFirst{}})
	to := policies.NoReplica
	arrive := func(i int, tokens int32, facts ...policies.Fact) {
		f := turn(policies.AttemptID(i+1), policies.ThreadID(i+1))
		f.Turn.Prompt.Tokens = tokens
		to = policies.NoReplica
		for _, cmd := range c.Step(policies.Time(i+1), append(facts, f), nil) {
			if cmd.Kind == policies.Dispatch {
				to = cmd.Replica
			}
		}
	}
	for i, r := range x.label {
		if arrive(i, x.queued[i], up(r)); to != r {
			t.Fatalf("program %d went to %d, not to the empty %d", i, to, r)
		}
	}
	for i, acts := range acting {
		if acts {
			c.Step(5, []policies.Fact{{Kind: policies.Finished, Attempt: policies.AttemptID(i + 1), OutputTokens: x.hits[i]}}, nil)
		}
	}
	arrive(5, 50)
	return to
}

// alwaysFirst is a router that no gate which places should ask.
type alwaysFirst struct{}

func (alwaysFirst) Observe(policies.Time, *policies.View, *policies.Fact) {}
func (alwaysFirst) Route(policies.Time, *policies.View, *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return 0, policies.NoReason
}
func (alwaysFirst) Peek(policies.Time, *policies.View, *policies.Turn) policies.ReplicaID { return 0 }

// The gates that choose the replica choose by what is on it, too.
func TestRelabellingGatesThatPlace(t *testing.T) {
	for _, gate := range []string{"thunderagent", "dynamo-session-aware"} {
		t.Run(gate, func(t *testing.T) {
			chosen := map[policies.ReplicaID]bool{}
			rapid.Check(t, func(t *rapid.T) {
				x, y := drawLabelled(t)
				acting := []bool{rapid.Bool().Draw(t, "acts"), rapid.Bool().Draw(t, "acts"), rapid.Bool().Draw(t, "acts"), rapid.Bool().Draw(t, "acts")}
				plain, renamed := x.placed(t, gate, acting), y.placed(t, gate, acting)
				if plain == policies.NoReplica || y.label[plain] != renamed {
					t.Fatalf("chose %d, and %d when that is called %d", plain, renamed, y.label[plain])
				}
				chosen[plain] = true
			})
			if len(chosen) < 4 {
				t.Errorf("only %v were ever chosen", chosen)
			}
		})
	}
}
