// Package golden replays recorded runs of vLLM's own scheduler through package engine and reports the first difference.
// A golden file holds the inputs and the per-iteration outputs of the real scheduler; its format is vllm-golden/1.
package golden

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxFileBytes bounds a file after decompression.
const maxFileBytes = 256 << 20

// File is one golden file.
type File struct {
	Format   string         `json:"format"`
	Name     string         `json:"name"`
	Config   Config         `json:"config"`
	Offload  *Offload       `json:"offload"` // nil without a CPU tier
	Totals   map[string]any `json:"totals"`
	Requests []Request      `json:"requests"`
	Steps    []Step         `json:"steps"`
}

// Config is the recorded vLLM configuration.
type Config struct {
	BlockSize            int32   `json:"block_size"`
	NumBlocks            int32   `json:"num_blocks"` // includes the null block
	MaxNumSeqs           int32   `json:"max_num_seqs"`
	MaxNumBatchedTokens  int32   `json:"max_num_batched_tokens"`
	LongPrefillThreshold int32   `json:"long_prefill_token_threshold"`
	ChunkedPrefill       bool    `json:"enable_chunked_prefill"`
	Policy               string  `json:"policy"`
	ReserveFullISL       bool    `json:"scheduler_reserve_full_isl"`
	Watermark            float64 `json:"watermark"`
	MaxModelLen          int32   `json:"max_model_len"`
	PrefixCaching        bool    `json:"enable_prefix_caching"`
	AsyncScheduling      bool    `json:"async_scheduling"`
}

// Offload is the recorded configuration of the CPU tier, and the latencies of the transfers in iterations.
type Offload struct {
	Connector      string `json:"connector"`
	NumCPUBlocks   int32  `json:"num_cpu_blocks"` // chunks
	BlocksPerChunk int32  `json:"blocks_per_chunk"`
	EvictionPolicy string `json:"eviction_policy"`
	StoreThreshold int32  `json:"store_threshold"`
	PromptOnly     bool   `json:"offload_prompt_only"`
	StoreLatency   int64  `json:"store_latency"`
	LoadLatency    int64  `json:"load_latency"`
	Lazy           bool   `json:"lazy_offload"` // of the simple connector
}

// The connectors that are replayed.
const (
	offloadingConnector = "OffloadingConnector"
	simpleConnector     = "SimpleCPUOffloadConnector"
)

func (o *Offload) check() error {
	switch {
	case o.Connector != offloadingConnector && o.Connector != simpleConnector:
		return fmt.Errorf("offload.connector is %q; verify replays %s and %s", o.Connector, offloadingConnector, simpleConnector)
	case o.NumCPUBlocks < 2 || o.NumCPUBlocks > 1<<24 || o.BlocksPerChunk < 1 || o.BlocksPerChunk > 1<<16:
		return fmt.Errorf("offload holds a size that is too small or too large")
	case o.EvictionPolicy != "lru" && o.EvictionPolicy != "arc":
		return fmt.Errorf("offload.eviction_policy is %q, expected lru or arc", o.EvictionPolicy)
	case o.StoreLatency < 0 || o.LoadLatency < 0:
		return fmt.Errorf("offload holds a negative latency")
	}
	return nil
}

// Request is one recorded request.
type Request struct {
	ID        int64      `json:"id"`
	T         int64      `json:"t"`
	Prompt    [][2]int32 `json:"p"` // runs of consecutive token ids: start, count
	MaxTokens int32      `json:"n"`
	Output    int32      `json:"o"` // output token k is Output+k
	EOSAt     *int32     `json:"e"` // this output token is EOS instead
	Priority  int32      `json:"pr"`
	ArrivalAt *float64   `json:"at"` // otherwise the iteration plus a microsecond for each add before it
}

// Step is one recorded iteration. Fields are raw so that the replay can compare each as it stands in the file.
type Step struct {
	T      int64                      `json:"t"`
	Fields map[string]json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps every field of the iteration; those inside off are named off.ext and so on.
func (s *Step) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &s.Fields); err != nil {
		return err
	}
	if raw, ok := s.Fields["off"]; ok {
		var off map[string]json.RawMessage
		if err := json.Unmarshal(raw, &off); err != nil {
			return fmt.Errorf("off: %w", err)
		}
		delete(s.Fields, "off")
		for k, v := range off {
			s.Fields["off."+k] = v
		}
	}
	if _, ok := s.Fields["t"]; !ok {
		return fmt.Errorf("a step has no t")
	}
	return json.Unmarshal(s.Fields["t"], &s.T)
}

// Load reads a golden file, gzip-ed if its name ends in .gz.
func Load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: found a folder, expected a golden file; name its files, %s", path, filepath.Join(path, "*.json*"))
	}
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("%s: not a gzip file: %w", path, err)
		}
		r = z
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s: more than %d bytes; a golden file is smaller", path, maxFileBytes)
	}
	g := &File{}
	if err := json.Unmarshal(data, g); err != nil {
		return nil, fmt.Errorf("%s: not a golden file: %w", path, err)
	}
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

func (g *File) check() error {
	c := &g.Config
	switch {
	case g.Format != "vllm-golden/1":
		return fmt.Errorf("format is %q, expected vllm-golden/1", g.Format)
	case c.BlockSize < 1 || c.NumBlocks < 1 || c.NumBlocks > 1<<24 || c.MaxNumSeqs < 1 || c.MaxNumBatchedTokens < 1 || c.MaxModelLen < 1:
		return fmt.Errorf("config holds a size that is not positive (or more than 2^24 blocks)")
	case c.Policy != "fcfs" && c.Policy != "priority":
		return fmt.Errorf("config.policy is %q, expected fcfs or priority", c.Policy)
	}
	if g.Offload != nil {
		if err := g.Offload.check(); err != nil {
			return err
		}
	}
	total := int64(0)
	for i, r := range g.Requests {
		if r.ID != int64(i) {
			return fmt.Errorf("request %d has id %d; ids count from 0", i, r.ID)
		}
		n := int64(r.MaxTokens)
		for _, run := range r.Prompt {
			if run[1] < 1 {
				return fmt.Errorf("request %d has a prompt run of %d tokens", i, run[1])
			}
			n += int64(run[1])
		}
		if r.MaxTokens < 1 || len(r.Prompt) == 0 || n > 1<<22 {
			return fmt.Errorf("request %d: prompt and output must have at least one token each and at most 2^22 together", i)
		}
		if total += n; total > 1<<28 {
			return fmt.Errorf("the requests hold more than 2^28 tokens")
		}
	}
	return nil
}
