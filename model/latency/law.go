// Package latency says how long one vLLM engine step takes on a given model,
// GPU and tensor-parallel degree, and how much KV memory a replica has.
//
// # The law
//
// With p the tensor-parallel degree, T the tokens of the step (decode rows plus
// chunk tokens), S the total context of the decode rows (the token being
// computed included), and norm_q(a, b) = (a^q + b^q)^(1/q), G is the sum of
//
//	linear     per layer, gemm(m,n,k) = t0 + act (m k ab + 2 m n)/bw + norm_q(n k wb/bw, 2 m n k/flops)
//	moe        per MoE layer, t0 + norm_q(Ea 3 h I/p wb/bw, 6 T k h I/p/flops (1 + pad Ea/(T k))) + 6 T k (h + I/p)/act_bw
//	           + router gemm + shared expert, with Ea = E (1 - (1 - k/E)^T) experts touched
//	attention  decode: t0 + per_seq n + KV bytes/bw; prefill: t0 + norm_4(flops, serial longest context) + io
//	elem       layers (per_layer + bytes/hbm_bw)
//	allreduce  2 layers (t0 + 2 T h/bw) when p > 1
//	head       gemm(rows that sample, V/p, h) + sampler
//
// and a step takes c0 + cseq n + kdec G(decode rows) + kpf (G(all) - G(decode
// rows)), where n is the number of decode rows and chunks. On GPUs whose
// attention kernel is of kind tile, a step with both kinds of rows runs one
// kernel, and G(decode rows) is still that of a pure decode step. Layers with a
// sliding window see the context cut to the window. The cards hold the
// coefficients; their fit to measured kernels is described in their status.
//
// The law has no padding to CUDA graph sizes and no overlap of host and GPU.
//
// # Integers
//
// The simulator's time is int64 picoseconds. A batch of decodes only takes
// A(n) + B DecodeContext + C DecodeWindowed with A, B, C rounded to picoseconds
// once, so k steps in closed form and k steps one by one give the same integer.
// B and C do not depend on n in this law: GQA reads bytes in proportion to the
// context, MLA takes a 2-norm of two terms that are both proportional to it.
// Rounding B moves a step by at most half a picosecond per context token. B is
// thousands of picoseconds for most setups and 220 for the smallest one. Over
// every pair of embedded cards, dtypes, tensor-parallel 1 to 8, 1 to 1024 rows
// and contexts to 131072 tokens, as far as the KV memory holds them, the rounded
// form is within 7e-4 of the float law, and within 1.1e-3 for the embedded
// calibration that makes B smallest (gpt-oss-120b on 8 B200 with fp8 KV and
// millions of tokens of context). Tests hold both bounds. That is far below the
// error of the law itself, so there is no finer unit.
//
// Every other batch is the float law rounded once. All arithmetic is of package
// exact and of wrapped products, so it is the same on every machine.
package latency

import (
	"fmt"
	"math"

	"github.com/sluice-sim/sluice/exact"
)

// Setup is what a Law is bound to.
type Setup struct {
	Model          *Model
	GPU            *GPU
	TensorParallel int // GPUs that share a replica; 0 means 1

	WeightDType string // bf16 (also for ""), fp8, nvfp4, as far as the GPU card has a gemm row
	KVDType     string // bf16 (also for "") or fp8
	MoEDType    string // of the routed experts: bf16, fp8, nvfp4, mxfp4; "" means WeightDType

	Calibration Calibration
}

// Chunk is one prefill chunk of a step.
type Chunk struct {
	Tokens int32 // computed in this step, at least 1
	Past   int32 // already in KV
}

// Batch is the shape of one step. Numbers are not negative; nothing checks it.
type Batch struct {
	DecodeRows     int32 // rows that compute one token on top of a context
	DecodeContext  int64 // sum of their contexts, the token being computed included
	DecodeWindowed int64 // sum of min(context, window); not read for a model without a window
	Prefill        []Chunk

	// Sampled is the number of rows whose logits are computed. vLLM does so for
	// the last row of every request, of unfinished chunks too: pass DecodeRows +
	// len(Prefill) to follow it. Not read for a batch of decodes only, where all
	// rows sample.
	Sampled int32
}

// Parts is the time of a step by component, in seconds, before calibration.
type Parts struct {
	Linear, MoE, Attention, Elementwise, AllReduce, Head float64
}

// Total returns the sum of the parts: G of the package comment.
func (p Parts) Total() float64 {
	return p.Linear + p.MoE + p.Attention + p.Elementwise + p.AllReduce + p.Head
}

