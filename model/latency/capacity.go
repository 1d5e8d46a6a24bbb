package latency

import (
	"fmt"
	"math"
	"strings"
)

// CapacityOptions are the engine settings that decide how much KV fits.
type CapacityOptions struct {
	MemoryUtilization float64 // share of the visible memory the engine may use, vLLM's gpu_memory_utilization
	OverheadBytes     int64   // activations, CUDA graphs and the rest, per GPU
	BlockTokens       int     // tokens per block
}

// DefaultCapacityOptions returns vLLM's defaults, and 3 GiB of overhead, which
// is an assumption: the engine measures it when it starts.
func DefaultCapacityOptions() CapacityOptions {
	return CapacityOptions{MemoryUtilization: 0.92, OverheadBytes: 3 << 30, BlockTokens: 16}
}

// CapacityReport is the memory of one GPU of a replica.
type CapacityReport struct {
	VisibleBytes  int64
	WeightBytes   int64 // per GPU
	OverheadBytes int64
	KVBytes       int64 // per GPU
	KVTokenBytes  int64 // one token, all layers, on one GPU
	BlockBytes    int64 // one block, all layers, on one GPU
	BlockTokens   int
	NumGPUBlocks  int64    // as vLLM counts them: the null block included
	Assumed       []string // inputs that nobody measured, in words
}

// Tokens returns the KV tokens a replica can hold: all blocks but the null one.
func (r *CapacityReport) Tokens() int64 { return (r.NumGPUBlocks - 1) * int64(r.BlockTokens) }

// Capacity computes the KV memory of a replica: the visible memory times the
// utilization, less weights and overhead (spec: calibration manifest, KV
// capacity; vllm 12). It is an error if no block beside the null block fits.
func Capacity(s Setup, o CapacityOptions) (CapacityReport, error) {
	s, err := s.resolve()
	if err != nil {
		return CapacityReport{}, err
	}
	if !(o.MemoryUtilization > 0 && o.MemoryUtilization <= 1) {
		return CapacityReport{}, fmt.Errorf("gpu_memory_utilization = %v: want above 0, at most 1", o.MemoryUtilization)
	}
	if o.OverheadBytes < 0 || o.BlockTokens < 1 || o.BlockTokens > 1<<20 {
		return CapacityReport{}, fmt.Errorf("overhead of %d bytes and blocks of %d tokens: want at least 0 and 1 to %d", o.OverheadBytes, o.BlockTokens, 1<<20)
	}
	r := CapacityReport{OverheadBytes: o.OverheadBytes, BlockTokens: o.BlockTokens}
	r.visible(s.GPU)
	if r.WeightBytes, err = s.weightBytesPerGPU(); err != nil {
		return r, err
	}
	if r.KVTokenBytes, err = s.Model.KVBytes(s.KVDType, s.TensorParallel); err != nil {
		return r, err
	}
	r.Assumed = append(r.Assumed,
		fmt.Sprintf("weights: %s, routed experts %s, embeddings and head bf16, split evenly", s.WeightDType, s.MoEDType),
		fmt.Sprintf("overhead: %.2f GiB per GPU", float64(o.OverheadBytes)/(1<<30)))
	if s.Model.Window > 0 {
		r.Assumed = append(r.Assumed, "sliding-window layers: take KV memory as full layers do")
	}
	r.BlockBytes = r.KVTokenBytes * int64(o.BlockTokens)
	budget := int64(math.Ceil(float64(r.VisibleBytes) * o.MemoryUtilization))
	r.KVBytes = budget - r.WeightBytes - o.OverheadBytes
	r.NumGPUBlocks = r.KVBytes / r.BlockBytes
	if r.NumGPUBlocks < 2 {
		return r, fmt.Errorf("%s in %s does not fit %d x %s: %.1f GB of weights and %.1f GB of overhead per GPU leave %.1f of %.1f GB for KV; use more GPUs per replica or a smaller dtype",
			s.Model.Name, strings.Join([]string{s.WeightDType, s.MoEDType}, "/"), s.TensorParallel, s.GPU.Name,
			float64(r.WeightBytes)/1e9, float64(o.OverheadBytes)/1e9, float64(r.KVBytes)/1e9, float64(budget)/1e9)
	}
	return r, nil
}

// visible fills in the memory and says where it comes from.
func (r *CapacityReport) visible(g *GPU) {
	r.VisibleBytes = g.VisibleBytes
	switch {
	case r.VisibleBytes == 0:
		r.VisibleBytes = int64(g.Spec.HBMBytes)
		r.Assumed = append(r.Assumed, "visible memory: the card has none, its hbm_bytes taken")
	case !g.VisibleMeasured:
		r.Assumed = append(r.Assumed, fmt.Sprintf("visible memory of %s: %.1f GB, not measured", g.Name, float64(r.VisibleBytes)/1e9))
	}
}

// expertParams returns the parameters of the routed experts.
func (m *Model) expertParams() int64 {
	return int64(m.MoELayers()) * int64(m.Experts) * 3 * int64(m.Hidden) * int64(m.ExpertInter)
}

// weightBytesPerGPU returns the weights of one GPU of a resolved setup.
func (s *Setup) weightBytesPerGPU() (int64, error) {
	weight, err := weightBytes(s.WeightDType)
	if err != nil {
		return 0, err
	}
	expert, err := weightBytes(s.MoEDType)
	if err != nil {
		return 0, err
	}
	m := s.Model
	rest := m.ParamsTotal - m.ParamsEmbedAndHead - m.expertParams()
	bytes := float64(2*m.ParamsEmbedAndHead) + float64(float64(rest)*weight) + float64(float64(m.expertParams())*expert)
	return int64(math.Ceil(bytes / float64(s.TensorParallel))), nil
}

const gib = 1 << 30

// DefaultMaxBatchedTokens returns vLLM's default of max_num_batched_tokens for
// the API server on this GPU (spec: vllm 11).
func (g *GPU) DefaultMaxBatchedTokens() int {
	switch {
	case g.memory() >= 160*gib:
		return 16384
	case g.memory() >= 70*gib && !g.isA100():
		return 8192
	}
	return 2048
}

// DefaultMaxSeqs returns vLLM's default of max_num_seqs on this GPU.
func (g *GPU) DefaultMaxSeqs() int {
	if g.memory() >= 160*gib || g.memory() >= 70*gib && !g.isA100() {
		return 1024
	}
	return 256
}

func (g *GPU) memory() int64 {
	if g.VisibleBytes == 0 {
		return int64(g.Spec.HBMBytes)
	}
	return g.VisibleBytes
}

func (g *GPU) isA100() bool { return strings.Contains(plain(g.Name), "a100") }
