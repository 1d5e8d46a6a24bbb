package exact

import "math"

// RoundToInt64 rounds x to the nearest whole number, halves away from zero. A
// value outside int64 saturates and NaN gives 0; both report ok = false. (The
// plain conversion of such values differs between machines.)
func RoundToInt64(x float64) (v int64, ok bool) {
	x = float64(x) // a product in the argument must not be fused below, after inlining
	switch {
	case x != x:
		return 0, false
	case x >= 1<<63:
		return math.MaxInt64, false
	case x < -(1 << 63):
		return math.MinInt64, false
	}
	v = int64(x)
	switch d := x - float64(v); { // exact: |x| < 2^53 or d = 0
	case d >= 0.5:
		v++
	case d <= -0.5:
		v--
	}
	return v, true
}
