package scenarios

import (
	"math"
	"slices"
	"strings"
)

// section is an entry of the declaration: the keys below one path, or a choice whose keys depend on its name.
type section struct {
	path   string
	doc    string
	short  string // key that a plain value stands for: policy.router=sticky means policy.router.name=sticky
	keys   []key
	choice *choiceSection
	unless func(*Scenario) string // see key.unless
}

// choiceSection is a section whose name (or preset) key selects a declaration that has the other keys.
type choiceSection struct {
	name    string // key of the name: "name" or "preset"
	def     string // default name; "" when required
	at      func(*Scenario) *Choice
	options func() []option
}

// declaration lists every section, in the order of the canonical form. A section that decides whether another one
// applies stands before it.
var declaration = []section{
	{doc: "The scenario itself.", keys: []key{
		integer("version", func(s *Scenario) *int64 { return &s.Version }, "1", Version, Version, "",
			"Version of the file format."),
		text("name", func(s *Scenario) *string { return &s.Name }, "unnamed",
			"Name of the scenario; the results folder starts with it. Letters, digits, '.', '_' and '-'."),
		integer("seed", func(s *Scenario) *int64 { return &s.Seed }, "1", 0, huge, "",
			"Seed of every draw. All arms of a comparison have the same draws."),
	}},
	{path: "workload.trace", short: "path", unless: needsSource("trace"),
		doc: "A recorded trace. A scenario has either this or `workload.generate`.", keys: []key{
			requiredText("workload.trace.path", func(s *Scenario) *string { return &s.Workload.Trace.Path },
				"File or folder. A relative path is relative to the folder of the scenario file; in a bundled scenario and in --set it is relative to the current folder."),
			text("workload.trace.format", func(s *Scenario) *string { return &s.Workload.Trace.Format }, "auto",
				"Format of the trace, or auto. `sluice trace stats --help` names the formats."),
			enum("workload.trace.shared_prefix", func(s *Scenario) *string { return &s.Workload.Trace.SharedPrefix }, "auto", []string{"none", "auto"},
				"auto: sessions with the same model, tool tokens and system tokens start with the same content. none: only what the trace's own ids say is shared."),
			optionalFloat("workload.trace.idle_cap_s", func(s *Scenario) *float64 { return &s.Workload.Trace.IdleCapS }, 0.001, huge, "s",
				"Longest tool gap; longer ones are cut to it. null: as recorded."),
			optionalInteger("workload.trace.max_context", func(s *Scenario) *int64 { return &s.Workload.Trace.MaxContext }, 1, math.MaxInt32, "tokens",
				"Turns whose prompt and output are longer are dropped, and counted. null: what the engine can hold."),
			enum("workload.trace.output_reuse", func(s *Scenario) *string { return &s.Workload.Trace.OutputReuse }, "full", []string{"full", "none"},
				"full: the output of a turn is part of the next prompt and found in the cache. none: the next prompt shares the previous prompt only. A file in the native format has full or none settled; there none is refused."),
			enum("workload.trace.models", func(s *Scenario) *string { return &s.Workload.Trace.Models }, "all", []string{"all", "main"},
				"all: calls of every model of the trace run on the cluster's model. main: calls of the others are dropped."),
			integer("workload.trace.sessions", func(s *Scenario) *int64 { return &s.Workload.Trace.Sessions }, "0", 0, math.MaxInt32, "sessions",
				"Only the first sessions of the trace; 0 for all."),
		}},
	{path: "workload.generate", short: "preset", unless: needsSource("generate"),
		doc:    "Generated sessions. The other keys are the preset's own (`sluice trace generate --help`).",
		choice: &choiceSection{name: "preset", at: func(s *Scenario) *Choice { return &s.Workload.Generate }, options: presets}},
	{path: "arrivals", short: "process", doc: "How sessions arrive.", keys: []key{
		enum("arrivals.process", func(s *Scenario) *string { return &s.Arrivals.Process }, "poisson",
			[]string{"poisson", "uniform", "recorded", "concurrent", "rollout", "burst"},
			"poisson: at random, at a rate. uniform: at equal gaps, at a rate. recorded: at the trace's own times. concurrent: a fixed number of sessions at a time. rollout: steps of prompts x samples in lockstep. burst: all at once."),
		key{path: "arrivals.rate_per_s", kind: floatKey, required: true, min: 1e-6, max: 1e6, unit: "sessions/s",
			doc: "Mean rate of session arrivals.", unless: needsProcess("poisson", "uniform")}.float(func(s *Scenario) *float64 { return &s.Arrivals.RatePerS }),
		key{path: "arrivals.speedup", kind: floatKey, def: "1", min: 1e-6, max: 1e6,
			doc: "Recorded arrival times are divided by it.", unless: needsProcess("recorded")}.float(func(s *Scenario) *float64 { return &s.Arrivals.Speedup }),
		key{path: "arrivals.sessions", kind: intKey, def: "64", min: 1, max: math.MaxInt32, unit: "sessions",
			doc: "Sessions alive at a time.", unless: needsProcess("concurrent")}.integer(func(s *Scenario) *int64 { return &s.Arrivals.Sessions }),
		key{path: "arrivals.prompts", kind: intKey, def: "64", min: 1, max: math.MaxInt32,
			doc: "Prompts of a rollout step.", unless: needsProcess("rollout")}.integer(func(s *Scenario) *int64 { return &s.Arrivals.Prompts }),
		key{path: "arrivals.samples", kind: intKey, def: "8", min: 1, max: math.MaxInt32,
			doc: "Samples of each prompt of a rollout step.", unless: needsProcess("rollout")}.integer(func(s *Scenario) *int64 { return &s.Arrivals.Samples }),
		shuffleKey(),
		classSharesKey(),
	}},
	{doc: "Within a session.", keys: []key{
		enum("replay", func(s *Scenario) *string { return &s.Replay }, "closed", []string{"closed", "open"},
			"closed: a turn arrives when what it depends on has happened, plus its tool gap. open: turns arrive at their recorded times, whatever the cluster does."),
	}},
	{path: "clients", doc: "What clients do when they have to wait.", keys: []key{
		optionalFloat("clients.timeout_s", func(s *Scenario) *float64 { return &s.Clients.TimeoutS }, 0.001, huge, "s",
			"A client gives an attempt up after this long. null: never."),
		integer("clients.retries", func(s *Scenario) *int64 { return &s.Clients.Retries }, "0", 0, 100, "",
			"Attempts after the first."),
		float("clients.retry_delay_s", func(s *Scenario) *float64 { return &s.Clients.RetryDelayS }, "1", 0, 1e6, "s",
			"Wait before the next attempt."),
		boolean("clients.cancel_upstream", func(s *Scenario) *bool { return &s.Clients.CancelUpstream }, "true",
			"An attempt that its client gave up is cancelled in the engine; false: it runs on for nobody."),
	}},
	{path: "cluster", doc: "The replicas.", keys: clusterKeys},
	{path: "cluster.engine", doc: "vLLM's options under vLLM's names.", keys: engineKeys},
	{path: "signals", doc: "What a policy sees of the replicas, and how late.", keys: []key{
		float("signals.scrape_s", func(s *Scenario) *float64 { return &s.Signals.ScrapeS }, "0.1", 1e-3, 1e4, "s",
			"Interval of scraped metrics."),
		float("signals.scrape_delay_s", func(s *Scenario) *float64 { return &s.Signals.ScrapeDelayS }, "0", 0, 1e4, "s",
			"From a scrape to when the policies see it."),
		float("signals.scrape_jitter_s", func(s *Scenario) *float64 { return &s.Signals.ScrapeJitterS }, "0", 0, 1e4, "s",
			"Most that is added to the delay, drawn for each replica and scrape. An older scrape that comes after a newer one is ignored."),
		float("signals.scrape_loss", func(s *Scenario) *float64 { return &s.Signals.ScrapeLoss }, "0", 0, 1, "fraction",
			"Probability that a scrape of a replica fails; the policies then keep what they know, whose age grows."),
		float("signals.probe_ipc_s", func(s *Scenario) *float64 { return &s.Signals.ProbeIPCS }, "0.0005", 0, 1e3, "s",
			"Time a probe takes besides waiting for the end of the engine step in progress."),
		float("signals.kv_event_delay_s", func(s *Scenario) *float64 { return &s.Signals.KVEventDelayS }, "0", 0, 1e4, "s",
			"Delay of KV events."),
		enum("signals.probes", func(s *Scenario) *string { return &s.Signals.Probes }, "supported", []string{"supported", "unsupported"},
			"unsupported: replicas answer probes with an error, as stock vLLM does; each policy says what it does then."),
		float("signals.probe_timeout_s", func(s *Scenario) *float64 { return &s.Signals.ProbeTimeoutS }, "1", 1e-6, 1e4, "s",
			"A probe without an answer for this long counts as unknown."),
	}},
	{path: "policy.gate", short: "name", doc: "When a turn may go. The other keys are the gate's own knobs (`sluice policies NAME`).",
		choice: &choiceSection{name: "name", def: "none", at: func(s *Scenario) *Choice { return &s.Policy.Gate }, options: gates}},
	{path: "policy.router", short: "name", doc: "Which replica a turn goes to. The other keys are the router's own knobs (`sluice policies NAME`).",
		choice: &choiceSection{name: "name", def: "round-robin", at: func(s *Scenario) *Choice { return &s.Policy.Router }, options: routers}},
	{path: "policy.retention", short: "name", doc: "How long the content of a finished turn is pinned. All but none need an engine that can pin, which stock vLLM cannot.",
		choice: &choiceSection{name: "name", def: "none", at: func(s *Scenario) *Choice { return &s.Policy.Retention }, options: retentions}},
	{path: "slo", doc: "When a turn counts as good. A bound that is null does not exist.", keys: []key{
		optionalFloat("slo.ttft_s", func(s *Scenario) *float64 { return &s.SLO.TTFTS }, 1e-6, 1e6, "s",
			"Bound on the time to first token."),
		optionalFloat("slo.ttft_per_1k_prompt_s", func(s *Scenario) *float64 { return &s.SLO.TTFTPer1kPromptS }, 1e-6, 1e6, "s",
			"Added to the bound for every 1,000 prompt tokens."),
		optionalFloat("slo.tpot_s", func(s *Scenario) *float64 { return &s.SLO.TPOTS }, 1e-6, 1e6, "s",
			"Bound on the mean time per output token after the first."),
	}},
	{doc: "What goes wrong in the cluster while it runs ([faults.md](faults.md)).", keys: []key{faultList()}},
	{path: "output", doc: "What the results hold.", keys: []key{
		float("output.interval_s", func(s *Scenario) *float64 { return &s.Output.IntervalS }, "1", 1e-3, 1e6, "s",
			"Interval of the time series of replicas; it grows where a replica would have more than 5,000 samples."),
	}},
}

