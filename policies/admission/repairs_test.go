package admission_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// Each repair of the session gate changes one rule, so where that rule has nothing to say the commands are those of the
// gate without the repair, under both presets: aging that never comes, demand without an idle grace, expected hits where
// the history is as long as the prompt, strict where there never is pressure. Where it has something to say, some world
// shows it.
func TestRepairsChangeOneRule(t *testing.T) {
	for _, c := range []struct {
		repair         string
		neutral, other map[string]float64
	}{
		{"aging", map[string]float64{"max_wait_s": 1e6}, map[string]float64{"max_wait_s": 1}},
		{"demand", map[string]float64{"idle_grace_s": 0}, map[string]float64{"idle_grace_s": 60}},
		{"expected", nil, nil},
		{"strict", map[string]float64{"high_watermark": 10}, nil},
	} {
		t.Run(c.repair, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				if at, err := repaired(t, c.repair, c.neutral); err != nil {
					t.Fatalf("%s: %v", at, err)
				}
			})
			if c.repair == "expected" { // every prompt of this world is shorter than the history; the scripts show it
				return
			}
			differs := false
			rapid.Check(t, func(t *rapid.T) {
				_, err := repaired(t, c.repair, c.other)
				differs = differs || err != nil
			})
			if !differs {
				t.Error("the repair changed nothing in any world")
			}
		})
	}
}

// repaired plays a world with the gate as it is and gives its log to the repaired one.
func repaired(t *rapid.T, repair string, knobs map[string]float64) (preset string, err error) {
	preset = rapid.SampledFrom([]string{"documented", "as-shipped"}).Draw(t, "preset")
	p := policies.Params{"preset": {Text: preset}, "usage": {Text: rapid.SampledFrom([]string{"owner", "mean", "max"}).Draw(t, "usage")}}
	for k, x := range knobs {
		p[k] = policies.Value{Number: x}
	}
	w := &tiny{t: t, room: rapid.IntRange(1, 3).Draw(t, "room"), turns: 3, c: buildTiny(t, "session", p, "sticky", 2000)}
	w.run(rapid.IntRange(2, 6).Draw(t, "threads"))
	p = maps.Clone(p)
	p["repair"] = policies.Value{Text: repair}
	return preset, policies.Replay(buildTiny(t, "session", p, "sticky", 2000), w.entries)
}

// Repair demand where a replica's KV capacity is unknown: what idles there adds nothing to the pressure, what idles on a
// replica of known capacity still does, and the mean is over both.
func TestDemandWithUnknownCapacity(t *testing.T) {
	for _, c := range []struct {
		name     string
		kv       [2]int64
		usage    string
		measured float64
		held     bool
	}{
		{"owner, known", [2]int64{1000, 1000}, "owner", 0, true}, // 1010 of 1000
		{"owner, unknown", [2]int64{0, 1000}, "owner", 0, false},
		{"owner, unknown, full by what is measured", [2]int64{0, 1000}, "owner", .85, true},
		{"max, one known", [2]int64{0, 1000}, "max", 0, true},
		{"max, neither known", [2]int64{0, 0}, "max", 0, false},
		{"mean, both known", [2]int64{1000, 1000}, "mean", 0, true},
		{"mean, one known", [2]int64{0, 1000}, "mean", 0, false}, // 1.01 / 2
		{"mean, one known and small", [2]int64{0, 500}, "mean", 0, true},
		{"mean, neither known", [2]int64{0, 0}, "mean", 0, false},
		{"mean, neither known, full by what is measured", [2]int64{0, 0}, "mean", .85, true},
	} {
		g, err := catalog.BuildGate("session", policies.Env{}, policies.Params{"repair": {Text: "demand"}, "usage": {Text: c.usage}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := catalog.BuildRouter("sticky", policies.Env{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tree := &prefix.Tree{}
		tree.Root()
		d := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: 2, Capabilities: []policies.Capability{{KVTokens: c.kv[0]}, {KVTokens: c.kv[1]}}, Gate: g, Router: r})
		d.Step(0, []policies.Fact{{Kind: policies.ReplicaUp, Replica: 0}, {Kind: policies.ReplicaUp, Replica: 1}}, nil)
		// judge answers every probe and says where the turn went, or that it was held.
		judge := func(a policies.AttemptID, measured float64) policies.ReplicaID {
			out := d.Step(1, []policies.Fact{turnOf(a, policies.ThreadID(a), 1000)}, nil)
			for {
				var answers []policies.Fact
				for _, q := range out {
					switch q.Kind {
					case policies.Dispatch:
						return q.Replica
					case policies.Hold:
						return policies.NoReplica
					case policies.ProbeUsage:
						answers = append(answers, policies.Fact{Kind: policies.UsageProbed, Attempt: a, Replica: q.Replica, Usage: measured})
					case policies.ProbePrefix:
						answers = append(answers, policies.Fact{Kind: policies.PrefixProbed, Attempt: a, Replica: q.Replica, PromptTokens: 1000})
					}
				}
				if len(answers) == 0 {
					t.Fatalf("%s: no end of attempt %d", c.name, a)
				}
				out = d.Step(1, answers, nil)
			}
		}
		// Threads 1 and 2 go to replicas 0 and 1 and idle there; thread 3 would go to replica 0.
		for a := range policies.AttemptID(2) {
			if to := judge(a+1, 0); to != policies.ReplicaID(a) {
				t.Fatalf("%s: thread %d went to %d", c.name, a+1, to)
			}
		}
		d.Step(1, []policies.Fact{{Kind: policies.Finished, Attempt: 1, OutputTokens: 10}, {Kind: policies.Finished, Attempt: 2, OutputTokens: 10}}, nil)
		if to := judge(3, c.measured); (to == policies.NoReplica) != c.held {
			t.Errorf("%s: sent to %d, held is expected to be %v", c.name, to, c.held)
		}
	}
}
