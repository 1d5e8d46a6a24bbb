package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestIntervals holds intervals that are kept by the stretch to the same ones kept one by one.
func TestIntervals(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := series{interval: 1, limit: 2 * (1 + r.IntN(500))}
		var plain []interval
		length := int64(1)
		for range 400 {
			x := interval{Running: r.Int32N(2), ResidentTokens: r.Int64N(2)}
			n := 1 + r.IntN(min(9, s.limit-s.closed.n))
			if r.IntN(2) == 0 {
				n = 1
				x.OutputTokens, x.HitTokens, x.PromptTokens, x.ComputedTokens = r.Int64N(3), r.Int64N(3), r.Int64N(3), r.Int64N(3)
				x.EvictedTokens, x.BusyPS, x.Preemptions = r.Int64N(3), r.Int64N(3), r.Int32N(3)
			}
			s.closed.add(&x, n)
			if s.closed.n == s.limit {
				s.merge()
			}
			if plain = append(plain, slices.Repeat([]interval{x}, n)...); len(plain) == s.limit {
				for i := range len(plain) / 2 {
					plain[i] = *pair(&plain[2*i], &plain[2*i+1])
				}
				plain = plain[:len(plain)/2]
				length *= 2
			}
		}
		var found []interval
		for read := (reader{}); ; {
			x := read.next(&s.closed)
			if x == nil {
				break
			}
			found = append(found, *x)
		}
		if !slices.Equal(found, plain) || s.interval != length || s.closed.n != len(plain) {
			t.Fatalf("seed %d: %d intervals of %d, expected %d of %d that are the same", seed, len(found), s.interval, len(plain), length)
		}
	}
}