var clusterKeys = []key{
	key{path: "cluster.replicas", kind: intKey, required: true, min: 1, max: 65536,
		doc: "Engine instances."}.integer(func(s *Scenario) *int64 { return &s.Cluster.Replicas }),
	integer("cluster.routers", func(s *Scenario) *int64 { return &s.Cluster.Routers }, "1", 1, 1024, "",
		"Router instances side by side, each with a gate, a router and a ledger of its own. A session stays with the instance that the seed draws for it; each instance sees every scrape and KV event, but only its own turns."),
	requiredText("cluster.model", func(s *Scenario) *string { return &s.Cluster.Model },
		"Model card: a name of `sluice models` or a file."),
	requiredText("cluster.gpu", func(s *Scenario) *string { return &s.Cluster.GPU },
		"GPU card: a name of `sluice gpus` or a file."),
	integer("cluster.tensor_parallel", func(s *Scenario) *int64 { return &s.Cluster.TensorParallel }, "1", 1, 64, "GPUs",
		"GPUs of one replica."),
	enum("cluster.weight_dtype", func(s *Scenario) *string { return &s.Cluster.WeightDtype }, "auto", weightDtypes,
		"Type of the weights; auto: the model card's."),
	enum("cluster.moe_dtype", func(s *Scenario) *string { return &s.Cluster.MoEDtype }, "auto", weightDtypes,
		"Type of the expert weights; auto: as the other weights."),
	float("cluster.overhead_gib", func(s *Scenario) *float64 { return &s.Cluster.OverheadGiB }, "3", 0, 1e4, "GiB",
		"GPU memory that neither weights nor KV cache use (activations, graphs, other). An assumption, the same for all GPUs."),
	text("cluster.calibration", func(s *Scenario) *string { return &s.Cluster.Calibration }, "none",
		"Calibration of the step time for one deployment, or none."),
	boolean("cluster.infinite_cache", func(s *Scenario) *bool { return &s.Cluster.InfiniteCache }, "false",
		"Every replica has unlimited KV: a bound to compare policies with, not a deployment."),
	float("cluster.cpu_tier.gib", func(s *Scenario) *float64 { return &s.Cluster.CPUTier.GiB }, "0", 0, 1e6, "GiB",
		"Host memory for KV behind each replica, over all its GPUs (vLLM's offloading connector); 0: none."),
	enum("cluster.cpu_tier.eviction", func(s *Scenario) *string { return &s.Cluster.CPUTier.Eviction }, "lru", []string{"lru", "arc"},
		"What the CPU tier evicts."),
	integer("cluster.cpu_tier.blocks_per_chunk", func(s *Scenario) *int64 { return &s.Cluster.CPUTier.BlocksPerChunk }, "1", 1, 4096, "blocks",
		"KV blocks that are stored, loaded and evicted together."),
	integer("cluster.cpu_tier.store_threshold", func(s *Scenario) *int64 { return &s.Cluster.CPUTier.StoreThreshold }, "0", 0, 1<<20, "lookups",
		"A chunk is stored only after so many lookups of it; below 2: always."),
	boolean("cluster.cpu_tier.offload_prompt_only", func(s *Scenario) *bool { return &s.Cluster.CPUTier.PromptOnly }, "true",
		"Only blocks of prompts are stored, not those of generated tokens."),
	enum("cluster.cpu_tier.overlap", func(s *Scenario) *string { return &s.Cluster.CPUTier.Overlap }, "asynchronous", []string{"asynchronous", "blocking", "layer-wise"},
		"How loads and steps go together: a load delays only its request, stalls the step, or runs one layer ahead of it."),
	notBuilt("cluster.global_store.gib", "Global KV store."),
}

