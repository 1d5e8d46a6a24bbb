package sim

import (
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/traces"
)

// TestConcurrencyCliff is acceptance case AC01: one replica whose KV just fits the working set of 12 steady sessions
// (10,000 shared tokens and up to 12,800 of each session's own, 75 output tokens a turn, no think time), in closed loop
// with 2 to 48 sessions at a time. Somewhere one more pair of sessions raises the p99 time to first token at least
// five-fold while the median less than doubles, and with half the KV bytes per token that step moves by 1.7 to 2.3.
func TestConcurrencyCliff(t *testing.T) {
	const blocks = 10400 // 10,000 + 12 x 12,800 tokens in blocks of 16, and room for the blocks in progress
	at := cliff(t, blocks)
	if at != 14 {
		t.Errorf("with room for 12 sessions the cliff is at %d, expected 14", at)
	}
	if moved := float64(cliff(t, 2*blocks)) / float64(at); moved < 1.7 || moved > 2.3 {
		t.Errorf("half the KV bytes per token move the cliff by %.2f, expected 1.7 to 2.3", moved)
	}
}

// cliff is the smallest number of sessions at which the p99 has risen at least five-fold since two sessions fewer while
// the median has less than doubled.
func cliff(t *testing.T, blocks int32) int {
	t.Helper()
	p50, p99 := 0.0, 0.0
	for n := 2; n <= 48; n += 2 {
		tr, err := traces.Generate("steady", 1, traces.Params{
			"sessions": traces.Num(float64(4 * n)), "turns": traces.Num(40), "at_limit": traces.Value{Text: "end"},
		})
		if err != nil {
			t.Fatal(err)
		}
		c := world(t, tr, "none", "round-robin")
		c.KVBlocks, c.Check = blocks, false
		c.Arrivals = Arrivals{Process: Concurrent, Sessions: n}
		out, totals := simulate(t, c)
		var ttft []float64
		for _, x := range out.turns {
			if x.ArrivalPS >= totals.EndPS/10 { // the burst of first turns at the start is another matter
				ttft = append(ttft, float64(x.FirstTokenPS-x.ArrivalPS))
			}
		}
		slices.Sort(ttft)
		was50, was99 := p50, p99
		p50, p99 = ttft[len(ttft)/2], ttft[len(ttft)*99/100]
		if n > 2 && p99 >= 5*was99 && p50 < 2*was50 {
			return n
		}
	}
	t.Fatalf("no cliff with %d blocks", blocks)
	return 0
}
