package exact

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

const truthBits = 200

func newBig() *big.Float { return new(big.Float).SetPrec(truthBits) }

// bigExp returns e^x from the Taylor series of x/2^20.
func bigExp(x *big.Float) *big.Float {
	const halvings = 20
	r := newBig().SetMantExp(x, -halvings)
	term, sum := newBig().SetInt64(1), newBig().SetInt64(1)
	for i := int64(1); i < 20; i++ {
		term.Mul(term, r)
		term.Quo(term, newBig().SetInt64(i))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLog returns log(x) by two Newton steps on bigExp.
func bigLog(x float64) *big.Float {
	y := newBig().SetFloat64(Log(x))
	for range 2 {
		q := newBig().Quo(newBig().SetFloat64(x), bigExp(y)) // 1 + error
		y.Add(y, q.Sub(q, newBig().SetInt64(1)))
	}
	return y
}

// ulpError returns the error of got in units in the last place of the truth.
func ulpError(got float64, truth *big.Float) float64 {
	f, _ := truth.Float64()
	ulp := math.Abs(math.Nextafter(f, math.Inf(1)) - f)
	d, _ := newBig().Sub(newBig().SetFloat64(got), truth).Float64()
	return math.Abs(d) / ulp
}

func TestAgainstTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	worst := map[string]float64{}
	check := func(name string, x, y, got float64, truth *big.Float) {
		t.Helper()
		e := ulpError(got, truth)
		worst[name] = max(worst[name], e)
		if e > 1 {
			t.Fatalf("%s(%v, %v) = %v is off by %v ulp", name, x, y, got, e)
		}
	}
	for i := range 4_000 {
		x := rng.Float64()*1400 - 700
		if i%2 == 0 {
			x = rng.Float64()*2 - 1
		}
		check("Exp", x, 0, Exp(x), bigExp(newBig().SetFloat64(x)))
		y := math.Ldexp(rng.Float64()+0.5, rng.IntN(1900)-950)
		if i%2 == 0 {
			y = rng.Float64() + 0.5
		}
		log := bigLog(y)
		check("Log", y, 0, Log(y), log)
		if i%4 == 0 {
			two := bigLog(2)
			check("Log2", y, 0, Log2(y), newBig().Quo(log, two))
			check("Exp2", x, 0, Exp2(x), bigExp(two.Mul(two, newBig().SetFloat64(x))))
		}
		power := (rng.Float64() - 0.5) * 1400 / math.Log(y) // results over the whole range
		truth := bigExp(log.Mul(log, newBig().SetFloat64(power)))
		check("Pow", y, power, Pow(y, power), truth)
	}
	t.Log("worst error in ulp:", worst)
}
