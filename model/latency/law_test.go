package latency

import (
	"cmp"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

type vector struct {
	GPU         string      `json:"gpu"`
	Model       string      `json:"model"`
	TP          int         `json:"tp"`
	WeightDType string      `json:"weight_dtype"`
	KVDType     string      `json:"kv_dtype"`
	MoEDType    string      `json:"moe_dtype"`
	Calibration Calibration `json:"calibration"`
	DecodeRows  int32       `json:"decode_rows"`
	Context     int64       `json:"decode_context_sum"`
	Prefill     []struct {
		Tokens int32 `json:"tokens"`
		Past   int32 `json:"past"`
	} `json:"prefill"`
	Parts map[string]float64 `json:"parts_s"`
	Step  float64            `json:"step_s"`
}

func (v *vector) law(t testing.TB) *Law {
	t.Helper()
	l := newLaw(t, v.Model, v.GPU, Setup{TensorParallel: v.TP, WeightDType: v.WeightDType, KVDType: v.KVDType, MoEDType: v.MoEDType, Calibration: v.Calibration})
	return l
}

// batch follows the reference: every row samples, and the windowed context is
// cut as a whole because the vectors give the sum only.
func (v *vector) batch(window int32) *Batch {
	b := &Batch{DecodeRows: v.DecodeRows, DecodeContext: v.Context, Sampled: v.DecodeRows + int32(len(v.Prefill))}
	b.DecodeWindowed = min(v.Context, int64(v.DecodeRows)*int64(window))
	for _, c := range v.Prefill {
		b.Prefill = append(b.Prefill, Chunk{c.Tokens, c.Past})
	}
	return b
}

func newLaw(t testing.TB, model, gpu string, s Setup) *Law {
	t.Helper()
	var err error
	if s.Model, err = FindModel(model); err != nil {
		t.Fatal(err)
	}
	if s.GPU, err = FindGPU(gpu); err != nil {
		t.Fatal(err)
	}
	l, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// shared returns the optional data folder beside the repository, or
// skips. The variable lets the test cache see that it has come or gone; it forgets
// files outside the module.
func shared(t *testing.T, elem ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("the repository root was not found")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(append([]string{cmp.Or(os.Getenv("SLUICE_SHARED"), filepath.Join(dir, "..", "shared"))}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("optional data is absent: %v", err)
	}
	return path
}

func checkVectors(t *testing.T, path string, atLeast int) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) < atLeast {
		t.Fatalf("%d vectors, want at least %d", len(file.Vectors), atLeast)
	}
	var worst float64
	for i := range file.Vectors {
		v := &file.Vectors[i]
		l := v.law(t)
		b := v.batch(l.Window())
		p := l.Parts(b)
		got := map[string]float64{"linear": p.Linear, "moe": p.MoE, "attn": p.Attention, "elem": p.Elementwise, "comm": p.AllReduce, "head": p.Head}
		compare := func(part string, got, want float64) {
			d := math.Abs(got-want) / max(want, 1e-12)
			worst = max(worst, d)
			if d > 1e-6 {
				t.Errorf("vector %d (%s on %s, %d rows, chunks %v): %s = %v s, want %v (%.2g relative)", i, v.Model, v.GPU, v.DecodeRows, v.Prefill, part, got, want, d)
			}
		}
		for part, s := range got {
			compare(part, s, v.Parts[part]) // a part the vector lacks is 0
		}
		s := l.Seconds(b)
		compare("step", s, v.Step)
		if ps := float64(l.Picoseconds(b)); math.Abs(ps*1e-12-s) > 5e-4*s {
			t.Errorf("vector %d: %v picoseconds for %v seconds", i, ps, s)
		}
	}
	t.Logf("%d vectors, worst relative difference %.2g", len(file.Vectors), worst)
}

func TestReferenceSample(t *testing.T) {
	checkVectors(t, filepath.Join("testdata", "reference_vectors.json"), 20)
}

func TestReferenceVectors(t *testing.T) {
	checkVectors(t, shared(t, "calibration", "fitted", "reference_vectors.json"), 208)
}

// everySetup calls f for each pair of embedded cards that the tables allow and
// whose weights fit.
func everySetup(t *testing.T, f func(l *Law, c CapacityReport)) {
	t.Helper()
	count := 0
	for _, m := range Models() {
		for _, g := range GPUs() {
			for _, tp := range []int{1, 2, 4, 8} {
				for _, d := range [][3]string{{"bf16", "bf16", "bf16"}, {"fp8", "fp8", "fp8"}, {"nvfp4", "fp8", "nvfp4"}, {"bf16", "fp8", "mxfp4"}} {
					s := Setup{Model: m, GPU: g, TensorParallel: tp, WeightDType: d[0], KVDType: d[1], MoEDType: d[2]}
					l, err := New(s)
					if err != nil {
						continue
					}
					c, err := Capacity(s, DefaultCapacityOptions())
					if err != nil {
						continue
					}
					count++
					f(l, c)
				}
			}
		}
	}
	if count < 500 {
		t.Fatalf("only %d setups", count)
	}
	t.Log(count, "setups")
}

// integerDrift returns how far the integers are from the law at worst: B and C
// are rounded per context token.
func integerDrift(l *Law, capacity CapacityReport) (worst float64) {
	for _, n := range []int32{1, 8, 64, 256, 1024} {
		for _, context := range []int64{1, 1000, 16_000, 131_072} {
			total := int64(n) * context
			if total > capacity.Tokens() {
				continue
			}
			batch := &Batch{DecodeRows: n, DecodeContext: total, DecodeWindowed: int64(n) * min(context, int64(l.Window()))}
			want := l.Seconds(batch)
			worst = max(worst, math.Abs(float64(l.Picoseconds(batch))*1e-12-want)/want)
		}
	}
	return worst
}

func TestIntegerDecodeStep(t *testing.T) {
	var worst float64
	var where Setup
	smallest := int64(math.MaxInt64)
	everySetup(t, func(l *Law, c CapacityReport) {
		_, b, _ := l.DecodeCoefficients(1)
		smallest = min(smallest, b)
		if d := integerDrift(l, c); d > worst {
			worst, where = d, l.Setup()
		}
	})
	t.Logf("smallest B %d ps; worst %.2g: %s, %s tp%d, KV %s", smallest, worst, where.Model.Name, where.GPU.Name, where.TensorParallel, where.KVDType)
	if worst > 8e-4 {
		t.Errorf("the integer form is off by %v relative", worst)
	}
	// The smallest B of an embedded calibration.
	c, err := FindCalibration("gpt-oss-120b/b200/fp4")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range []string{"bf16", "fp8"} {
		for _, tp := range []int{1, 2, 4, 8} {
			l := newLaw(t, "gpt-oss-120b", "b200", Setup{TensorParallel: tp, KVDType: kv, MoEDType: "mxfp4", Calibration: c})
			capacity, err := Capacity(l.Setup(), DefaultCapacityOptions())
			if err != nil {
				t.Fatal(err)
			}
			_, b, _ := l.DecodeCoefficients(1)
			d := integerDrift(l, capacity)
			t.Logf("calibrated gpt-oss-120b on B200, tp%d, KV %s: B %d ps, off by %.2g", tp, kv, b, d)
			if d > 1.1e-3 {
				t.Errorf("off by %v relative", d)
			}
		}
	}
}

// The decode law is affine in both context sums on every card: the float law
// at a third point follows from two others.
func TestDecodeIsAffine(t *testing.T) {
	everySetup(t, func(l *Law, _ CapacityReport) {
		at := func(s, w int64) float64 {
			return l.Seconds(&Batch{DecodeRows: 32, DecodeContext: s, DecodeWindowed: w})
		}
		zero := at(0, 0)
		got, want := at(3_000_000, 2000), zero+3*(at(1_000_000, 0)-zero)+2*(at(0, 1000)-zero)
		if math.Abs(got-want) > 1e-12*want {
			t.Errorf("%s on %s: %v, want %v", l.Setup().Model.Name, l.Setup().GPU.Name, got, want)
		}
	})
}

// A chunk shorter than the window, by hand: the reference vectors have none.
// H200, gpt-oss-120b on one GPU: 64 heads of 64, 8 KV heads, half of 36 layers
// with a window of 128; 20 tokens after 30.
func TestWindowedChunk(t *testing.T) {
	l := newLaw(t, "gpt-oss-120b", "h200", Setup{MoEDType: "mxfp4"})
	const t0, flops, serial, io = 1.23e-05, 6.702e14, 8.868e-09, 1.431e12
	norm := func(a, b float64) float64 { return math.Pow(math.Pow(a, 4)+math.Pow(b, 4), 0.25) }
	layer := func(pairs, longest float64) float64 {
		return t0 + norm(4*64*64*pairs/flops, serial*longest) + 4*20*64*(64+8)/io
	}
	want := 18*layer(20*30+20*21/2, 50) + 18*layer(20*128, 50)
	if got := l.Parts(&Batch{Prefill: []Chunk{{20, 30}}, Sampled: 1}).Attention; math.Abs(got-want) > 1e-12*want {
		t.Errorf("attention %v s, want %v", got, want)
	}
	// Beyond the window its layers stop growing.
	want = 18*layer(20*5000+20*21/2, 5020) + 18*layer(20*128, 128)
	if got := l.Parts(&Batch{Prefill: []Chunk{{20, 5000}}, Sampled: 1}).Attention; math.Abs(got-want) > 1e-12*want {
		t.Errorf("attention %v s, want %v", got, want)
	}
}

// Walking k steps and jumping over them give the same integer.
func TestClosedFormEqualsWalking(t *testing.T) {
	for _, c := range []struct{ model, gpu string }{{"qwen3-30b-a3b", "h100"}, {"gpt-oss-120b", "h200"}} {
		l := newLaw(t, c.model, c.gpu, Setup{TensorParallel: 2})
		const n, k = 37, 1000
		context := int64(n * 5000)
		windowed := int64(n) * int64(l.Window())
		var walked int64
		for step := range int64(k) {
			walked += l.Picoseconds(&Batch{DecodeRows: n, DecodeContext: context + n*step, DecodeWindowed: windowed})
		}
		a, b, w := l.DecodeCoefficients(n)
		if jumped := k*a + b*(k*context+n*k*(k-1)/2) + k*w*windowed; jumped != walked {
			t.Errorf("%s: jumped %d, walked %d", c.model, jumped, walked)
		}
	}
}

// Properties that hold whatever the coefficients: more work never takes less
// time, the parts sum to the uncalibrated step, and calibration composes as the
// law says.
func TestProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct{ model, gpu string }{{"llama-3.1-8b", "l40s"}, {"qwen3-30b-a3b", "h100"}, {"gpt-oss-120b", "h200"}, {"qwen3-30b-a3b", "rtx pro 6000"}} {
		plain := newLaw(t, c.model, c.gpu, Setup{})
		cal := Calibration{C0: 1e-3, CSeq: 1e-5, KDec: 1.5, KPf: 0.7}
		tuned := newLaw(t, c.model, c.gpu, Setup{Calibration: cal})
		for range 200 {
			b := Batch{DecodeRows: rng.Int32N(100)}
			b.DecodeContext = int64(b.DecodeRows) * int64(1+rng.IntN(30_000))
			b.DecodeWindowed = min(b.DecodeContext, int64(b.DecodeRows)*int64(plain.Window()))
			for range 1 + rng.IntN(3) {
				b.Prefill = append(b.Prefill, Chunk{1 + rng.Int32N(2000), rng.Int32N(50_000)})
			}
			b.Sampled = b.DecodeRows + int32(len(b.Prefill))
			s := plain.Seconds(&b)
			if d := math.Abs(plain.Parts(&b).Total() - s); d > 1e-12*s {
				t.Fatalf("parts sum to %v, step is %v", plain.Parts(&b).Total(), s)
			}
			decode := 0.0
			if b.DecodeRows > 0 {
				decode = plain.Seconds(&Batch{DecodeRows: b.DecodeRows, DecodeContext: b.DecodeContext, DecodeWindowed: b.DecodeWindowed})
			}
			want := cal.C0 + cal.CSeq*float64(b.Sampled) + cal.KDec*decode + cal.KPf*(s-decode)
			if got := tuned.Seconds(&b); math.Abs(got-want) > 1e-12*want {
				t.Fatalf("calibrated %v, want %v", got, want)
			}
			if ps := plain.Picoseconds(&b); ps != int64(math.Round(s*1e12)) {
				t.Fatalf("%d ps for %v s", ps, s)
			}
			larger := b
			larger.Prefill = append([]Chunk(nil), b.Prefill...)
			larger.Prefill[0].Past += 1000
			if plain.Seconds(&larger) < s {
				t.Fatalf("a longer past is faster: %v", b)
			}
			larger.Prefill[0].Tokens += 200
			if plain.Seconds(&larger) < s {
				t.Fatalf("a longer chunk is faster: %v", b)
			}
		}
	}
}

