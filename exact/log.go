package exact

import "math"

// Log returns the natural logarithm of x. Log(+Inf) = +Inf, Log(0) = -Inf,
// Log(x < 0) = NaN, Log(NaN) = NaN.
func Log(x float64) float64 {
	if v, special := logSpecial(x); special {
		return v
	}
	h, l := logSum(x)
	return h + l
}

// Log2 returns the binary logarithm of x. It is exact for powers of two, and
// treats special values as Log does.
func Log2(x float64) float64 {
	if v, special := logSpecial(x); special {
		return v
	}
	k, m := reduce(x)
	h, l := logNearOne(m)
	h, l = multiply(h, l, math.Log2E, log2eLo)
	s, e := twoSum(float64(k), h)
	return s + (e + l)
}

func logSpecial(x float64) (v float64, special bool) {
	switch {
	case x != x || x > math.MaxFloat64:
		return x, true
	case x < 0:
		return notANumber(), true
	case x == 0:
		return -positiveInf(), true
	}
	return 0, false
}

// logSum returns log(x) as an unevaluated sum with about 65 significant bits,
// for finite x > 0.
func logSum(x float64) (hi, lo float64) {
	k, m := reduce(x)
	h, l := logNearOne(m)
	f := float64(k)
	s, e := twoSum(float64(f*ln2Hi), h)
	return fastTwoSum(s, e+(l+float64(f*ln2Lo)))
}

// reduce returns k and m with x = m * 2^k and sqrt(1/2) <= m < sqrt(2).
func reduce(x float64) (k int, m float64) {
	if x < 0x1p-1022 {
		x = float64(x * 0x1p54)
		k = -54
	}
	b := math.Float64bits(x)
	k += int(b>>fracBits) - expBias
	m = math.Float64frombits(b&fracMask | expBias<<fracBits)
	if m > math.Sqrt2 {
		m = float64(m * 0.5)
		k++
	}
	return k, m
}

// logNearOne returns log(m) for sqrt(1/2) <= m <= sqrt(2), from
// log m = 2 atanh(s) = s (2 + s^2 (2/3 + s^2 (2/5 + ...))), s = (m-1)/(m+1).
// Terms from 2/5 on are plain float64: they are below 1/2000 of the result.
func logNearOne(m float64) (hi, lo float64) {
	f := m - 1 // exact
	if f == 0 {
		return 0, 0
	}
	dh, dl := twoSum(m, 1)
	sh := f / dh
	p, e := twoProduct(sh, dh)
	sl := ((f - p) - e - float64(sh*dl)) / dh

	qh, ql := multiply(sh, sl, sh, sl)
	q := qh
	r := 2.0/23 + float64(q*(2.0/25))
	r = 2.0/21 + float64(r*q)
	r = 2.0/19 + float64(r*q)
	r = 2.0/17 + float64(r*q)
	r = 2.0/15 + float64(r*q)
	r = 2.0/13 + float64(r*q)
	r = 2.0/11 + float64(r*q)
	r = 2.0/9 + float64(r*q)
	r = 2.0/7 + float64(r*q)
	r = 2.0/5 + float64(r*q)
	r = float64(r * q)

	const (
		third   = 0x1.5555555555555p-1 // 2/3 as a float64
		thirdLo = 2.0/3 - third
	)
	th, tl := fastTwoSum(third, r)
	tl += thirdLo
	uh, ul := multiply(qh, ql, th, tl)
	wh, wl := fastTwoSum(2, uh)
	return multiply(sh, sl, wh, wl+ul)
}
