package latency

// Model is a model card: the shape of a transformer, as its configuration file
// states it. All numbers are counts or elements unless said otherwise.
type Model struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases"` // other names of the same shape
	HF      string   `json:"hf"`      // where the configuration was read

	Kind   string `json:"kind"` // dense or moe
	Layers int    `json:"layers"`
	Hidden int    `json:"hidden"`
	Inter  int    `json:"inter"` // inner size of the dense FFN (three matrices); 0 without dense layers
	Vocab  int    `json:"vocab"`

	QueryHeads  int  `json:"hq"`
	KVHeads     int  `json:"hk"`
	HeadDim     int  `json:"d"`
	QKNorm      bool `json:"qk_norm"`      // RMSNorm on queries and keys
	Window      int  `json:"window"`       // sliding window in tokens, 0 for none
	WindowEvery int  `json:"window_every"` // one of so many layers has the window

	Experts     int `json:"experts"` // routed experts
	TopK        int `json:"topk"`    // experts per token
	ExpertInter int `json:"moe_inter"`
	SharedInter int `json:"shared_inter"` // inner size of the shared expert, 0 for none
	DenseLayers int `json:"dense_layers"` // leading dense layers of a MoE model

	MLA    bool `json:"mla"` // multi-head latent attention (DeepSeek)
	QLora  int  `json:"q_lora"`
	KVLora int  `json:"kv_lora"`
	Rope   int  `json:"rope"`
	Nope   int  `json:"nope"`
	VDim   int  `json:"vdim"`

	ParamsTotal        int64 `json:"params_total"`
	ParamsActive       int64 `json:"params_active_per_token"`
	ParamsAttention    int64 `json:"params_attn"`
	ParamsFFN          int64 `json:"params_ffn"`
	ParamsEmbedAndHead int64 `json:"params_embed_and_head"`

	// KVBytesPerToken is over all layers and heads, by KV dtype. It is
	// informative: the package computes its own from the shape.
	KVBytesPerToken map[string]int64 `json:"kv_bytes_per_token"`
	KVNote          string           `json:"kv_note"`
}

// GPU is a GPU card: the spec sheet and the fitted coefficients of its vLLM
// kernels. Times are seconds, rates bytes or floating point operations per
// second, sizes bytes. Maps are keyed by data type.
type GPU struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases"`
	Status  string   `json:"status"` // fitted, or derived from another card and how
	Source  string   `json:"source"`

	// VisibleBytes is the memory the driver reports; 0 is unknown, and Capacity
	// then takes the marketing size. VisibleMeasured tells that it was seen on
	// a machine, not assumed.
	VisibleBytes    int64 `json:"visible_bytes"`
	VisibleMeasured bool  `json:"visible_measured"`

	Spec        GPUSpec                  `json:"spec"`
	Backend     string                   `json:"attn_backend"`
	GEMM        map[string]GEMMRow       `json:"gemm"`
	AttnDecode  map[string]AttnDecodeRow `json:"attn_decode"`
	AttnPrefill AttnPrefillRow           `json:"attn_prefill"`
	AttnMixed   AttnMixedRow             `json:"attn_mixed"`
	MoE         map[string]MoERow        `json:"moe"`
	AllReduce   map[string]AllReduceRow  `json:"allreduce"` // by tensor-parallel degree
	MLADecode   map[string]MLADecodeRow  `json:"mla_decode"`
	Elementwise ElementwiseRow           `json:"elem"`
	Sampler     SamplerRow               `json:"sampler"`
}

// GPUSpec is the spec sheet. A peak that does not exist is nil.
type GPUSpec struct {
	HBMBytes     float64  `json:"hbm_bytes"` // decimal marketing size
	HBMRate      float64  `json:"hbm_bw"`
	PeakBF16     *float64 `json:"peak_bf16"`
	PeakFP8      *float64 `json:"peak_fp8"`
	PeakFP4      *float64 `json:"peak_fp4"`
	SMs          int      `json:"sms"`
	L2Bytes      float64  `json:"l2_bytes"`
	PCIeGBPerS   float64  `json:"pcie_gbps_per_dir"`   // gigabytes per second and direction
	NVLinkGBPerS float64  `json:"nvlink_gbps_per_dir"` // 0 without NVLink
}

