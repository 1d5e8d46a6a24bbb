package latency

import "github.com/sluice-sim/sluice/exact"

// gemm is a linear layer of fixed shape, run count times per step: seconds as a
// function of the rows m only.
type gemm struct {
	count    float64 // calls per step
	t0       float64
	perRow   float64 // activation traffic, seconds per row
	weights  float64 // seconds to read the weights
	perFlops float64 // seconds of arithmetic per row
	q        float64
}

// newGEMM binds a layer of n outputs and k inputs; bytes is the size of a
// weight and of an input activation.
func newGEMM(row GEMMRow, bytes, n, k, count float64) gemm {
	return gemm{
		count:    count,
		t0:       row.T0,
		perRow:   row.Activation * (float64(k*bytes) + float64(2*n)) / row.Rate,
		weights:  n * k * bytes / row.Rate,
		perFlops: 2 * n * k / row.Flops,
		q:        row.Q,
	}
}

func (g *gemm) seconds(m float64) float64 {
	return float64(g.count * (g.t0 + float64(m*g.perRow) + smoothMax(g.q, g.weights, float64(m*g.perFlops))))
}

func sumGEMM(list []gemm, m float64) float64 {
	var s float64
	for i := range list {
		s += list[i].seconds(m)
	}
	return s
}

// experts is the routed part of a MoE block, all layers.
type experts struct {
	layers    float64
	t0        float64
	perExpert float64 // seconds to read one expert
	perToken  float64 // seconds of arithmetic per token
	perIO     float64 // seconds of activation traffic per token
	pad       float64
	q         float64
	count     float64 // routed experts
	topK      float64
}

func newExperts(row MoERow, m *Model, bytes, p float64) experts {
	h, inter, k := float64(m.Hidden), float64(m.ExpertInter)/p, float64(m.TopK)
	return experts{
		layers:    float64(m.MoELayers()),
		t0:        row.T0,
		perExpert: 3 * h * inter * bytes / row.Rate,
		perToken:  6 * k * h * inter / row.Flops,
		perIO:     6 * k * (h + inter) / row.ActivationRate,
		pad:       row.Pad,
		q:         row.Q,
		count:     float64(m.Experts),
		topK:      k,
	}
}

// seconds takes the number of tokens, which must be positive.
func (e *experts) seconds(tokens float64) float64 {
	touched := e.count * (1 - exact.Pow(1-e.topK/e.count, tokens))
	padding := 1 + float64(e.pad*touched)/float64(tokens*e.topK)
	block := smoothMax(e.q, float64(touched*e.perExpert), float64(float64(tokens*e.perToken)*padding))
	return float64(e.layers * (e.t0 + block + float64(tokens*e.perIO)))
}

// smoothMax is the q-norm of two times: (a^q + b^q)^(1/q).
func smoothMax(q, a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	switch {
	case b == 0:
		return a
	case q == 1:
		return a + b
	}
	return float64(a * exact.Pow(1+exact.Pow(b/a, q), 1/q))
}
