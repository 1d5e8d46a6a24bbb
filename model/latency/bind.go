package latency

import (
	"fmt"
	"slices"
	"strconv"
)

// resolve fills in the defaults of a setup and checks what does not depend on
// the GPU card's tables.
func (s Setup) resolve() (Setup, error) {
	if s.Model == nil || s.GPU == nil {
		return s, fmt.Errorf("latency: a setup needs a model and a GPU card")
	}
	if s.TensorParallel == 0 {
		s.TensorParallel = 1
	}
	if s.WeightDType == "" {
		s.WeightDType = "bf16"
	}
	if s.KVDType == "" {
		s.KVDType = "bf16"
	}
	if s.MoEDType == "" {
		s.MoEDType = s.WeightDType
	}
	m, p := s.Model, s.TensorParallel
	if p < 1 || m.QueryHeads%p != 0 {
		return s, fmt.Errorf("tensor_parallel %d: it must divide the %d query heads of %s", p, m.QueryHeads, m.Name)
	}
	if !m.MLA && m.KVHeads%p != 0 && p%m.KVHeads != 0 {
		return s, fmt.Errorf("tensor_parallel %d: it must divide the %d KV heads of %s or be a multiple of them", p, m.KVHeads, m.Name)
	}
	if _, err := weightBytes(s.WeightDType); err != nil {
		return s, err
	}
	if _, err := weightBytes(s.MoEDType); err != nil {
		return s, fmt.Errorf("moe: %w", err)
	}
	if _, err := kvElementBytes(s.KVDType); err != nil {
		return s, err
	}
	cal, err := s.Calibration.resolve()
	s.Calibration = cal
	return s, err
}

// gemmOf returns the row and the weight size of a dtype.
func (l *Law) gemmOf(dtype string) (GEMMRow, float64, error) {
	row, ok := l.setup.GPU.GEMM[dtype]
	if !ok {
		return row, 0, missingRow(l.setup.GPU, "gemm", dtype, keys(l.setup.GPU.GEMM))
	}
	bytes, err := weightBytes(dtype)
	return row, bytes, err
}

// bindLinear lists the projections and the dense FFN.
func (l *Law) bindLinear() error {
	m, p := l.setup.Model, float64(l.setup.TensorParallel)
	row, bytes, err := l.gemmOf(l.setup.WeightDType)
	if err != nil {
		return err
	}
	layers, h, hq := float64(m.Layers), float64(m.Hidden), float64(m.QueryHeads)
	add := func(n, k, count float64) {
		l.linear = append(l.linear, newGEMM(row, bytes, n, k, count))
	}
	if m.MLA {
		half, halfBytes, err := l.gemmOf("bf16")
		if err != nil {
			return err
		}
		add(float64(m.QLora+m.KVLora+m.Rope), h, layers)
		add(hq*float64(m.Nope+m.Rope)/p, float64(m.QLora), layers)
		l.linear = append(l.linear, newGEMM(half, halfBytes, hq*float64(m.KVLora)/p, float64(m.Nope), 2*layers))
		add(h, hq*float64(m.VDim)/p, layers)
	} else {
		d := float64(m.HeadDim)
		add((hq+float64(2*max(float64(m.KVHeads), p)))*d/p, h, layers)
		add(h, hq*d/p, layers)
	}
	if dense := float64(m.Layers - m.MoELayers()); dense > 0 {
		add(2*float64(m.Inter)/p, h, dense)
		add(h, float64(m.Inter)/p, dense)
	}
	return nil
}

func (l *Law) bindMoE() error {
	m, g, p := l.setup.Model, l.setup.GPU, float64(l.setup.TensorParallel)
	layers := float64(m.MoELayers())
	if layers == 0 {
		return nil
	}
	name := l.setup.MoEDType
	if _, ok := g.MoE["fp8_block"]; ok && name == "fp8" {
		name = "fp8_block" // block-scaled kernels are what vLLM runs for fp8 checkpoints
	}
	row, ok := g.MoE[name]
	if !ok {
		return missingRow(g, "moe", name, keys(g.MoE))
	}
	bytes, err := weightBytes(name)
	if err != nil {
		return err
	}
	l.hasMoE = true
	l.routed = newExperts(row, m, bytes, p)
	half, halfBytes, err := l.gemmOf("bf16")
	if err != nil {
		return err
	}
	h := float64(m.Hidden)
	l.moeGEMM = append(l.moeGEMM, newGEMM(half, halfBytes, float64(m.Experts), h, layers))
	if m.SharedInter > 0 {
		row, bytes, err := l.gemmOf(l.setup.WeightDType)
		if err != nil {
			return err
		}
		inter := float64(m.SharedInter) / p
		l.moeGEMM = append(l.moeGEMM, newGEMM(row, bytes, 2*inter, h, layers), newGEMM(row, bytes, h, inter, layers))
	}
	return nil
}

// bindRest binds the elementwise operations, the all-reduce and the head.
func (l *Law) bindRest() error {
	m, g, tp := l.setup.Model, l.setup.GPU, l.setup.TensorParallel
	p, layers, h := float64(tp), float64(m.Layers), float64(m.Hidden)
	e := &g.Elementwise
	headBytes := e.HeadBytes
	if m.QKNorm {
		headBytes = e.HeadBytesQKNorm
	}
	var inter float64
	if m.Kind == "dense" {
		inter = float64(m.Inter) / p
	}
	heads := float64(m.QueryHeads)/p + max(1, float64(m.KVHeads)/p)
	bytes := float64(e.HiddenBytes*h) + float64(e.InterBytes*inter) + float64(headBytes*heads*float64(m.HeadDim))
	l.elemFixed = layers * e.PerLayer
	l.elemPerToken = layers * bytes / g.Spec.HBMRate

	if tp > 1 {
		row, ok := g.AllReduce[strconv.Itoa(tp)]
		if !ok {
			return missingRow(g, "allreduce", strconv.Itoa(tp), keys(g.AllReduce))
		}
		l.allReduceFixed = 2 * layers * row.T0
		l.allReduceToken = 2 * layers * 2 * h / (row.Rate * l.cal.AllReduceRate)
	}

	half, halfBytes, err := l.gemmOf("bf16")
	if err != nil {
		return err
	}
	vocab := float64(m.Vocab)
	l.head = newGEMM(half, halfBytes, vocab/p, h, 1)
	l.sampler = g.Sampler.T0
	l.perLogits = g.Sampler.BytesPerLogit * vocab / g.Spec.HBMRate
	return nil
}

// keys returns the keys of a table in order.
func keys[V any](table map[string]V) []string {
	list := make([]string, 0, len(table))
	for k := range table {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
