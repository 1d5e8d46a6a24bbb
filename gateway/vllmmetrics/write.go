package vllmmetrics

import (
	"strconv"
	"strings"
)

// Write appends the metrics of engines to b in Prometheus text, under vLLM's newer names and with the labels model_name and
// engine. A figure that is unknown is left out.
func Write(b []byte, modelName string, engines []Engine) []byte {
	last := ""
	for i := range written {
		w := &written[i]
		for k := range engines {
			e := &engines[k]
			v, ok := e.Value(w.figure)
			if !ok {
				continue
			}
			if w.name != last {
				last = w.name
				b = append(b, "# HELP "+w.name+" "+w.help+"\n# TYPE "+w.name+" "+w.kind+"\n"...)
			}
			b = w.line(b, modelName, e, v)
		}
	}
	return b
}

// figureText is one figure and how it is written.
type figureText struct {
	figure            Figure
	name, kind, help  string
	label, labelValue string
	sum               bool // a histogram, of which sum and count are known
}

var written = []figureText{
	{figure: Running, name: "vllm:num_requests_running", kind: "gauge", help: "Requests in the running list."},
	{figure: Waiting, name: "vllm:num_requests_waiting", kind: "gauge", help: "Requests that wait."},
	{figure: WaitingForCapacity, name: "vllm:num_requests_waiting_by_reason", kind: "gauge", help: "Requests that wait, by reason.", label: "reason", labelValue: "capacity"},
	{figure: WaitingDeferred, name: "vllm:num_requests_waiting_by_reason", kind: "gauge", help: "Requests that wait, by reason.", label: "reason", labelValue: "deferred"},
	{figure: Usage, name: "vllm:kv_cache_usage_perc", kind: "gauge", help: "Referenced KV blocks, 1 is all."},
	{figure: QueryTokens, name: "vllm:prefix_cache_queries_total", kind: "counter", help: "Prompt tokens looked up in the prefix cache."},
	{figure: HitTokens, name: "vllm:prefix_cache_hits_total", kind: "counter", help: "Prompt tokens found in the prefix cache."},
	{figure: ExternalQueryTokens, name: "vllm:external_prefix_cache_queries_total", kind: "counter", help: "Prompt tokens looked up in an external cache."},
	{figure: ExternalHitTokens, name: "vllm:external_prefix_cache_hits_total", kind: "counter", help: "Prompt tokens found in an external cache."},
	{figure: PromptLocalCompute, name: "vllm:prompt_tokens_by_source_total", kind: "counter", help: "Prompt tokens by source.", label: "source", labelValue: "local_compute"},
	{figure: PromptLocalHit, name: "vllm:prompt_tokens_by_source_total", kind: "counter", help: "Prompt tokens by source.", label: "source", labelValue: "local_cache_hit"},
	{figure: PromptExternal, name: "vllm:prompt_tokens_by_source_total", kind: "counter", help: "Prompt tokens by source.", label: "source", labelValue: "external_kv_transfer"},
	{figure: PromptTokens, name: "vllm:prompt_tokens_total", kind: "counter", help: "Prompt tokens."},
	{figure: GenerationTokens, name: "vllm:generation_tokens_total", kind: "counter", help: "Tokens generated."},
	{figure: Preemptions, name: "vllm:num_preemptions_total", kind: "counter", help: "Preemptions."},
	{figure: Blocks, name: "vllm:cache_config_info", kind: "gauge", help: "Configuration of the KV cache."},
	{figure: QueueSeconds, name: "vllm:request_queue_time_seconds", kind: "histogram", help: "Time in the queue.", sum: true},
	{figure: PrefillSeconds, name: "vllm:request_prefill_time_seconds", kind: "histogram", help: "Time of prefill.", sum: true},
	{figure: DecodeSeconds, name: "vllm:request_decode_time_seconds", kind: "histogram", help: "Time of decode.", sum: true},
	{figure: E2ESeconds, name: "vllm:e2e_request_latency_seconds", kind: "histogram", help: "Time from arrival to the last token.", sum: true},
	{figure: TTFTSeconds, name: "vllm:time_to_first_token_seconds", kind: "histogram", help: "Time to the first token.", sum: true},
	{figure: InterTokenSeconds, name: "vllm:inter_token_latency_seconds", kind: "histogram", help: "Time between tokens.", sum: true},
	{figure: OffloadBytes, name: "vllm:kv_offload_bytes_total", kind: "counter", help: "Bytes moved to and from the CPU tier."},
	{figure: OffloadSeconds, name: "vllm:kv_offload_time_total", kind: "counter", help: "Time of these moves in seconds."},
}

func (w *figureText) line(b []byte, modelName string, e *Engine, v float64) []byte {
	labels := `engine="` + escape(e.Label) + `",model_name="` + escape(modelName) + `"`
	if w.label != "" {
		labels += `,` + w.label + `="` + w.labelValue + `"`
	}
	if w.figure == Blocks {
		if size, ok := e.Value(BlockTokens); ok {
			labels = `block_size="` + number(size) + `",` + labels
		}
		return append(b, w.name+"{"+labels+`,num_gpu_blocks="`+number(v)+"\"} 1\n"...)
	}
	if !w.sum {
		return append(b, w.name+"{"+labels+"} "+number(v)+"\n"...)
	}
	count, _ := e.Value(w.figure + 1)
	b = append(b, w.name+"_bucket{"+labels+`,le="+Inf"} `+number(count)+"\n"...)
	b = append(b, w.name+"_sum{"+labels+"} "+number(v)+"\n"...)
	return append(b, w.name+"_count{"+labels+"} "+number(count)+"\n"...)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

var escaper = strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`)

func escape(s string) string { return escaper.Replace(s) }
