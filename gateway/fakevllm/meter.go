package fakevllm

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// meter counts what vLLM counts, under vLLM's names (spec: vllm 10). Times are the engine's, so that they do not depend on
// how much faster than real time it runs.
type meter struct {
	registry *prometheus.Registry

	preemptions, queries, hits, prompt, generation, cachedPrompt prometheus.Counter
	computed, localHit, external                                 prometheus.Counter
	success                                                      *prometheus.CounterVec
	iteration, ttft, itl, tpot, e2e, queue, inference            prometheus.Histogram
	prefill, decode, promptTokens, outputTokens, computedTokens  prometheus.Histogram
}

var (
	secondBuckets = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBuckets  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000}
	stepBuckets   = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// newMeter starts from zero. now is what the gauges show when somebody scrapes.
func newMeter(cfg *Config, now func() gauges) *meter {
	labels := prometheus.Labels{"model_name": cfg.Name, "engine": "0"}
	m := &meter{registry: prometheus.NewRegistry()}
	counter := func(name, help string, more ...string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: with(labels, more)})
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	gauge := func(name, help string, value func(gauges) float64, more ...string) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "vllm:" + name, Help: help, ConstLabels: with(labels, more)},
			func() float64 { return value(now()) }))
	}
	gauge("num_requests_running", "Requests in the running batch.", func(g gauges) float64 { return float64(g.running) })
	gauge("num_requests_waiting", "Requests that wait to be scheduled.", func(g gauges) float64 { return float64(g.waiting + g.deferred) })
	const by = "Requests that wait to be scheduled, by what for."
	gauge("num_requests_waiting_by_reason", by, func(g gauges) float64 { return float64(g.waiting) }, "reason", "capacity")
	gauge("num_requests_waiting_by_reason", by, func(g gauges) float64 { return float64(g.deferred) }, "reason", "deferred")
	gauge("kv_cache_usage_perc", "Share of the KV blocks that requests hold; 1 is all.", func(g gauges) float64 { return g.usage })
	gauge("cache_config_info", "Configuration of the KV cache.", func(gauges) float64 { return 1 },
		"block_size", strconv.Itoa(int(cfg.Engine.BlockTokens)), "num_gpu_blocks", strconv.Itoa(int(cfg.Blocks)+1),
		"enable_prefix_caching", map[bool]string{true: "True", false: "False"}[cfg.Engine.PrefixCaching])

	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice:late_seconds", Help: "Engine time by which the machine was late to see the end of the last step.", ConstLabels: labels,
	}, func() float64 { return seconds(now().late) }))
	m.preemptions = counter("num_preemptions_total", "Preemptions.")
	m.queries = counter("prefix_cache_queries_total", "Tokens looked up in the prefix cache.")
	m.hits = counter("prefix_cache_hits_total", "Tokens found in the prefix cache.")
	m.prompt = counter("prompt_tokens_total", "Prompt tokens processed, cached ones included.")
	m.generation = counter("generation_tokens_total", "Output tokens.")
	m.cachedPrompt = counter("prompt_tokens_cached_total", "Prompt tokens that were cached.")
	const source = "Prompt tokens by where their KV came from."
	m.computed = counter("prompt_tokens_by_source_total", source, "source", "local_compute")
	m.localHit = counter("prompt_tokens_by_source_total", source, "source", "local_cache_hit")
	m.external = counter("prompt_tokens_by_source_total", source, "source", "external_kv_transfer")
	m.success = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:request_success_total", Help: "Requests that ended, by how.", ConstLabels: labels}, []string{"finished_reason"})
	m.registry.MustRegister(m.success)
	for _, reason := range []string{"stop", "length", "abort"} {
		m.success.WithLabelValues(reason)
	}
	m.iteration = histogram("iteration_tokens_total", "Tokens of a step.", stepBuckets)
	m.ttft = histogram("time_to_first_token_seconds", "Time to the first token.", secondBuckets)
	m.itl = histogram("inter_token_latency_seconds", "Time from a token to the next.", secondBuckets)
	m.tpot = histogram("request_time_per_output_token_seconds", "Mean time for a token after the first.", secondBuckets)
	m.e2e = histogram("e2e_request_latency_seconds", "Time from arrival to the last token.", secondBuckets)
	m.queue = histogram("request_queue_time_seconds", "Time in the waiting queue.", secondBuckets)
	m.inference = histogram("request_inference_time_seconds", "Time in the running batch.", secondBuckets)
	m.prefill = histogram("request_prefill_time_seconds", "Time from admission to the first token.", secondBuckets)
	m.decode = histogram("request_decode_time_seconds", "Time from the first token to the last.", secondBuckets)
	m.promptTokens = histogram("request_prompt_tokens", "Prompt tokens of a request.", tokenBuckets)
	m.outputTokens = histogram("request_generation_tokens", "Output tokens of a request.", tokenBuckets)
	m.computedTokens = histogram("request_prefill_kv_computed_tokens", "Prompt tokens of a request that were computed.", tokenBuckets)
	return m
}

// with adds labels, given as names and values in turn.
func with(labels prometheus.Labels, more []string) prometheus.Labels {
	if len(more) == 0 {
		return labels
	}
	all := prometheus.Labels{}
	for k, v := range labels {
		all[k] = v
	}
	for i := 0; i+1 < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// prefix counts lookups of admissions.
func (m *meter) prefix(queries, hits int64) {
	m.queries.Add(float64(queries))
	m.hits.Add(float64(hits))
}

// admitted counts a request that was admitted for the first time.
func (m *meter) admitted(r *request) {
	n := float64(len(r.prompt))
	m.prompt.Add(n)
	m.cachedPrompt.Add(float64(r.cached))
	m.localHit.Add(float64(r.cached))
	m.computed.Add(n - float64(r.cached))
	m.queue.Observe(seconds(r.admitted - r.arrival))
}

// token counts an output token that came at a time.
func (m *meter) token(r *request, now int64) {
	m.generation.Inc()
	if r.produced == 0 {
		m.ttft.Observe(seconds(now - r.arrival))
	} else {
		m.itl.Observe(seconds(now - r.last))
	}
}

// ended counts the end of a request.
func (m *meter) ended(r *request, now int64) {
	m.success.WithLabelValues(r.reason).Inc()
	if r.reason == "abort" {
		return
	}
	m.e2e.Observe(seconds(now - r.arrival))
	m.inference.Observe(seconds(now - r.admitted))
	m.prefill.Observe(seconds(r.first - r.admitted))
	m.decode.Observe(seconds(now - r.first))
	if r.produced > 1 {
		m.tpot.Observe(seconds(now-r.first) / float64(r.produced-1))
	}
	m.promptTokens.Observe(float64(len(r.prompt)))
	m.outputTokens.Observe(float64(r.produced))
	m.computedTokens.Observe(float64(len(r.prompt)) - float64(r.cached))
}
