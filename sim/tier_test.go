package sim

import (
	"errors"
	"testing"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/traces"
)

// TestCPUTierByHand sends one prompt three times: computed, evicted by another prompt, loaded from the CPU tier, and works
// the times of the load out from the law of the link.
func TestCPUTierByHand(t *testing.T) {
	c := world(t, chain([]call{{prompt: 1600, output: 2}, {prompt: 1610, output: 2, gapS: 5}}, []call{{prompt: 3200, output: 2, gapS: 2}}), "none", "round-robin")
	c.KVBlocks = 210
	c.CPUTier = cpuTier(t, c, 1000)
	out, _ := simulate(t, c)
	again := out.find(t, 0, 0, 2)
	if again.HitGPU+again.HitCPU != 1600 || again.HitCPU < 1000 || again.ComputedTokens != 10 {
		t.Fatalf("the second turn: %+v, expected 1,600 tokens, most of them from the CPU tier", again)
	}
	blocks := int64(again.HitCPU / 16)
	load := c.CPUTier.Link.Picoseconds(blocks, blocks*c.CPUTier.BlockBytes)
	if got := again.ScheduledPS - again.SentPS; got != load {
		t.Errorf("it waits %d ps for its load, expected %d", got, load)
	}
	law := newLaw(t)
	if got, want := again.FirstTokenPS-again.ScheduledPS, law.Picoseconds(&latency.Batch{Prefill: []latency.Chunk{{Tokens: 10, Past: 1600}}, Sampled: 1}); got != want {
		t.Errorf("its prefill takes %d ps, expected %d", got, want)
	}
	c.CPUTier = nil
	out, _ = simulate(t, c)
	if cold := out.find(t, 0, 0, 2); cold.HitGPU != again.HitGPU || cold.ComputedTokens != 1610-again.HitGPU || cold.WastedTokens != again.HitCPU {
		t.Errorf("without the CPU tier: %+v", cold)
	}
}

// TestOverlap holds the three ways in which loads and steps go together apart: a decoding request is not disturbed by an
// asynchronous load, waits for a blocking one, and for part of a layer-wise one.
func TestOverlap(t *testing.T) {
	longest := map[latency.Overlap]int64{}
	for _, overlap := range []latency.Overlap{latency.Asynchronous, latency.Blocking, latency.LayerWise} {
		c := world(t, chain(
			[]call{{prompt: 16000, output: 2}, {prompt: 16010, output: 2, gapS: 3}},
			[]call{{prompt: 24000, output: 2, gapS: 1.5}},
			[]call{{prompt: 160, output: 800, gapS: 3}}), "none", "round-robin")
		c.KVBlocks = 1700
		c.CPUTier = cpuTier(t, c, 10000)
		c.CPUTier.Overlap = overlap
		out, _ := simulate(t, c)
		if again := out.find(t, 0, 0, 2); again.HitCPU < 10000 {
			t.Fatalf("%s: the second turn hits %d tokens in the CPU tier", overlap, again.HitCPU)
		}
		longest[overlap] = out.find(t, 2, 0, 1).ITLMaxPS
	}
	if a, b, l := longest[latency.Asynchronous], longest[latency.Blocking], longest[latency.LayerWise]; a >= l || l >= b {
		t.Errorf("longest gaps between tokens of the other request: asynchronous %d, layer-wise %d, blocking %d", a, l, b)
	}
}

// TestLoadAheadOfLoaded is a queue that vLLM goes round for ever: a request that is to load blocks is ahead of one that has
// loaded, and does not fit beside what that one will need. The run ends and says so, unless clients cancel what they gave up.
func TestLoadAheadOfLoaded(t *testing.T) {
	tr, err := traces.Generate("claude-code", 0, traces.Params{"sessions": traces.Num(12)})
	if err != nil {
		t.Fatal(err)
	}
	c := world(t, traces.DropOverContext(tr, 25_000), "aimd-kv", "llm-d")
	c.GateParams = c.Gate.Resolve(policies.Params{"tick_s": {Number: 0.5}, "initial_requests": {Number: 2}})
	c.KVBlocks, c.Engine.Async, c.Engine.SlidingWindowTokens = 1570, false, 4096
	c.Arrivals = Arrivals{Process: Burst}
	c.Clients = Clients{TimeoutPS: 3e12, Retries: 2, RetryDelayPS: 1e11}
	c.Signals.ScrapePS, c.Routers = 15e12, 3
	c.CPUTier = cpuTier(t, c, 669)
	c.CPUTier.ARC, c.CPUTier.PromptOnly, c.CPUTier.StoreThreshold = true, false, 2
	if _, err := Run(t.Context(), c, nothing{}); !errors.Is(err, errForever) {
		t.Fatalf("the run ends with %v", err)
	}
	c.Faults = []Fault{{Kind: ClientDisconnect}} // which has every scrape taken
	if _, err := Run(t.Context(), c, nothing{}); !errors.Is(err, errForever) {
		t.Fatalf("with every scrape taken the run ends with %v", err)
	}
	c.Faults, c.Clients.CancelUpstream = nil, true
	if _, err := Run(t.Context(), c, nothing{}); err != nil {
		t.Fatalf("where clients cancel the run ends with %v", err)
	}
}
