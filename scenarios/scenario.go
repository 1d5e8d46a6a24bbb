// Package scenarios is the scenario file: what it may say, how it is read, and what it means with every default written
// out. One declaration per key (keys.go) gives the range checks, the defaults, the JSON Schema, the documentation and
// the paths of --set and --vary.
//
// The package decodes files and knows declarations only: it opens no trace, builds no policy and runs nothing. Units are
// in the names of keys and fields.
package scenarios

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sluice-sim/sluice/policies"
)

// Version is the version of the scenario file format that this package reads.
const Version = 1

// Scenario is a scenario with everything explicit. It comes from Load, Parse, Bundled or Apply, which have checked it.
// Optional numbers are 0 where the file says null; each field that can be so says what that means.
type Scenario struct {
	Version  int64
	Name     string
	Seed     int64 // at least 0
	Workload Workload
	Arrivals Arrivals
	Replay   string // "closed" or "open"
	Clients  Clients
	Cluster  Cluster
	Signals  Signals
	Policy   Policy
	SLO      SLO
	Faults   []Fault
	Output   Output

	file  string    // as given to Load or Parse; "" for a bundled scenario
	dir   string    // folder that relative paths of the file are relative to; "" is the current one
	lines []string  // source, for excerpts
	given []setting // what the file and the overrides say, in that order
}

// Workload is what the sessions do: a trace or a generator. Source says which.
type Workload struct {
	Source   string // "trace" or "generate"
	Trace    Trace
	Generate Choice // Name is the preset
}

// Trace names a recorded trace and how it is imported.
type Trace struct {
	Path         string // as written; see Scenario.Path
	Format       string
	SharedPrefix string // "none" or "auto"
	IdleCapS     float64
	MaxContext   int64 // tokens; 0: the engine's limit
	OutputReuse  string
	Models       string
	Sessions     int64 // the first n; 0: all
}

// Arrivals is how sessions arrive. Only the fields of Process count.
type Arrivals struct {
	Process  string // poisson, uniform, recorded, concurrent, rollout or burst
	RatePerS float64
	Speedup  float64
	Sessions int64
	Prompts  int64
	Samples  int64
	Shuffle  bool // sessions start in an order drawn from the seed

	ClassShares []float64 // of the sessions, by service class; at least one, their sum is 1
}

// Clients is how clients behave.
type Clients struct {
	TimeoutS       float64 // 0: patient
	Retries        int64
	RetryDelayS    float64
	CancelUpstream bool
}

// Cluster is the modelled replicas.
type Cluster struct {
	Replicas       int64
	Routers        int64  // router instances
	Model          string // card name or file
	GPU            string
	TensorParallel int64
	WeightDtype    string // "auto": the model card's
	MoEDtype       string // "auto": as WeightDtype
	OverheadGiB    float64
	Calibration    string // "none" or the name of a deployment calibration
	InfiniteCache  bool
	CPUTier        CPUTier
	Engine         Engine
}

// CPUTier is the host memory for KV behind each replica.
type CPUTier struct {
	GiB            float64 // 0: none
	Eviction       string  // lru or arc
	BlocksPerChunk int64
	StoreThreshold int64
	PromptOnly     bool
	Overlap        string // asynchronous, blocking or layer-wise
}

// Engine holds vLLM's options under vLLM's names.
type Engine struct {
	BlockSize               int64
	MaxNumBatchedTokens     int64 // 0: vLLM's default for the GPU
	MaxNumSeqs              int64 // 0: vLLM's default for the GPU
	MaxModelLen             int64 // 0: as long as the KV cache allows
	GPUMemoryUtilization    float64
	KVCacheDtype            string
	NumGPUBlocksOverride    int64 // 0: derived
	KVCacheMemoryBytes      int64 // 0: derived
	LongPrefillThreshold    int64 // long_prefill_token_threshold; 0: off
	SchedulingPolicy        string
	EnableChunkedPrefill    bool
	EnablePrefixCaching     bool
	AsyncScheduling         bool
	SchedulerReserveFullISL bool
	Watermark               float64
	SkipBlockedRequests     bool // not an option of vLLM
}

// Signals is what a policy sees of the replicas, and how late.
type Signals struct {
	ScrapeS       float64
	ScrapeDelayS  float64
	ScrapeJitterS float64
	ScrapeLoss    float64
	ProbeIPCS     float64
	KVEventDelayS float64
	Probes        string // "supported" or "unsupported"
	ProbeTimeoutS float64
}

// Policy is the gate, the router and the retention policy.
type Policy struct {
	Gate, Router, Retention Choice
}

// Choice is a named policy or generator preset with a value for every knob that it declares.
type Choice struct {
	Name   string
	Params policies.Params
}

// SLO is the bounds of a good turn; 0 means no bound. TTFT is bounded by TTFTS + TTFTPer1kPromptS * prompt tokens / 1000.
type SLO struct {
	TTFTS            float64
	TTFTPer1kPromptS float64
	TPOTS            float64
}

// Output is what the results hold.
type Output struct {
	IntervalS float64
}

// Digest names the scenario by content: the first 12 hexadecimal digits of the SHA-256 of its canonical form.
func (s *Scenario) Digest() string {
	sum := sha256.Sum256(s.Resolved())
	return hex.EncodeToString(sum[:6])
}

// WorkloadDigest is equal for scenarios that have the same sessions: the same trace imported in the same way, or the same
// generator with the same seed.
func (s *Scenario) WorkloadDigest() string {
	h := sha256.New()
	for _, e := range s.entries() {
		if strings.HasPrefix(e.key.path, "workload.") || e.key.path == "seed" && s.Workload.Source == "generate" {
			fmt.Fprintf(h, "%s=%s\n", e.key.path, e.text)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// File is the name that Load or Parse was given; "" for a bundled scenario.
func (s *Scenario) File() string { return s.file }

// Path is the value of a text key as a path to open. A relative path that the scenario file wrote is relative to the
// folder of the file; one from a bundled scenario or an override is relative to the current folder.
func (s *Scenario) Path(key string) string {
	set := s.setting(key)
	if set == nil || set.override != "" || filepath.IsAbs(set.text) {
		if set == nil {
			return ""
		}
		return set.text
	}
	return filepath.Join(s.dir, set.text)
}

// Problem is an error about the value of a key that the file or an override set, with its place. It is for checks that
// need more than declarations, such as whether a GPU is known.
func (s *Scenario) Problem(key, message string) error {
	set := s.setting(key)
	if set == nil {
		return &Problem{File: s.file, Key: key, Message: message}
	}
	p := set.problem(s, message)
	p.Key = key
	return p
}

// setting is the last one given for a key, nil if it has its default.
func (s *Scenario) setting(key string) *setting {
	for i := len(s.given) - 1; i >= 0; i-- {
		if s.given[i].path == key {
			return &s.given[i]
		}
	}
	return nil
}
