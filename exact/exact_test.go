package exact

import (
	"math"
	"math/rand/v2"
	"testing"
)

// ulps returns the distance of two finite floats of equal sign in units in the
// last place.
func ulps(a, b float64) float64 {
	if a == b || (a != a && b != b) {
		return 0
	}
	if math.IsNaN(a) || math.IsNaN(b) || math.IsInf(a, 0) || math.IsInf(b, 0) || math.Signbit(a) != math.Signbit(b) {
		return math.Inf(1)
	}
	return math.Abs(float64(int64(math.Float64bits(a)) - int64(math.Float64bits(b))))
}

func TestAgainstMath(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	worst := map[string]float64{}
	check := func(name string, x, got, want, limit float64) {
		t.Helper()
		d := ulps(got, want)
		worst[name] = max(worst[name], d)
		if d > limit {
			t.Fatalf("%s(%v) = %v, want %v (%v ulp)", name, x, got, want, d)
		}
	}
	for range 200_000 {
		x := rng.Float64()*1400 - 700
		check("Exp", x, Exp(x), math.Exp(x), 2)
		x = rng.Float64()*4 - 2
		check("Exp", x, Exp(x), math.Exp(x), 2)
		x = rng.Float64()*2000 - 1000
		check("Exp2", x, Exp2(x), math.Exp2(x), 2)
		x = math.Ldexp(0.5+rng.Float64(), rng.IntN(2000)-1000)
		check("Log", x, Log(x), math.Log(x), 2)
		x = 0.5 + rng.Float64()
		check("Log", x, Log(x), math.Log(x), 2)
		x = 1 + math.Ldexp(rng.Float64()-0.5, -rng.IntN(40))
		check("Log", x, Log(x), math.Log1p(x-1), 2)
		check("Log2", x, Log2(x), math.Log1p(x-1)*math.Log2E, 4)
	}
	t.Log("worst ulp:", worst)
}

func TestPow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var worst float64
	for range 200_000 {
		x := math.Ldexp(0.5+rng.Float64(), rng.IntN(80)-40)
		y := rng.Float64()*40 - 20
		got, want := Pow(x, y), math.Pow(x, y)
		if math.IsInf(want, 0) || want < 0x1p-1022 {
			continue
		}
		d := math.Abs(got-want) / want
		worst = max(worst, d)
		if d > 1e-14 {
			t.Fatalf("Pow(%v, %v) = %v, want %v", x, y, got, want)
		}
	}
	t.Log("worst relative difference from math.Pow:", worst)
}

// Exact powers have known answers whatever math.Pow says.
func TestPowExact(t *testing.T) {
	for n := 1; n <= 33; n++ {
		want := 1.0
		for range n {
			want *= 3
		}
		if got := Pow(3, float64(n)); got != want {
			t.Errorf("Pow(3, %d) = %v, want %v", n, got, want)
		}
		if got := Pow(want, 1/float64(n)); n == 1 && got != 3 {
			t.Errorf("Pow(%v, 1) = %v", want, got)
		}
	}
	for k := -1074; k <= 1023; k++ {
		want := math.Ldexp(1, k)
		if got := Exp2(float64(k)); got != want {
			t.Errorf("Exp2(%d) = %v", k, got)
		}
		if got := Pow(2, float64(k)); got != want {
			t.Errorf("Pow(2, %d) = %v", k, got)
		}
		if got := Log2(want); got != float64(k) {
			t.Errorf("Log2(2^%d) = %v", k, got)
		}
	}
}