// GEMMRow holds the coefficients of a linear layer.
type GEMMRow struct {
	T0         float64 `json:"t0"`
	Rate       float64 `json:"bw"`
	Flops      float64 `json:"flops"`
	Q          float64 `json:"q"`   // exponent of the smooth maximum of weight bytes and operations
	Activation float64 `json:"act"` // share of the activation bytes that is visible
}

// AttnDecodeRow holds the coefficients of decode attention, one layer.
type AttnDecodeRow struct {
	T0     float64 `json:"t0"`
	PerSeq float64 `json:"per_seq"`
	Rate   float64 `json:"bw"`
}

// AttnPrefillRow holds the coefficients of causal prefill attention, one layer.
type AttnPrefillRow struct {
	T0     float64 `json:"t0"`
	Flops  float64 `json:"flops"`
	Serial float64 `json:"serial"` // seconds per token of the longest context: one row of tiles
	IORate float64 `json:"io_bw"`
}

// AttnMixedRow says what prefill and decode rows in one step cost: kind "sum"
// adds the two kernels; kind "tile" is one kernel, with the decode rows padded
// to tiles.
type AttnMixedRow struct {
	Kind      string  `json:"kind"`
	Tile      int     `json:"tile"`
	TileScale float64 `json:"tile_scale"`
	KVReread  float64 `json:"kv_reread"`
	Serial    float64 `json:"serial"`
	Note      string  `json:"note"`
}

// MoERow holds the coefficients of a block of routed experts, one layer.
type MoERow struct {
	T0             float64 `json:"t0"`
	Rate           float64 `json:"bw"`
	Flops          float64 `json:"flops"`
	Pad            float64 `json:"pad"` // rows of padding per touched expert
	ActivationRate float64 `json:"act_bw"`
	Q              float64 `json:"q"`
}

// AllReduceRow holds the coefficients of one all-reduce.
type AllReduceRow struct {
	T0   float64 `json:"t0"`
	Rate float64 `json:"bw"`
}

// MLADecodeRow holds the coefficients of decode attention over a latent cache.
type MLADecodeRow struct {
	T0     float64 `json:"t0"`
	PerSeq float64 `json:"per_seq"`
	Rate   float64 `json:"bw"`
	Flops  float64 `json:"flops"`
	Q      float64 `json:"q"` // must be 2
}

// ElementwiseRow holds the cost of norms, activations and copies.
type ElementwiseRow struct {
	PerLayer        float64 `json:"per_layer"`
	HiddenBytes     float64 `json:"hidden_bytes"`
	InterBytes      float64 `json:"inter_bytes"`
	HeadBytes       float64 `json:"head_bytes"`
	HeadBytesQKNorm float64 `json:"head_bytes_qknorm"`
}

// SamplerRow holds the cost of sampling.
type SamplerRow struct {
	T0            float64 `json:"t0"`
	BytesPerLogit float64 `json:"bytes_per_logit"`
}

// WindowedLayers returns how many layers attend to the sliding window only.
func (m *Model) WindowedLayers() int {
	if m.Window == 0 {
		return 0
	}
	return m.Layers / m.WindowEvery
}

// MoELayers returns how many layers have routed experts.
func (m *Model) MoELayers() int {
	if m.Kind != "moe" {
		return 0
	}
	return m.Layers - m.DenseLayers
}

// KVBytes returns the bytes of KV of one token, all layers, on one GPU of a
// tensor-parallel group. KV heads are never split below one per GPU, and a
// latent cache is on every GPU in full (spec: vllm 12).
func (m *Model) KVBytes(dtype string, tensorParallel int) (int64, error) {
	element, err := kvElementBytes(dtype)
	if err != nil {
		return 0, err
	}
	if m.MLA {
		return int64(m.Layers) * int64(m.KVLora+m.Rope) * element, nil
	}
	heads := max(1, m.KVHeads/tensorParallel)
	return int64(m.Layers) * int64(heads) * 2 * int64(m.HeadDim) * element, nil
}
