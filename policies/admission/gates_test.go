package admission_test

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// bench is a Controller with replicas that are up, for tables.
type bench struct{ c *policies.Controller }

func newBench(t testing.TB, replicas int, kv int64, gate string, knobs map[string]float64, texts map[string]string) *bench {
	t.Helper()
	p := policies.Params{}
	for k, x := range knobs {
		p[k] = policies.Value{Number: x}
	}
	for k, x := range texts {
		p[k] = policies.Value{Text: x}
	}
	g, err := catalog.BuildGate(gate, policies.Env{}, p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := catalog.BuildRouter("least-requests", policies.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := &prefix.Tree{}
	tree.Root()
	capabilities := make([]policies.Capability, replicas)
	var up []policies.Fact
	for i := range capabilities {
		capabilities[i].KVTokens = kv
		up = append(up, policies.Fact{Kind: policies.ReplicaUp, Replica: policies.ReplicaID(i)})
	}
	b := &bench{policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: replicas, Capabilities: capabilities, Gate: g, Router: r})}
	b.c.Step(0, up, nil)
	return b
}

func turnOf(a policies.AttemptID, th policies.ThreadID, tokens int32) policies.Fact {
	return policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{
		Attempt: a, Thread: th, Session: policies.SessionID(th), Number: 1, Prompt: prefix.Prefix{Tokens: tokens},
	}}
}

// admitted says whether the commands admit a.
func admitted(out []policies.Command, a policies.AttemptID) bool {
	for _, c := range out {
		if c.Kind == policies.Admit && c.Attempt == a {
			return true
		}
	}
	return false
}

// Golden vector: waiting 0, 1, 4, 0 and usage .30, .60, .90, .05 over four replicas give .375, .75, 1.125 and .0625, whose
// mean is .578125. The pool is saturated from the ceiling on.
func TestUtilizationDetector(t *testing.T) {
	full := policies.HasRunning | policies.HasWaiting | policies.HasUsage
	pods := []policies.Sample{{Waiting: 0, Usage: .30, Has: full}, {Waiting: 1, Usage: .60, Has: full}, {Waiting: 4, Usage: .90, Has: full}, {Waiting: 0, Usage: .05, Has: full}}
	blind := append([]policies.Sample{}, pods...)
	blind[3].Has = policies.HasWaiting // 1 instead of .0625: mean .8125
	for _, c := range []struct {
		name    string
		pods    []policies.Sample
		ceiling float64
		want    bool
	}{
		{"default ceiling", pods, 1, true},
		{"just above", pods, .5782, true},
		{"equal", pods, .578125, false},
		{"just below", pods, .578, false},
		{"usage unknown, just above", blind, .8126, true},
		{"usage unknown, equal", blind, .8125, false},
		{"one replica over its limit", pods[2:3], 1, false},
		{"one replica with room", pods[1:2], 1, true},
		{"no sample", []policies.Sample{{}}, 1, false},
	} {
		b := newBench(t, len(c.pods), 0, "llm-d-saturation", map[string]float64{"ceiling": c.ceiling}, nil)
		var facts []policies.Fact
		for i, s := range c.pods {
			if s.Has != 0 {
				facts = append(facts, policies.Fact{Kind: policies.MetricsSampled, Replica: policies.ReplicaID(i), Sample: s})
			}
		}
		b.c.Step(1, facts, nil)
		if got := admitted(b.c.Step(2, []policies.Fact{turnOf(1, 1, 100)}, nil), 1); got != c.want {
			t.Errorf("%s: admitted %v, want %v", c.name, got, c.want)
		}
	}
}