var weightDtypes = []string{"auto", "bf16", "fp8", "fp8_block", "nvfp4", "mxfp4"}

var engineKeys = []key{
	integer("cluster.engine.block_size", func(s *Scenario) *int64 { return &s.Cluster.Engine.BlockSize }, "16", 1, 4096, "tokens",
		"Tokens of one KV block."),
	optionalInteger("cluster.engine.max_num_batched_tokens", func(s *Scenario) *int64 { return &s.Cluster.Engine.MaxNumBatchedTokens }, 1, 1<<24, "tokens",
		"Token budget of a step. null: as vLLM's API server, 16384 on GPUs from 160 GiB, 8192 from 70 GiB, 2048 on smaller ones and on A100."),
	optionalInteger("cluster.engine.max_num_seqs", func(s *Scenario) *int64 { return &s.Cluster.Engine.MaxNumSeqs }, 1, 1<<20, "requests",
		"Most requests that run at a time. null: as vLLM, 1024 on GPUs from 70 GiB, 256 on smaller ones and on A100."),
	optionalInteger("cluster.engine.max_model_len", func(s *Scenario) *int64 { return &s.Cluster.Engine.MaxModelLen }, 1, math.MaxInt32, "tokens",
		"Longest context. null: as long as the KV cache can hold."),
	float("cluster.engine.gpu_memory_utilization", func(s *Scenario) *float64 { return &s.Cluster.Engine.GPUMemoryUtilization }, "0.92", 0.01, 1, "fraction",
		"Share of the GPU's memory that the engine may use."),
	enum("cluster.engine.kv_cache_dtype", func(s *Scenario) *string { return &s.Cluster.Engine.KVCacheDtype }, "auto", []string{"auto", "bfloat16", "fp8"},
		"Type of the KV cache; auto is bfloat16."),
	optionalInteger("cluster.engine.num_gpu_blocks_override", func(s *Scenario) *int64 { return &s.Cluster.Engine.NumGPUBlocksOverride }, 2, math.MaxInt32, "blocks",
		"KV blocks of a replica, the null block included. null: derived from memory, model and tensor parallelism."),
	optionalInteger("cluster.engine.kv_cache_memory_bytes", func(s *Scenario) *int64 { return &s.Cluster.Engine.KVCacheMemoryBytes }, 1, 1<<50, "bytes",
		"KV cache of one GPU; gpu_memory_utilization is then ignored. null: derived."),
	integer("cluster.engine.long_prefill_token_threshold", func(s *Scenario) *int64 { return &s.Cluster.Engine.LongPrefillThreshold }, "0", 0, math.MaxInt32, "tokens",
		"Most prefill tokens of one request in a step; 0: no limit."),
	enum("cluster.engine.scheduling_policy", func(s *Scenario) *string { return &s.Cluster.Engine.SchedulingPolicy }, "fcfs", []string{"fcfs", "priority"},
		"Order of waiting requests."),
	boolean("cluster.engine.enable_chunked_prefill", func(s *Scenario) *bool { return &s.Cluster.Engine.EnableChunkedPrefill }, "true",
		"A prompt may be computed over several steps."),
	boolean("cluster.engine.enable_prefix_caching", func(s *Scenario) *bool { return &s.Cluster.Engine.EnablePrefixCaching }, "true",
		"Blocks of finished requests stay and are found again."),
	boolean("cluster.engine.async_scheduling", func(s *Scenario) *bool { return &s.Cluster.Engine.AsyncScheduling }, "true",
		"The next step is scheduled while the current one runs."),
	boolean("cluster.engine.scheduler_reserve_full_isl", func(s *Scenario) *bool { return &s.Cluster.Engine.SchedulerReserveFullISL }, "true",
		"A request starts only when its whole prompt has room."),
	float("cluster.engine.watermark", func(s *Scenario) *float64 { return &s.Cluster.Engine.Watermark }, "0", 0, 0.99, "fraction",
		"Share of the blocks kept free when a waiting request is taken in."),
	boolean("cluster.engine.skip_blocked_requests", func(s *Scenario) *bool { return &s.Cluster.Engine.SkipBlockedRequests }, "false",
		"Not an option of vLLM, which stops at the first waiting request that does not fit: it is passed over, and tried first in the next step."),
}

