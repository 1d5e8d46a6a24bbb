package sim

import (
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/traces"
)

// documents makes requests that each ask something of one of n documents of 16,000 tokens, drawn evenly.
func documents(n, requests int) *traces.Trace {
	tr := &traces.Trace{Name: "documents", Tree: &prefix.Tree{}, Models: []string{"m"}}
	streams := make([]prefix.StreamID, n)
	for i := range streams {
		streams[i] = tr.Tree.Root()
	}
	for i := range requests {
		doc := streams[exact.UniformInt(exact.Hash2(1, 77, uint64(i)), int64(n))]
		tr.Sessions = append(tr.Sessions, traces.Session{
			Name: "s", StartNS: traces.Unknown, Group: -1, Threads: 1,
			Turns: []traces.Turn{{
				Number: 1, Prompt: prefix.Prefix{Stream: tr.Tree.Fork(prefix.Prefix{Stream: doc, Tokens: 16_000}), Tokens: 16_200},
				OutputTokens: 30, DurationNS: traces.Unknown,
			}},
		})
	}
	return tr
}

// TestOffloadRegimes is acceptance case AC16: 250 prefixes of 16K tokens over 8 replicas with a CPU tier of 0 and 25 to 200
// GiB. Where the working set is 1.8 times the GPUs' KV, the tier is worth more than 1.3 times the throughput, from the
// size on at which the rest of the working set fits; where it is half of it, 5 % less to nothing.
func TestOffloadRegimes(t *testing.T) {
	const docs, tokens, replicas = 250, 16_000, 8
	tr := documents(docs, 6000)
	throughput := func(oversubscribed float64, gib int64) float64 {
		c := world(t, tr, "none", "chwbl") // a document has a home by the hash of its beginning
		c.RouterParams = c.Router.Resolve(policies.Params{"load_factor": {Number: 8}})
		c.Replicas, c.Check = replicas, false
		c.KVBlocks = int32(docs * tokens / 16 / replicas / oversubscribed)
		c.Arrivals = Arrivals{Process: Concurrent, Sessions: 48}
		if gib > 0 {
			x := cpuTier(t, c, 1)
			x.Chunks = int32(gib << 30 / x.BlockBytes)
			c.CPUTier = x
		}
		out, _ := simulate(t, c)
		done := make([]int64, 0, len(out.turns))
		for i := range out.turns {
			done = append(done, out.turns[i].DonePS)
		}
		slices.Sort(done)
		n := len(done) / 2 // the first half fills the caches
		return float64(len(done)-n) / float64(done[len(done)-1]-done[n-1])
	}
	for _, regime := range []struct {
		oversubscribed, low, high float64
	}{{0.5, 0.95, 1.01}, {1.8, 1.3, 100}} {
		none := throughput(regime.oversubscribed, 0)
		last := 1.0
		for _, gib := range []int64{25, 50, 100, 200} {
			gain := throughput(regime.oversubscribed, gib) / none
			t.Logf("working set %.1f x GPU KV, CPU tier %d GiB: %.3f of the throughput without", regime.oversubscribed, gib, gain)
			fits := regime.oversubscribed < 1 || gib >= 100
			if fits && (gain < regime.low || gain > regime.high) {
				t.Errorf("working set %.1f x GPU KV, CPU tier %d GiB: %.3f of the throughput without, expected %.2f to %.2f", regime.oversubscribed, gib, gain, regime.low, regime.high)
			}
			if gain < last-0.05 {
				t.Errorf("working set %.1f x GPU KV: %d GiB give %.3f, less than half the size", regime.oversubscribed, gib, gain)
			}
			last = gain
		}
	}
}
