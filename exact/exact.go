// Package exact holds arithmetic that gives the same bits on every machine.
//
// The functions of package math are not that: Exp, Log and Pow are written in
// assembly on some architectures and differ in the last digit, and a product
// that meets a sum may be fused into one rounding on arm64 and on newer amd64
// levels. Everything here is made of + - * / and comparisons on float64, with
// every product that meets a sum wrapped in float64(), which forbids fusing;
// results are wrapped too, since a caller may add them after inlining.
// From package math it takes only constants and the bit casts.
//
// Errors, measured by the tests: Exp, Exp2, Log, Log2 and Pow are within 1 ulp
// of the true value for results that are not subnormal; NormQuantile is within
// a few 1e-16 relative of the true quantile.
//
// Special values follow package math unless a function says otherwise.
package exact

import "math"

// ln2Hi has 33 significant bits, so that k*ln2Hi is exact for every exponent k
// of a float64. The constant arithmetic below is carried out by the compiler in
// far more than 53 bits.
const (
	ln2Hi    = 0x1.62e42feep-1
	ln2Lo    = math.Ln2 - ln2Hi
	ln2Rest  = math.Ln2 - 0x1.62e42fefa39efp-1    // what float64(ln 2) leaves out
	log2eLo  = math.Log2E - 0x1.71547652b82fep+00 // what float64(log2 e) leaves out
	inf      = 0x7FF0000000000000
	fracBits = 52
	fracMask = 1<<fracBits - 1
	expBias  = 1023
)

func isInf(x float64) bool { return x-x != 0 && x == x }

func positiveInf() float64 { return math.Float64frombits(inf) }

func notANumber() float64 { return math.Float64frombits(0x7FF8000000000001) }

// twoSum returns a+b as a rounded sum and its exact error (Knuth).
func twoSum(a, b float64) (sum, err float64) {
	sum = a + b
	bb := sum - a
	err = (a - (sum - bb)) + (b - bb)
	return sum, err
}

// fastTwoSum is twoSum for |a| >= |b| or a = 0 (Dekker).
func fastTwoSum(a, b float64) (sum, err float64) {
	sum = a + b
	err = b - (sum - a)
	return sum, err
}

// split cuts a into two halves of at most 26 bits (Veltkamp); |a| < 2^996.
func split(a float64) (hi, lo float64) {
	const factor = 1<<27 + 1
	t := float64(factor * a)
	hi = t - float64(t-a)
	lo = a - hi
	return hi, lo
}

// twoProduct returns a*b as a rounded product and its exact error (Dekker),
// as long as nothing over- or underflows.
func twoProduct(a, b float64) (product, err float64) {
	product = float64(a * b)
	ah, al := split(a)
	bh, bl := split(b)
	err = float64(ah*bh) - product
	err += float64(ah * bl)
	err += float64(al * bh)
	err += float64(al * bl)
	return product, err
}

// multiply returns the product of two unevaluated sums.
func multiply(ah, al, bh, bl float64) (hi, lo float64) {
	p, e := twoProduct(ah, bh)
	e += float64(ah*bl) + float64(al*bh)
	return fastTwoSum(p, e)
}

// scale returns x * 2^k for x near 1 and -1100 < k < 1100, rounded once when
// the result is subnormal.
func scale(x float64, k int) float64 {
	switch {
	case k > expBias:
		return float64(float64(x*powerOfTwo(expBias)) * powerOfTwo(k-expBias))
	case k <= -expBias+2:
		return float64(float64(x*powerOfTwo(k+128)) * powerOfTwo(-128))
	}
	return float64(x * powerOfTwo(k))
}

// powerOfTwo returns 2^k for -1022 <= k <= 1023.
func powerOfTwo(k int) float64 {
	return math.Float64frombits(uint64(k+expBias) << fracBits)
}