// Law is the step time of one setup. It keeps tables that grow on demand, so it
// must not be used by two goroutines at a time.
type Law struct {
	setup Setup
	cal   Calibration

	linear, moeGEMM []gemm
	routed          experts
	hasMoE          bool
	head            gemm
	sampler         float64
	perLogits       float64 // seconds of sampling per row
	elemFixed       float64
	elemPerToken    float64
	allReduceFixed  float64
	allReduceToken  float64

	attn               attention
	fullLayers         float64
	windowedLayers     float64
	window             int64
	decodeB, decodeC   int64     // picoseconds per token of context
	decodeA            []int64   // by rows; 0 is not computed yet
	byTokens, bySample []float64 // seconds; 0 is not computed yet
}

// New checks a setup and binds the law to it. Errors name the card and the row
// that is missing, or the field that does not fit the model.
func New(s Setup) (*Law, error) {
	s, err := s.resolve()
	if err != nil {
		return nil, err
	}
	l := &Law{setup: s, cal: s.Calibration}
	if l.attn, err = newAttention(&s, s.Model, s.GPU); err != nil {
		return nil, err
	}
	if err := l.bindLinear(); err != nil {
		return nil, err
	}
	if err := l.bindMoE(); err != nil {
		return nil, err
	}
	if err := l.bindRest(); err != nil {
		return nil, err
	}
	l.window = int64(s.Model.Window)
	l.windowedLayers = float64(s.Model.WindowedLayers())
	l.fullLayers = float64(s.Model.Layers) - l.windowedLayers
	perContext := l.cal.KDec * l.attn.perContext
	l.decodeB, _ = picoseconds(l.fullLayers * perContext)
	l.decodeC, _ = picoseconds(l.windowedLayers * perContext)
	return l, nil
}

// Setup returns the setup the law is bound to, with defaults filled in.
func (l *Law) Setup() Setup { return l.setup }

// Window returns the model's sliding window in tokens, 0 if it has none.
func (l *Law) Window() int32 { return int32(l.window) }

// APISeconds returns what the API server adds to the time to first token.
func (l *Law) APISeconds() float64 { return l.cal.APISeconds }

// Seconds returns the time of a step, unrounded; 0 for an empty batch.
func (l *Law) Seconds(b *Batch) float64 {
	n := int64(b.DecodeRows)
	if len(b.Prefill) == 0 {
		if n == 0 {
			return 0
		}
		return l.host(n) + float64(l.cal.KDec*l.decodeGPU(b))
	}
	tokens := n
	for i := range b.Prefill {
		tokens += int64(b.Prefill[i].Tokens)
	}
	all := l.tokenSeconds(tokens) + l.headSeconds(int64(b.Sampled)) + l.attentionSeconds(b)
	var decode float64
	if n > 0 {
		decode = l.decodeGPU(b)
	}
	return l.host(n+int64(len(b.Prefill))) + float64(l.cal.KDec*decode) + float64(l.cal.KPf*(all-decode))
}

// Picoseconds returns the time of a step as the simulator uses it, at least 1.
// See "Integers" in the package comment.
func (l *Law) Picoseconds(b *Batch) int64 {
	if len(b.Prefill) > 0 {
		ps, _ := picoseconds(l.Seconds(b))
		return max(1, ps)
	}
	a, perContext, perWindowed := l.DecodeCoefficients(b.DecodeRows)
	ps := a + perContext*b.DecodeContext
	if l.window > 0 {
		ps += perWindowed * b.DecodeWindowed
	}
	return max(1, ps)
}

// DecodeCoefficients returns the integers of a step of n decode rows, in
// picoseconds: a, plus b per token of context, plus c per token of context cut
// to the window (0 without one). n = 0 gives zeros.
func (l *Law) DecodeCoefficients(n int32) (a, b, c int64) {
	if n == 0 {
		return 0, 0, 0
	}
	for int(n) >= len(l.decodeA) {
		l.decodeA = append(l.decodeA, make([]int64, max(256, len(l.decodeA)))...)
	}
	a = l.decodeA[n]
	if a == 0 {
		s := l.host(int64(n)) + float64(l.cal.KDec*l.decodeGPU(&Batch{DecodeRows: n}))
		a, _ = picoseconds(s)
		a = max(1, a)
		l.decodeA[n] = a
	}
	return a, l.decodeB, l.decodeC
}

// Parts returns the time of a step by component, before calibration.
func (l *Law) Parts(b *Batch) Parts {
	tokens, sampled := int64(b.DecodeRows), int64(b.Sampled)
	for i := range b.Prefill {
		tokens += int64(b.Prefill[i].Tokens)
	}
	if tokens == 0 {
		return Parts{}
	}
	if len(b.Prefill) == 0 {
		sampled = int64(b.DecodeRows)
	}
	p := l.tokenParts(tokens)
	p.Attention = l.attentionSeconds(b)
	p.Head = l.headSeconds(sampled)
	return p
}

