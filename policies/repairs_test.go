package policies_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Each repair of the session gate changes one rule, so where that rule has nothing to say the commands are those of the gate
// without the repair, under both presets: aging that never comes, demand without an idle grace, expected hits where
// the history is as long as the prompt, strict where there never is pressure.
func TestRepairsChangeOneRule(t *testing.T) {
	for name, p := range map[string]policies.Params{
		"aging":    {"max_wait_s": {Number: 1e6}},
		"demand":   {"idle_grace_s": {Number: 0}},
		"expected": {},
		"strict":   {"high_watermark": {Number: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				plain := maps.Clone(p)
				plain["preset"] = policies.Value{Text: rapid.SampledFrom([]string{"documented", "as-shipped"}).Draw(t, "preset")}
				plain["usage"] = policies.Value{Text: rapid.SampledFrom([]string{"owner", "mean", "max"}).Draw(t, "usage of")}
				repaired := maps.Clone(plain)
				repaired["repair"] = policies.Value{Text: name}
				tree := &prefix.Tree{}
				tree.Root()
				x := newChaos(t, arm{gate: "session", router: "sticky", params: plain}.build(tree, chaosReplicas))
				x.run()
				x.drain()
				if err := policies.Replay(arm{gate: "session", router: "sticky", params: repaired}.build(tree, chaosReplicas), x.log); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