func needsSource(source string) func(*Scenario) string {
	return func(s *Scenario) string {
		if s.Workload.Source != source {
			return "has no effect: the workload is workload." + s.Workload.Source
		}
		return ""
	}
}

func needsProcess(processes ...string) func(*Scenario) string {
	return func(s *Scenario) string {
		if !slices.Contains(processes, s.Arrivals.Process) {
			return "has no effect with process " + s.Arrivals.Process + ": it belongs to process " + strings.Join(processes, ", ")
		}
		return ""
	}
}

func integer(path string, at func(*Scenario) *int64, def string, low, high float64, unit, doc string) key {
	return key{path: path, kind: intKey, def: def, min: low, max: high, unit: unit, doc: doc}.integer(at)
}

// optionalInteger has the default null, which is 0 in the Scenario.
func optionalInteger(path string, at func(*Scenario) *int64, low, high float64, unit, doc string) key {
	return key{path: path, kind: intKey, def: "null", optional: true, min: low, max: high, unit: unit, doc: doc}.integer(at)
}

func float(path string, at func(*Scenario) *float64, def string, low, high float64, unit, doc string) key {
	return key{path: path, kind: floatKey, def: def, min: low, max: high, unit: unit, doc: doc}.float(at)
}

// optionalFloat has the default null, which is 0 in the Scenario.
func optionalFloat(path string, at func(*Scenario) *float64, low, high float64, unit, doc string) key {
	return key{path: path, kind: floatKey, def: "null", optional: true, min: low, max: high, unit: unit, doc: doc}.float(at)
}

