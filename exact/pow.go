package exact

import "math"

// Pow returns x to the power y. In order:
// Pow(x, 0) = 1 and Pow(1, y) = 1 for every x and y, NaN included;
// NaN if either is NaN;
// a negative x gives NaN unless y is whole, and a negative result for odd y;
// zeros and infinities as package math.
func Pow(x, y float64) float64 {
	switch {
	case y == 0 || x == 1:
		return 1
	case x != x || y != y:
		return notANumber()
	case y == 1:
		return x
	case isInf(y):
		return powOfInfinity(x, y)
	}
	whole, odd := parity(y)
	negative := math.Float64bits(x)>>63 == 1
	magnitude := x
	if negative {
		magnitude = -x
		if !whole && magnitude != 0 && !isInf(x) {
			return notANumber()
		}
	}
	result := powPositive(magnitude, y)
	if negative && odd {
		return -result
	}
	return result
}

func powOfInfinity(x, y float64) float64 {
	if x < 0 {
		x = -x
	}
	switch {
	case x == 1:
		return 1
	case (x > 1) == (y > 0):
		return positiveInf()
	}
	return 0
}

// powPositive returns x^y for x >= 0, +Inf included, and finite y != 0.
func powPositive(x, y float64) float64 {
	switch {
	case x == 0 && y > 0, isInf(x) && y < 0:
		return 0
	case x == 0 || isInf(x):
		return positiveInf()
	case x == 1:
		return 1
	}
	h, l := logSum(x)
	switch p := float64(h * y); {
	case p > 710:
		return positiveInf()
	case p < -746:
		return 0
	}
	ph, pl := twoProduct(h, y)
	return expOfSum(ph, pl+float64(l*y))
}

// parity tells whether a finite y is a whole number and whether it is odd.
func parity(y float64) (whole, odd bool) {
	if y < 0 {
		y = -y
	}
	if y >= 1<<53 {
		return true, false
	}
	i := int64(y)
	return float64(i) == y, float64(i) == y && i&1 == 1
}
