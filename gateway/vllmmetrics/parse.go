package vllmmetrics

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Bounds of what Parse takes.
const (
	MaxBytes   = 8 << 20
	MaxEngines = 1024
)

// ErrTooLarge is a text with more than MaxBytes bytes or MaxEngines engines.
var ErrTooLarge = errors.New("vLLM metrics: too large")

// Parse reads the Prometheus text of a vLLM server. Metrics that are not vLLM's, or of which nothing is known here, are
// left out. The error is ErrTooLarge or says where the text is no Prometheus text.
func Parse(r io.Reader) (*Scrape, error) {
	bounded := &io.LimitedReader{R: r, N: MaxBytes + 1}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bounded)
	if bounded.N <= 0 {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("vLLM metrics: %w", err)
	}
	s := &Scrape{}
	for _, source := range sources {
		if err := s.take(&source, families); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// source says where a figure stands. Of several names the first that is there counts, for one engine as for all.
type source struct {
	figure       Figure
	names        []string
	label, value string // only metrics with this label; none if label is empty
	count        bool   // the count of a histogram, not its sum
	number       string // the label that holds the figure, of an info metric
}

func histogram(sum Figure, name string) []source {
	return []source{{figure: sum, names: []string{name}}, {figure: sum + 1, names: []string{name}, count: true}}
}

// counter is the names of a counter, which client libraries write with or without _total.
func counter(f Figure, names ...string) source {
	s := source{figure: f}
	for _, n := range names {
		s.names = append(s.names, n+"_total", n)
	}
	return s
}

func labelled(s source, label, value string) source {
	s.label, s.value = label, value
	return s
}

var sources = slices.Concat([]source{
	{figure: Running, names: []string{"vllm:num_requests_running"}},
	{figure: Waiting, names: []string{"vllm:num_requests_waiting"}},
	{figure: WaitingForCapacity, names: []string{"vllm:num_requests_waiting_by_reason"}, label: "reason", value: "capacity"},
	{figure: WaitingDeferred, names: []string{"vllm:num_requests_waiting_by_reason"}, label: "reason", value: "deferred"},
	{figure: Usage, names: []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}},
	counter(QueryTokens, "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
	counter(HitTokens, "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
	counter(ExternalQueryTokens, "vllm:external_prefix_cache_queries"),
	counter(ExternalHitTokens, "vllm:external_prefix_cache_hits"),
	labelled(counter(PromptLocalCompute, "vllm:prompt_tokens_by_source"), "source", "local_compute"),
	labelled(counter(PromptLocalHit, "vllm:prompt_tokens_by_source"), "source", "local_cache_hit"),
	labelled(counter(PromptExternal, "vllm:prompt_tokens_by_source"), "source", "external_kv_transfer"),
	counter(PromptTokens, "vllm:prompt_tokens"),
	counter(GenerationTokens, "vllm:generation_tokens"),
	counter(Preemptions, "vllm:num_preemptions"),
	{figure: Blocks, names: []string{"vllm:cache_config_info"}, number: "num_gpu_blocks"},
	{figure: BlockTokens, names: []string{"vllm:cache_config_info"}, number: "block_size"},
	counter(OffloadBytes, "vllm:kv_offload_bytes", "vllm:kv_offload_total_bytes"),
	counter(OffloadSeconds, "vllm:kv_offload_time", "vllm:kv_offload_total_time"),
},
	histogram(QueueSeconds, "vllm:request_queue_time_seconds"),
	histogram(PrefillSeconds, "vllm:request_prefill_time_seconds"),
	histogram(DecodeSeconds, "vllm:request_decode_time_seconds"),
	histogram(E2ESeconds, "vllm:e2e_request_latency_seconds"),
	histogram(TTFTSeconds, "vllm:time_to_first_token_seconds"),
	interToken(),
)

// interToken is one histogram under two names.
func interToken() []source {
	h := histogram(InterTokenSeconds, "vllm:inter_token_latency_seconds")
	for i := range h {
		h[i].names = append(h[i].names, "vllm:time_per_output_token_seconds")
	}
	return h
}

// take reads one figure of every engine. Several metrics of one engine (of several models, for instance) are summed.
func (s *Scrape) take(from *source, families map[string]*dto.MetricFamily) error {
	for _, name := range from.names {
		family := families[name]
		if family == nil {
			continue
		}
		found := false
		for _, m := range family.GetMetric() {
			if from.label != "" && labelOf(m, from.label) != from.value {
				continue
			}
			v, ok := from.read(m)
			if !ok {
				continue
			}
			found = true
			e := s.engine(labelOf(m, "engine"))
			if len(s.Engines) > MaxEngines {
				return fmt.Errorf("%w: more than %d engines", ErrTooLarge, MaxEngines)
			}
			if from.figure == BlockTokens && e.Has(BlockTokens) {
				continue
			}
			if e.refused>>from.figure&1 == 0 && !e.add(from.figure, v) {
				e.has &^= 1 << from.figure
				e.refused |= 1 << from.figure
				s.refuse(name)
			}
		}
		if found {
			return nil
		}
	}
	return nil
}

func (s *Scrape) refuse(name string) {
	if !slices.Contains(s.Refused, name) {
		s.Refused = append(s.Refused, name)
	}
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// read is the number of a metric, whatever its type; false if it has none.
func (from *source) read(m *dto.Metric) (float64, bool) {
	if from.number != "" {
		v, err := strconv.ParseFloat(labelOf(m, from.number), 64)
		return v, err == nil
	}
	if h := m.GetHistogram(); h != nil {
		if from.count {
			return float64(h.GetSampleCount()), h.SampleCount != nil
		}
		return h.GetSampleSum(), h.SampleSum != nil
	}
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue(), true
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue(), true
	case m.GetUntyped() != nil:
		return m.GetUntyped().GetValue(), true
	}
	return 0, false
}