func boolean(path string, at func(*Scenario) *bool, def, doc string) key {
	return key{path: path, kind: boolKey, def: def, doc: doc,
		store: func(s *Scenario, v value) { *at(s) = v.boolean },
		load:  func(s *Scenario) value { return value{boolean: *at(s)} }}
}

func enum(path string, at func(*Scenario) *string, def string, values []string, doc string) key {
	return key{path: path, kind: enumKey, def: def, enum: values, doc: doc}.text(at)
}

func text(path string, at func(*Scenario) *string, def, doc string) key {
	return key{path: path, kind: textKey, def: def, doc: doc}.text(at)
}

func requiredText(path string, at func(*Scenario) *string, doc string) key {
	return key{path: path, kind: textKey, required: true, doc: doc}.text(at)
}

func shuffleKey() key {
	k := boolean("arrivals.shuffle", func(s *Scenario) *bool { return &s.Arrivals.Shuffle }, "false",
		"Sessions start in an order drawn from the seed, not in that of the trace.")
	k.unless = needsProcess("poisson", "uniform", "concurrent", "burst")
	return k
}

// notBuilt accepts nothing but zero.
func notBuilt(path, doc string) key {
	return key{path: path, kind: intKey, def: "0", unit: "GiB", doc: doc + " Not built yet: must be 0.",
		store: func(*Scenario, value) {}, load: func(*Scenario) value { return value{} }}
}

func (k key) integer(at func(*Scenario) *int64) key {
	k.store = func(s *Scenario, v value) { *at(s) = v.integer }
	k.load = func(s *Scenario) value {
		n := *at(s)
		return value{integer: n, number: float64(n), null: k.optional && n == 0}
	}
	return k
}

func (k key) float(at func(*Scenario) *float64) key {
	k.store = func(s *Scenario, v value) { *at(s) = v.number }
	k.load = func(s *Scenario) value { return value{number: *at(s), null: k.optional && *at(s) == 0} }
	return k
}

func (k key) text(at func(*Scenario) *string) key {
	k.store = func(s *Scenario, v value) { *at(s) = v.text }
	k.load = func(s *Scenario) value { return value{text: *at(s)} }
	return k
}

// isNotBuilt tells the keys that only accept emptiness.
func (k *key) isNotBuilt() bool {
	return strings.HasSuffix(k.path, ".gib")
}
