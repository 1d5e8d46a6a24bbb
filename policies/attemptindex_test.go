package policies

import (
	"testing"

	"pgregory.net/rapid"
)

// TestAttemptIndex holds an attemptIndex to a map.
func TestAttemptIndex(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var x attemptIndex
		want := map[AttemptID]int32{}
		attempt := rapid.OneOf(rapid.Int64Range(-2, 40), rapid.Map(rapid.Int64Range(0, 40), func(n int64) int64 { return n << 20 }), rapid.Int64())
		for range rapid.IntRange(0, 200).Draw(rt, "operations") {
			a := AttemptID(attempt.Draw(rt, "attempt"))
			switch op := rapid.IntRange(0, 2).Draw(rt, "operation"); {
			case op == 0 && a >= 0:
				slot := rapid.Int32Range(0, 9).Draw(rt, "slot")
				x.set(a, slot)
				want[a] = slot
			case op == 1:
				x.remove(a)
				delete(want, a)
			}
			if slot, ok := x.get(a); ok != (want[a] == slot && hasKey(want, a)) || x.len() != len(want) {
				rt.Fatalf("attempt %d has slot %d (%v) of %d, expected %d of %d", a, slot, ok, x.len(), want[a], len(want))
			}
		}
		for a, slot := range want {
			if got, ok := x.get(a); !ok || got != slot {
				rt.Fatalf("attempt %d has slot %d (%v), expected %d", a, got, ok, slot)
			}
		}
	})
}

func hasKey(m map[AttemptID]int32, a AttemptID) bool {
	_, ok := m[a]
	return ok
}