// Values of the law pinned to the bit: they must be the same on every machine.
func TestPinnedPicoseconds(t *testing.T) {
	l := newLaw(t, "Qwen3-Coder-30B-A3B", "H100", Setup{TensorParallel: 2})
	a, b, c := l.DecodeCoefficients(64)
	mixed := l.Picoseconds(&Batch{DecodeRows: 64, DecodeContext: 1_000_000, Prefill: []Chunk{{512, 30_000}, {300, 0}}, Sampled: 66})
	tile := newLaw(t, "llama-3.1-8b", "A100", Setup{}).Picoseconds(&Batch{DecodeRows: 8, DecodeContext: 80_000, Prefill: []Chunk{{500, 1000}}, Sampled: 9})
	got := [5]int64{a, b, c, mixed, tile}
	want := [5]int64{14159839411, 16249, 0, 50398092308, 54057682783}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSetupErrors(t *testing.T) {
	m, _ := FindModel("deepseek-v3")
	q, _ := FindModel("qwen3-30b-a3b")
	h100, _ := FindGPU("h100")
	a100, _ := FindGPU("a100")
	for _, c := range []struct {
		s    Setup
		want string
	}{
		{Setup{}, "latency: a setup needs a model and a GPU card"},
		{Setup{Model: q, GPU: h100, TensorParallel: 3}, "tensor_parallel 3: it must divide the 32 query heads of qwen3-30b-a3b"},
		{Setup{Model: q, GPU: h100, TensorParallel: -1}, "tensor_parallel -1: it must divide the 32 query heads of qwen3-30b-a3b"},
		{Setup{Model: q, GPU: h100, TensorParallel: 16}, "gpu h100_sxm: the card has no row allreduce.16; it has [2 4 8]"},
		{Setup{Model: q, GPU: h100, WeightDType: "int4"}, `unknown weight dtype "int4": want bf16, fp8, fp8_block, nvfp4 or mxfp4`},
		{Setup{Model: q, GPU: h100, WeightDType: "nvfp4"}, "gpu h100_sxm: the card has no row gemm.nvfp4; it has [bf16 fp8]"},
		{Setup{Model: q, GPU: h100, MoEDType: "nvfp4"}, "gpu h100_sxm: the card has no row moe.nvfp4; it has [bf16 fp8 fp8_block mxfp4]"},
		{Setup{Model: q, GPU: a100, KVDType: "fp8"}, "gpu a100_sxm: the card has no row attn_decode.fp8; it has [bf16]"},
		{Setup{Model: m, GPU: a100, TensorParallel: 8}, "gpu a100_sxm: the card has no mla_decode table, which this model needs"},
		{Setup{Model: q, GPU: h100, KVDType: "fp4"}, `unknown KV dtype "fp4": want bf16 or fp8`},
		{Setup{Model: q, GPU: h100, Calibration: Calibration{KDec: -1}}, "calibration kdec = -1: want 0.01 to 100"},
	} {
		if _, err := New(c.s); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestPolicyDefaults(t *testing.T) {
	l := newLaw(t, "qwen3-30b-a3b", "h100", Setup{TensorParallel: 1})
	rate := l.PrefillRate(8192)
	if want := 8192 / l.Seconds(&Batch{Prefill: []Chunk{{8192, 0}}, Sampled: 1}); math.Abs(rate-want) > 1e-9*want {
		t.Errorf("rate of one chunk %v, want %v", rate, want)
	}
	if long := l.PrefillRate(100_000); long >= rate {
		t.Errorf("100k tokens at %v tokens/s, 8k at %v", long, rate)
	}
	// By FLOPs alone the model's L_eq is 2*2717908992/(4*48*32*128) = 6912.
	t.Logf("prefill rate at 8k %.0f tokens/s, at 100k %.0f; attention doubles at %.0f tokens", rate, l.PrefillRate(100_000), l.AttentionDoubling())
	doubling := l.AttentionDoubling()
	if doubling < 6912/2 || doubling > 6912*4 {
		t.Errorf("attention doubles the cost at %v tokens", doubling)
	}
	at := func(past int32) float64 {
		return l.Seconds(&Batch{Prefill: []Chunk{{8192, past}}, Sampled: 1})
	}
	// Where attention dominates its smooth maximum, the slope is the law's.
	slope := (at(100_000) - at(50_000)) / 50_000 / 8192
	perToken := (l.tokenSeconds(8192) - l.tokenSeconds(4096)) / 4096
	if d := slope * doubling / perToken; d < 0.95 || d > 1.1 {
		t.Errorf("attention at the doubling context costs %v of the rest", d)
	}
}

// What policies take from the law must be usable for every setup.
func TestPolicyDefaultsEverywhere(t *testing.T) {
	low, high := math.Inf(1), 0.0
	everySetup(t, func(l *Law, _ CapacityReport) {
		doubling, rate := l.AttentionDoubling(), l.PrefillRate(8192)
		low, high = min(low, doubling), max(high, doubling)
		if !(doubling > 100 && doubling < 1e7) || !(rate > 10 && rate < 1e7) {
			s := l.Setup()
			t.Errorf("%s on %d %s in %s: doubling at %v tokens, %v tokens/s", s.Model.Name, s.TensorParallel, s.GPU.Name, s.WeightDType, doubling, rate)
		}
	})
	// The largest are GPUs that reduce over PCIe, where attention hardly matters.
	t.Logf("attention doubles the cost between %.0f and %.0f tokens", low, high)
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	l := newLaw(t, "qwen3-30b-a3b", "a100", Setup{TensorParallel: 2})
	b := mixedBatch()
	if n := testing.AllocsPerRun(100, func() { l.Picoseconds(b) }); n != 0 {
		t.Errorf("%v allocations per mixed step", n)
	}
	d := &Batch{DecodeRows: 64, DecodeContext: 1_000_000}
	if n := testing.AllocsPerRun(100, func() { l.Picoseconds(d) }); n != 0 {
		t.Errorf("%v allocations per decode step", n)
	}
}

func mixedBatch() *Batch {
	return &Batch{DecodeRows: 64, DecodeContext: 1_000_000, Prefill: []Chunk{{512, 30_000}, {300, 0}, {1000, 17}, {4000, 9000}}, Sampled: 68}
}

var sink int64

func BenchmarkDecodeStep(b *testing.B) {
	l := newLaw(b, "qwen3-30b-a3b", "h100", Setup{TensorParallel: 2})
	batch := &Batch{DecodeRows: 64, DecodeContext: 1_000_000}
	b.ReportAllocs()
	for b.Loop() {
		batch.DecodeContext += 64
		sink += l.Picoseconds(batch)
	}
}

func BenchmarkMixedStep(b *testing.B) {
	for _, gpu := range []string{"h100", "a100"} {
		b.Run(gpu, func(b *testing.B) {
			l := newLaw(b, "qwen3-30b-a3b", gpu, Setup{TensorParallel: 2})
			batch := mixedBatch()
			b.ReportAllocs()
			for b.Loop() {
				batch.Prefill[0].Past++
				sink += l.Picoseconds(batch)
			}
		})
	}
}

// A token count that the tables have not seen yet.
func BenchmarkTokenTerms(b *testing.B) {
	l := newLaw(b, "qwen3-30b-a3b", "h100", Setup{TensorParallel: 2})
	var s float64
	for i := int64(1); b.Loop(); i++ {
		s += l.tokenParts(i%8192 + 1).Total()
	}
	sink = int64(s)
}
