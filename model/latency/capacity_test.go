package latency

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestKVBytesPerToken(t *testing.T) {
	for _, c := range []struct {
		model, dtype string
		tp           int
		want         int64
	}{
		{"llama-3.1-8b", "bf16", 1, 32 * 8 * 256 * 2},
		{"qwen3-32b", "bf16", 1, 262_144},
		{"llama-3.1-70b", "bf16", 1, 327_680},
		{"llama-3.1-70b", "bf16", 4, 327_680 / 4},
		{"llama-3.1-70b", "fp8", 8, 327_680 / 16},
		{"qwen3-30b-a3b", "bf16", 1, 98_304},
		{"qwen3-30b-a3b", "bf16", 8, 98_304 / 4}, // 4 KV heads: not split below one
		{"deepseek-v3", "bf16", 1, 61 * 1152},
		{"deepseek-v3", "bf16", 8, 61 * 1152}, // a latent cache is not split at all
	} {
		m, err := FindModel(c.model)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.KVBytes(c.dtype, c.tp); err != nil || got != c.want {
			t.Errorf("%s %s tp%d: %d, %v, want %d", c.model, c.dtype, c.tp, got, err, c.want)
		}
	}
}

func TestWeights(t *testing.T) {
	for _, c := range []struct {
		model, weight, moe string
		tp                 int
		gb                 float64
	}{
		{"llama-3.1-8b", "bf16", "", 1, 16.06},   // 2 bytes times 8.03e9
		{"llama-3.1-70b", "fp8", "", 1, 72.65},   // the published fp8 checkpoint: 72.7 GB
		{"qwen3-30b-a3b", "bf16", "", 2, 30.53},  // 61.06 GB in all
		{"gpt-oss-120b", "bf16", "mxfp4", 1, 65}, // the published checkpoint: 65.2 GB
		{"gpt-oss-20b", "bf16", "mxfp4", 1, 13.8},
		{"deepseek-v3", "fp8", "fp8", 8, 84.1}, // 671 GB and a bf16 embedding, over 8
	} {
		m, err := FindModel(c.model)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Setup{Model: m, GPU: gpus[0], TensorParallel: c.tp, WeightDType: c.weight, MoEDType: c.moe}.resolve()
		if err != nil {
			t.Fatal(err)
		}
		bytes, err := s.weightBytesPerGPU()
		if err != nil || math.Abs(float64(bytes)/1e9-c.gb) > 0.01*c.gb {
			t.Errorf("%s: %d bytes, %v, want %v GB", c.model, bytes, err, c.gb)
		}
	}
}

func TestCapacityErrors(t *testing.T) {
	m, _ := FindModel("llama-3.1-70b")
	g, _ := FindGPU("h100")
	_, err := Capacity(Setup{Model: m, GPU: g, TensorParallel: 1}, DefaultCapacityOptions())
	want := "llama-3.1-70b in bf16/bf16 does not fit 1 x h100_sxm: 141.1 GB of weights and 3.2 GB of overhead per GPU leave -66.2 of 78.1 GB for KV; use more GPUs per replica or a smaller dtype"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	for _, o := range []CapacityOptions{{}, {MemoryUtilization: 1.1, BlockTokens: 16}, {MemoryUtilization: 0.9}, {MemoryUtilization: 0.9, BlockTokens: 16, OverheadBytes: -1}} {
		if _, err := Capacity(Setup{Model: m, GPU: g, TensorParallel: 4}, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := Capacity(Setup{Model: m, GPU: g, TensorParallel: 5}, DefaultCapacityOptions()); err == nil || !strings.Contains(err.Error(), "tensor_parallel 5") {
		t.Errorf("got %v", err)
	}
}

func TestEngineDefaults(t *testing.T) {
	for name, want := range map[string][2]int{"A100": {2048, 256}, "H100": {8192, 1024}, "H200": {8192, 1024}, "B200": {16384, 1024},
		"L40S": {2048, 256}, "RTX PRO 6000": {8192, 1024}, "MI300X": {16384, 1024}, "H20": {8192, 1024}} {
		g, err := FindGPU(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{g.DefaultMaxBatchedTokens(), g.DefaultMaxSeqs()}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func ExampleCapacity() {
	model, _ := FindModel("Qwen3-30B-A3B")
	gpu, _ := FindGPU("H100")
	r, err := Capacity(Setup{Model: model, GPU: gpu, TensorParallel: 2}, DefaultCapacityOptions())
	if err != nil {
		panic(err)
	}
	fmt.Printf("visible %.1f GB, weights %.2f GB, overhead %.2f GB, KV %.2f GB per GPU\n",
		float64(r.VisibleBytes)/1e9, float64(r.WeightBytes)/1e9, float64(r.OverheadBytes)/1e9, float64(r.KVBytes)/1e9)
	fmt.Printf("%d bytes a token, %d bytes a block, %d blocks, %d tokens\n", r.KVTokenBytes, r.BlockBytes, r.NumGPUBlocks, r.Tokens())
	for _, a := range r.Assumed {
		fmt.Println("assumed:", a)
	}
	// Output:
	// visible 84.9 GB, weights 30.53 GB, overhead 3.22 GB, KV 44.35 GB per GPU
	// 49152 bytes a token, 786432 bytes a block, 56400 blocks, 902384 tokens
	// assumed: visible memory of h100_sxm: 84.9 GB, not measured
	// assumed: weights: bf16, routed experts bf16, embeddings and head bf16, split evenly
	// assumed: overhead: 3.00 GiB per GPU
}