func TestSpecialValues(t *testing.T) {
	values := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1e300, -1e300, 1 << 53,
		math.Inf(1), math.Inf(-1), math.NaN(), 5e-324, math.MaxFloat64, 710, -750, 2000, -2000}
	same := func(a, b float64) bool {
		return (a != a && b != b) || math.Float64bits(a) == math.Float64bits(b) || ulps(a, b) <= 2
	}
	for _, x := range values {
		for _, f := range []struct {
			name      string
			got, want func(float64) float64
		}{{"Exp", Exp, math.Exp}, {"Exp2", Exp2, math.Exp2}, {"Log", Log, math.Log}, {"Log2", Log2, math.Log2}} {
			want := f.want(x)
			if f.name == "Log" && x == 5e-324 {
				want = -744.4400719213812 // math.Log is wrong on amd64 for subnormal numbers
			}
			if got := f.got(x); !same(got, want) {
				t.Errorf("%s(%v) = %v, want %v", f.name, x, got, want)
			}
		}
		for _, y := range values {
			if got, want := Pow(x, y), math.Pow(x, y); !same(got, want) {
				t.Errorf("Pow(%v, %v) = %v, want %v", x, y, got, want)
			}
		}
	}
	for _, c := range []struct{ p, want float64 }{{0, math.Inf(-1)}, {1, math.Inf(1)}, {-0.1, math.NaN()},
		{1.1, math.NaN()}, {math.NaN(), math.NaN()}, {0.5, 0}} {
		if got := NormQuantile(c.p); !same(got, c.want) {
			t.Errorf("NormQuantile(%v) = %v, want %v", c.p, got, c.want)
		}
	}
}

func TestNormQuantile(t *testing.T) {
	// Published percentage points.
	for _, c := range []struct{ p, want float64 }{
		{0.975, 1.959963984540054}, {0.95, 1.6448536269514722}, {0.99, 2.3263478740408408},
		{0.75, 0.6744897501960817}, {0.001, -3.090232306167813}, {1e-10, -6.361340902404056}} {
		if got := NormQuantile(c.p); math.Abs(got-c.want) > 1e-14*math.Abs(c.want) {
			t.Errorf("NormQuantile(%v) = %v, want %v", c.p, got, c.want)
		}
	}
	// And the distribution function must give p back.
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		p := math.Exp(-rng.Float64() * 200)
		x := NormQuantile(p)
		back := 0.5 * math.Erfc(-x/math.Sqrt2)
		// The relative error of the tail is about x^2 times that of x.
		if d := math.Abs(back-p) / p; d > 1e-15*(10+x*x) {
			t.Fatalf("NormQuantile(%v) = %v, whose probability is %v", p, x, back)
		}
		if p < 0.5 && NormQuantile(1-p) < 0 {
			t.Fatalf("NormQuantile(%v) is negative", 1-p)
		}
	}
}

// Bit patterns: the same on amd64 v1, v3 and arm64.
func TestPinnedBits(t *testing.T) {
	for _, c := range []struct {
		name string
		got  float64
		want uint64
	}{
		{"Exp(1)", Exp(1), 0x4005bf0a8b145769},
		{"Exp(-0.1)", Exp(-0.1), 0x3fecf46d99d52b3a},
		{"Exp(123.456)", Exp(123.456), 0x4b11428e1cbc0143},
		{"Exp2(0.3)", Exp2(0.3), 0x3ff3b2c47bff8329},
		{"Exp2(-77.7)", Exp2(-77.7), 0x3b13b2c47bff831e},
		{"Log(2)", Log(2), 0x3fe62e42fefa39ef},
		{"Log(1.1)", Log(1.1), 0x3fb8663f793c46cc},
		{"Log(1e300)", Log(1e300), 0x4085963447f87fb5},
		{"Log2(10)", Log2(10), 0x400a934f0979a371},
		{"Pow(1.7, 2.225)", Pow(1.7, 2.225), 0x400a0d471879bbb0},
		{"Pow(1e-9, 0.4)", Pow(1e-9, 0.4), 0x3f30763f01e8e5ac},
		{"Pow(1.0000001, 7e9)", Pow(1.0000001, 7e9), 0x7f0d941ae6e762d4},
		{"NormQuantile(0.9)", NormQuantile(0.9), 0x3ff4813c36e26d34},
		{"NormQuantile(0.001)", NormQuantile(0.001), 0xc008b8cbb7204470},
		{"NormQuantile(1e-20)", NormQuantile(1e-20), 0xc022865170b43a4b},
		{"LogNormal(3, 1.5, 0.3)", LogNormal(3, 1.5, 0.3), 0x3ff5dbd58688ccb2},
	} {
		if got := math.Float64bits(c.got); got != c.want {
			t.Errorf("%s = %v = %#x, want %#x", c.name, c.got, got, c.want)
		}
	}
	// A digest over many arguments catches what single vectors miss.
	var digest uint64
	for i := range uint64(20_000) {
		u := Uniform(Hash1(7, i))
		for _, v := range []float64{Exp(100 * (u - 0.5)), Log(u), Pow(u, 3.7), Pow(1e6*u, 1/2.225), NormQuantile(u), LogNormal(10, 2, u), Exp2(u), Log2(u)} {
			digest = Hash1(digest, math.Float64bits(v))
		}
	}
	if want := uint64(0x4d32c8f322fbe1c5); digest != want {
		t.Errorf("digest %#x, want %#x", digest, want)
	}
}