// host returns the part of a step that the kernels do not explain.
func (l *Law) host(seqs int64) float64 {
	return l.cal.C0 + float64(l.cal.CSeq*float64(seqs))
}

// decodeGPU returns G of the decode rows of a batch alone.
func (l *Law) decodeGPU(b *Batch) float64 {
	n := float64(b.DecodeRows)
	s := l.tokenSeconds(int64(b.DecodeRows)) + l.headSeconds(int64(b.DecodeRows))
	s += float64(l.fullLayers * l.attn.decode(n, float64(b.DecodeContext)))
	if l.windowedLayers > 0 {
		s += float64(l.windowedLayers * l.attn.decode(n, float64(b.DecodeWindowed)))
	}
	return s
}

func (l *Law) attentionSeconds(b *Batch) float64 {
	s := float64(l.fullLayers * l.attn.layer(b, b.DecodeContext, 0))
	if l.windowedLayers > 0 {
		s += float64(l.windowedLayers * l.attn.layer(b, b.DecodeWindowed, l.window))
	}
	return s
}

// tokenParts computes the components that depend on the token count only.
func (l *Law) tokenParts(tokens int64) Parts {
	t := float64(tokens)
	p := Parts{
		Linear:      sumGEMM(l.linear, t),
		Elementwise: l.elemFixed + float64(l.elemPerToken*t),
		AllReduce:   l.allReduceFixed + float64(l.allReduceToken*t),
	}
	if l.hasMoE {
		p.MoE = l.routed.seconds(t) + sumGEMM(l.moeGEMM, t)
	}
	return p
}

// tableLimit bounds the tables; a larger count is computed each time.
const tableLimit = 1 << 18

func (l *Law) tokenSeconds(tokens int64) float64 {
	if tokens >= tableLimit {
		return l.tokenParts(tokens).Total()
	}
	v := slot(&l.byTokens, tokens)
	if *v == 0 {
		*v = l.tokenParts(tokens).Total()
	}
	return *v
}

// headSeconds returns the time of the output head and the sampler.
func (l *Law) headSeconds(rows int64) float64 {
	if rows == 0 {
		return 0
	}
	if rows >= tableLimit {
		return l.headLaw(float64(rows))
	}
	v := slot(&l.bySample, rows)
	if *v == 0 {
		*v = l.headLaw(float64(rows))
	}
	return *v
}

func (l *Law) headLaw(rows float64) float64 {
	return l.head.seconds(rows) + l.sampler + float64(l.perLogits*rows)
}

// slot returns entry i of a table, which grows to hold it.
func slot(table *[]float64, i int64) *float64 {
	for i >= int64(len(*table)) {
		*table = append(*table, make([]float64, max(256, len(*table)))...)
	}
	return &(*table)[i]
}

// picoseconds rounds seconds once; ok is false outside int64.
func picoseconds(seconds float64) (ps int64, ok bool) {
	return exact.RoundToInt64(float64(seconds * 1e12))
}

// PrefillRate returns the tokens per second of the cold prefill of one prompt of
// the given length (at least 1), in chunks of the GPU's default token budget.
func (l *Law) PrefillRate(context int32) float64 {
	context = max(1, context)
	chunk := int32(l.setup.GPU.DefaultMaxBatchedTokens())
	var seconds float64
	b := Batch{Prefill: make([]Chunk, 1), Sampled: 1}
	for past := int32(0); past < context; past += chunk {
		b.Prefill[0] = Chunk{Tokens: min(chunk, context-past), Past: past}
		seconds += l.Seconds(&b)
		if past > math.MaxInt32-chunk {
			break
		}
	}
	return float64(context) / seconds
}

// AttentionDoubling returns the context, in tokens, at which attention doubles
// the marginal cost of a prefill token: the marginal cost of a token in a full
// chunk without attention to the past, over the cost of one query-key pair. It
// is +Inf for a model in which every layer has a sliding window.
func (l *Law) AttentionDoubling() float64 {
	chunk := int64(l.setup.GPU.DefaultMaxBatchedTokens())
	perToken := (l.tokenSeconds(chunk) - l.tokenSeconds(chunk/2)) / float64(chunk-chunk/2)
	perToken += float64((l.fullLayers + l.windowedLayers) * l.attn.perIO)
	perToken += float64(l.windowedLayers * float64(l.window) * l.attn.perPair)
	return perToken / float64(l.fullLayers*l.attn.perPair)
}

// missingRow says that a GPU card cannot serve a dtype.
func missingRow(g *GPU, table, key string, have []string) error {
	if len(have) == 0 {
		return fmt.Errorf("gpu %s: the card has no %s table, which this model needs", g.Name, table)
	}
	return fmt.Errorf("gpu %s: the card has no row %s.%s; it has %v", g.Name, table, key, have)
}
