package sim

import (
	"testing"

	"pgregory.net/rapid"
)

// TestEndedBefore holds the search for the steps of a run that end before a moment to counting them.
func TestEndedBefore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := replica{depth: int8(rapid.IntRange(1, 2).Draw(rt, "depth"))}
		x := &p.decoding
		*x = decodeRun{active: true, left: rapid.Int32Range(0, 60).Draw(rt, "left"), rows: rapid.Int64Range(1, 5).Draw(rt, "rows"), context: rapid.Int64Range(0, 1000).Draw(rt, "context")}
		x.a, x.b = rapid.Int64Range(1, 50).Draw(rt, "a"), rapid.Int64Range(0, 3).Draw(rt, "b")
		p.flight[0] = span{0, rapid.Int64Range(1, 500).Draw(rt, "first"), true}
		p.flight[1] = span{p.flight[0].end, p.flight[0].end + rapid.Int64Range(0, 500).Draw(rt, "second"), true}
		p.freeAt = p.flight[p.depth-1].end
		at := rapid.Int64Range(0, p.endOf(x.left)+10).Draw(rt, "at")
		want := int32(0)
		for want < x.left && p.endOf(want) < at {
			want++
		}
		if got := p.endedBefore(at); got != want {
			rt.Fatalf("%d steps end before %d, expected %d", got, at, want)
		}
	})
}
