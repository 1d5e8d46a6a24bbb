package admission_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
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
