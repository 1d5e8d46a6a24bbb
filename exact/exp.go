package exact

import "math"

// Exp returns e to the power x. Exp(+Inf) = +Inf, Exp(-Inf) = 0, Exp(NaN) =
// NaN; it overflows to +Inf above about 709.78 and vanishes below -745.13.
func Exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 710:
		return positiveInf()
	case x < -746:
		return 0
	}
	return expOfSum(x, 0)
}

// Exp2 returns 2 to the power x. It is exact for whole x, and treats special
// values as Exp does.
func Exp2(x float64) float64 {
	switch {
	case x != x:
		return x
	case x >= 1024:
		return positiveInf()
	case x < -1076:
		return 0
	}
	k := nearest(x)
	h, l := multiply(x-float64(k), 0, math.Ln2, ln2Rest)
	return scale(expSmall(h, l), k)
}

// expOfSum returns e^(x+e) for -746 <= x <= 710 and |e| far below |x|.
func expOfSum(x, e float64) float64 {
	k := nearest(float64(x * math.Log2E))
	f := float64(k)
	h, l := twoSum(x-float64(f*ln2Hi), e-float64(f*ln2Lo))
	return scale(expSmall(h, l), k)
}

// nearest returns the whole number nearest to x, for |x| < 2^31.
func nearest(x float64) int {
	if x < 0 {
		return int(x - 0.5)
	}
	return int(x + 0.5)
}

// expSmall returns e^(h+l) for |h| <= 0.35 and l below an ulp of h, from the
// Taylor series: the first term left out is below 2^-57.
func expSmall(h, l float64) float64 {
	const (
		c2  = 1.0 / 2
		c3  = c2 / 3
		c4  = c3 / 4
		c5  = c4 / 5
		c6  = c5 / 6
		c7  = c6 / 7
		c8  = c7 / 8
		c9  = c8 / 9
		c10 = c9 / 10
		c11 = c10 / 11
		c12 = c11 / 12
		c13 = c12 / 13
	)
	p := c12 + float64(c13*h)
	p = c11 + float64(p*h)
	p = c10 + float64(p*h)
	p = c9 + float64(p*h)
	p = c8 + float64(p*h)
	p = c7 + float64(p*h)
	p = c6 + float64(p*h)
	p = c5 + float64(p*h)
	p = c4 + float64(p*h)
	p = c3 + float64(p*h)
	p = c2 + float64(p*h)
	square := float64(h * h)
	rest := float64(square*p) + (l + float64(l*h))
	s, e := fastTwoSum(1, h)
	return s + (e + rest)
}
