package sim

import (
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// TestPinKeepsContent has another prompt push a session's content out during its tool gap, unless that is pinned for
// longer than the gap.
func TestPinKeepsContent(t *testing.T) {
	for ttl, want := range map[float64]int32{0: 144, 1: 144, 6: 1600} {
		c := world(t, chain([]call{{prompt: 1600, output: 2}, {prompt: 1610, output: 2, gapS: 5}}, []call{{prompt: 1700, output: 2, gapS: 2}, {prompt: 3200, output: 2, gapS: 4}}), "none", "round-robin")
		c.KVBlocks = 320
		if ttl == 0 {
			want = 0
		}
		withRetention(t, c, "ttl", policies.Params{"ttl_s": {Number: ttl}})
		out, totals := simulate(t, c)
		got := out.find(t, 0, 0, 2).HitGPU
		if ttl == 6 && got != want {
			t.Errorf("ttl %v: %d tokens found, expected %d", ttl, got, want)
		}
		if ttl > 0 && totals.Pins == 0 || ttl == 0 && totals.Pins != 0 {
			t.Errorf("ttl %v: %d pins", ttl, totals.Pins)
		}
		if ttl == 1 && totals.PinsExpired == 0 {
			t.Errorf("ttl %v: no pin expired", ttl)
		}
	}
}

// TestPinsGiveWay pins everything for good in a pool that two prompts fill: the third can only run because the pin of the
// session that arrived last is given up.
func TestPinsGiveWay(t *testing.T) {
	c := world(t, chain([]call{{prompt: 1600, output: 2}, {prompt: 1610, output: 2, gapS: 50}}, []call{{prompt: 1600, output: 2, gapS: 1}, {prompt: 1610, output: 2, gapS: 60}}, []call{{prompt: 1600, output: 2, gapS: 3}}), "none", "round-robin")
	c.KVBlocks = 210
	withRetention(t, c, "ttl", policies.Params{"ttl_s": {Number: 1000}})
	_, totals := simulate(t, c)
	if totals.PinsForRoom == 0 {
		t.Error("no pin was given up for room")
	}
}

// TestBeladyBeatsTheRest compares the clairvoyant yardstick with plain LRU and with fixed pins where content is evicted in the gaps.
func TestBeladyBeatsTheRest(t *testing.T) {
	tr := traces.DropOverContext(generated(t, "claude-code", map[string]float64{"sessions": 24, "subagents": 0}), 60_000)
	hit := map[string]float64{}
	for _, name := range []string{"none", "ttl", "continuum", "belady"} {
		c := world(t, tr, "none", "sticky")
		c.KVBlocks, c.Replicas = 8000, 2
		c.Arrivals = Arrivals{Process: Poisson, RatePerS: 0.2}
		withRetention(t, c, name, policies.Params{"ttl_s": {Number: 10}})
		out, _ := simulate(t, c)
		found, prompt := int64(0), int64(0)
		for _, x := range out.turns {
			if x.Outcome == results.Finished {
				found += int64(x.HitGPU)
				prompt += int64(x.PromptTokens)
			}
		}
		hit[name] = float64(found) / float64(prompt)
	}
	t.Log(hit)
	for name, h := range hit {
		if h > hit["belady"]+0.005 {
			t.Errorf("%s hits %.4f, more than belady's %.4f", name, h, hit["belady"])
		}
	}
	if hit["belady"] < hit["none"]+0.01 {
		t.Errorf("hit rates %v: nothing to gain in this world, so nothing is tested", hit)
	}
}

// TestPinsThatNeverEndHoldAGate has a session gate wait for usage to fall below its mark while the clairvoyant retention keeps
// every thread's content and no engine needs room: the run ends with an error that says so.
func TestPinsThatNeverEndHoldAGate(t *testing.T) {
	tr := traces.DropOverContext(generated(t, "claude-code", map[string]float64{"sessions": 12, "subagents": 0}), 60_000)
	c := world(t, tr, "session", "sticky")
	c.GateParams = c.Gate.Resolve(policies.Params{"high_watermark": {Number: 0.05}, "hit_threshold": {Number: 1}, "wait_poll_s": {Number: 600}})
	c.Signals.ScrapePS = seconds(3600)
	c.KVBlocks, c.Replicas = 8000, 1
	c.Arrivals = Arrivals{Process: Burst}
	withRetention(t, c, "belady", nil)
	_, err := Run(t.Context(), c, &rows{})
	if err == nil || !strings.Contains(err.Error(), "pins that do not end") {
		t.Fatalf("%v", err)
	}
}