func TestConcurrencyDetector(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  string
		turns int32 // in flight when another comes
		want  bool
	}{
		{"requests below", "requests", 5, true}, {"requests at the limit", "requests", 6, false},
		{"tokens below", "tokens", 3, true}, {"tokens at the limit", "tokens", 4, false},
		{"hybrid takes the larger", "hybrid", 4, false}, {"hybrid below", "hybrid", 3, true},
	} {
		b := newBench(t, 2, 0, "llm-d-saturation", map[string]float64{"max_requests": 3, "max_tokens": 200}, map[string]string{"detector": "concurrency", "mode": c.mode})
		for a := int32(1); a <= c.turns+1; a++ {
			got := admitted(b.c.Step(policies.Time(a), []policies.Fact{turnOf(policies.AttemptID(a), policies.ThreadID(a), 100)}, nil), policies.AttemptID(a))
			if want := a <= c.turns || c.want; got != want {
				t.Errorf("%s: turn %d admitted %v, want %v", c.name, a, got, want)
			}
		}
	}
}

// Every gate's limit, from one replica: how many of twenty turns that arrive at once, each of its own session with a
// prompt of 100 tokens, go at once.
func TestLimitsOfOneReplica(t *testing.T) {
	for _, c := range []struct {
		gate  string
		knobs map[string]float64
		texts map[string]string
		kv    int64
		want  int
	}{
		{gate: "max-requests", knobs: map[string]float64{"max_requests": 7}, want: 7},
		{gate: "aimd-kv", knobs: map[string]float64{"initial_requests": 5}, want: 5},
		{gate: "aimd-kv", knobs: map[string]float64{"initial_requests": 5, "max_requests": 3}, want: 3},
		{gate: "concur", knobs: map[string]float64{"initial_window": 6}, want: 6},
		{gate: "concur", knobs: map[string]float64{"initial_window": 6, "max_window": 2}, want: 2},
		{gate: "llm-d-saturation", knobs: map[string]float64{"max_requests": 4}, texts: map[string]string{"detector": "concurrency"}, want: 4},
		{gate: "thunderagent", kv: 1000, want: 5}, // 100 tokens and a buffer of 100 each
		{gate: "thunderagent", kv: 1000, knobs: map[string]float64{"buffer_tokens": 0}, want: 10},
		{gate: "thunderagent", kv: 0, want: 20},
		{gate: "dynamo-session-aware", kv: 1000, want: 5}, // pausing is another matter
	} {
		b := newBench(t, 1, c.kv, c.gate, c.knobs, c.texts)
		var facts []policies.Fact
		for i := range 20 {
			facts = append(facts, turnOf(policies.AttemptID(i+1), policies.ThreadID(i+1), 100))
		}
		out := b.c.Step(1, facts, nil)
		got := 0
		for i := range 20 {
			if admitted(out, policies.AttemptID(i+1)) {
				got++
				if got != i+1 {
					t.Errorf("%s: turn %d goes before one that came earlier", c.gate, i+1)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s %v kv %d: %d turns go, want %d", c.gate, c.knobs, c.kv, got, c.want)
		}
	}
}

// A gate that chooses the replica chooses the emptier one, the lower number on a tie; its programs count differently.
func TestProgramGatesPlace(t *testing.T) {
	for _, gate := range []string{"thunderagent", "dynamo-session-aware"} {
		b := newBench(t, 2, 10000, gate, nil, nil)
		var got []policies.ReplicaID
		for i, tokens := range []int32{350, 200, 100, 10, 9400} {
			for _, c := range b.c.Step(policies.Time(i+1), []policies.Fact{turnOf(policies.AttemptID(i+1), policies.ThreadID(i+1), tokens)}, nil) {
				if c.Kind == policies.Dispatch {
					if c.Reason != policies.PlacedByGate {
						t.Errorf("%s: reason %s", gate, c.Reason)
					}
					got = append(got, c.Replica)
				}
			}
		}
		// The fourth finds 350 and 300 tokens, 450 and 500 with the buffers. The fifth needs 9500: thunderagent asks where
		// there are fewest tokens, and 9390 are left there; dynamo takes 1, where 9500 are left.
		want := []policies.ReplicaID{0, 1, 1, 0, 1}
		if gate == "thunderagent" {
			want = []policies.ReplicaID{0, 1, 1, 1}
		}
		if len(got) != len(want) {
			t.Fatalf("%s: placed %v, want %v", gate, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: placed %v, want %v", gate, got, want)
				break
			}
		}
	}
}
