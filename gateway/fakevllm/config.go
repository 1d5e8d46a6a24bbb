// Package fakevllm is a vLLM server without a GPU: its HTTP API, scheduler, KV cache, prefix cache, metrics and KV events,
// with answers that mean nothing. Engine and block pool are those of model/, and a step takes as long as the law of package
// latency says, in real time or faster. Whoever has a router to test can point it at some of these.
//
// The text of an answer is made of nonsense words that follow from the prompt, so the same request has the same answer
// everywhere. Tokens are pieces of text of at most four bytes; see Tokenize in the documentation of the endpoints.
package fakevllm

import (
	"fmt"
	"math"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
)

// Config describes a server. DefaultConfig fills in vLLM's defaults for a deployment.
type Config struct {
	Name   string   // the model's, in the API
	Alias  []string // other names that it answers to
	Engine engine.Config
	Blocks int32 // usable KV blocks
	Setup  latency.Setup

	Speed        float64 // of the engine's time against real time: 20 is twenty times faster
	OutputTokens int32   // mean length of an answer that neither its maximum nor ignore_eos decides
	Interval     int32   // a stream gets its tokens in so many at a time after the first, vLLM's --stream-interval

	PromptDetails bool // usage says how many prompt tokens were cached, vLLM's --enable-prompt-tokens-details
	Render        bool // the render endpoints exist
	Resident      bool // POST /sluice/resident exists
	AllowFaults   bool // POST /fault exists
	MaxBodyBytes  int64

	KVEvents *kvevents.PublisherConfig // where KV events are published; nil for nowhere

	publish func([]kvevents.Event) // gets the KV events of each step
}

// DefaultConfig is a server of a deployment with vLLM's defaults for its GPU, blocks of so many tokens, and the KV memory that
// the GPU leaves.
func DefaultConfig(setup latency.Setup, blockTokens int32) (Config, error) {
	law, err := latency.New(setup)
	if err != nil {
		return Config{}, err
	}
	e := engine.DefaultConfig()
	e.BlockTokens = max(blockTokens, 1)
	e.MaxBatchedTokens = int32(setup.GPU.DefaultMaxBatchedTokens())
	e.MaxNumSeqs = min(int32(setup.GPU.DefaultMaxSeqs()), e.MaxBatchedTokens)
	e.SlidingWindowTokens = law.Window()
	e.MaxModelLen = 0
	c := Config{
		Name: setup.Model.Name, Engine: e, Setup: setup, Speed: 1, OutputTokens: 200, Interval: 1,
		PromptDetails: true, Render: true, Resident: true, MaxBodyBytes: 64 << 20,
	}
	options := latency.DefaultCapacityOptions()
	options.BlockTokens = int(e.BlockTokens)
	report, err := latency.Capacity(setup, options)
	if err == nil {
		c.Blocks = int32(min(report.NumGPUBlocks-1, math.MaxInt32/2))
	}
	return c, nil
}

// longestContext is the longest context that a server takes if nothing else is said.
const longestContext = 131072

// Check says whether New would take the configuration.
func (c Config) Check() error { return c.finish() }

// finish fills in what depends on the rest, and checks the configuration.
func (c *Config) finish() error {
	e := &c.Engine
	if c.Blocks < 1 {
		return fmt.Errorf("there is no memory for KV beside the weights; give the number of KV blocks, more GPUs, or another GPU")
	}
	if e.BlockTokens < 1 {
		return fmt.Errorf("a block of %d tokens; it must have at least one", e.BlockTokens)
	}
	tokens := min(int64(c.Blocks)*int64(e.BlockTokens), math.MaxInt32/2)
	if e.MaxModelLen == 0 {
		e.MaxModelLen = int32(min(tokens, longestContext))
	}
	switch {
	case int64(e.MaxModelLen) > tokens:
		return fmt.Errorf("a maximum model length of %d tokens does not fit in the KV cache, %d tokens; lower it, or give more KV blocks", e.MaxModelLen, tokens)
	case e.MaxModelLen < 2 || e.MaxNumSeqs < 1 || e.MaxBatchedTokens < e.MaxNumSeqs:
		return fmt.Errorf("max_model_len %d, max_num_seqs %d and max_num_batched_tokens %d; vLLM needs 2 or more, 1 or more, and no fewer tokens than sequences",
			e.MaxModelLen, e.MaxNumSeqs, e.MaxBatchedTokens)
	case !(c.Speed > 0 && c.Speed <= 1e6):
		return fmt.Errorf("speed %v; it must be above 0 and at most 1e6", c.Speed)
	case c.OutputTokens < 1 || c.Interval < 1:
		return fmt.Errorf("output tokens %d and stream interval %d; both must be at least 1", c.OutputTokens, c.Interval)
	case c.Name == "":
		return fmt.Errorf("the model has no name")
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 64 << 20
	}
	return nil
}