func TestHash(t *testing.T) {
	for _, c := range []struct{ got, want uint64 }{
		{Mix(1), 0x5692161d100b05e5},
		{Hash1(1, 2), 0xbcd9dbb49673066b}, {Hash2(1, 2, 3), 0xd0734750fde362b3}, {Hash3(1, 2, 3, 4), 0xd55ccd4aeb3ccafb}, {Hash4(1, 2, 3, 4, 5), 0x90bb69b7166551de}, {Hash1(0, 0), 0xa706dd2f4d197e6f},
	} {
		if c.got != c.want {
			t.Errorf("%#x, want %#x", c.got, c.want)
		}
	}
	// Neighbouring keys: every output bit is set half of the time, and
	// flipping any one input bit flips about half of the output.
	const n = 1 << 14
	var ones [64]int
	flips := 0
	for i := range uint64(n) {
		h := Hash3(42, 1, i, 2)
		for b := range ones {
			ones[b] += int(h >> b & 1)
		}
		for x := h ^ Hash3(42, 1, i^1<<(i%14), 2); x != 0; x &= x - 1 {
			flips++
		}
	}
	for b, k := range ones {
		if math.Abs(float64(k)-n/2) > 5*math.Sqrt(n/4) {
			t.Errorf("bit %d is set in %d of %d", b, k, n)
		}
	}
	if mean := float64(flips) / n; mean < 31.5 || mean > 32.5 {
		t.Errorf("one input bit flips %v output bits", mean)
	}
	if Hash2(1, 2, 3) == Hash2(1, 3, 2) || Hash2(1, 2, 3) == Hash2(2, 1, 3) {
		t.Error("the order of keys does not matter")
	}
}

func TestUniform(t *testing.T) {
	if u := Uniform(0); u <= 0 {
		t.Errorf("Uniform(0) = %v", u)
	}
	if u := Uniform(math.MaxUint64); u >= 1 {
		t.Errorf("Uniform(max) = %v", u)
	}
	var sum, squares float64
	const n = 100_000
	for i := range uint64(n) {
		x := NormQuantile(Uniform(Hash2(9, 9, i)))
		sum += x
		squares += x * x
	}
	if math.Abs(sum/n) > 0.02 || math.Abs(squares/n-1) > 0.03 {
		t.Errorf("normal draws have mean %v and mean square %v", sum/n, squares/n)
	}
	var counts [7]int
	for i := range uint64(70_000) {
		counts[UniformInt(Hash1(3, i), 7)]++
	}
	for v, k := range counts {
		if k < 9_500 || k > 10_500 {
			t.Errorf("value %d drawn %d times of 70000", v, k)
		}
	}
}

func TestRoundToInt64(t *testing.T) {
	for _, c := range []struct {
		x    float64
		want int64
		ok   bool
	}{
		{0.5, 1, true}, {-0.5, -1, true}, {0.49999999999999994, 0, true}, {2.5, 3, true}, {-2.4, -2, true},
		{1 << 53, 1 << 53, true}, {4503599627370497.5, 4503599627370498, true}, {-(1 << 63), math.MinInt64, true},
		{1 << 63, math.MaxInt64, false}, {1e30, math.MaxInt64, false}, {-1e30, math.MinInt64, false},
		{math.NaN(), 0, false}, {math.Inf(1), math.MaxInt64, false}, {math.Inf(-1), math.MinInt64, false},
	} {
		if v, ok := RoundToInt64(c.x); v != c.want || ok != c.ok {
			t.Errorf("RoundToInt64(%v) = %d, %v, want %d, %v", c.x, v, ok, c.want, c.ok)
		}
	}
}

var sink float64

func BenchmarkExp(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		sink = Exp(float64(i&1023) * 0.1)
	}
}

func BenchmarkPow(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		sink = Pow(float64(i&1023)+1.5, 2.225)
	}
}
