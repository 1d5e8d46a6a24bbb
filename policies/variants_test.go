package policies_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-sim/sluice/policies"
)

func textKnob(s string) policies.Value    { return policies.Value{Text: s} }
func numberKnob(x float64) policies.Value { return policies.Value{Number: x} }

var onKnob, offKnob = policies.Value{Bool: true}, policies.Value{Bool: false}

// variantArms are routers whose knobs take them to code that the defaults do not reach, behind the gate that lets all go.
func variantArms() []arm {
	var all []arm
	add := func(router string, variants ...policies.Params) {
		for _, p := range variants {
			all = append(all, arm{gate: "none", router: router, routerParams: p})
		}
	}
	everyScorer := policies.Params{"lru_blocks": numberKnob(3), "block_tokens": numberKnob(16), "session_ttl_s": numberKnob(.001)}
	for i, name := range []string{"queue", "running_requests", "kv_cache_utilization", "load_aware", "active_request", "token_load", "prefix_cache", "no_hit_lru", "session_affinity"} {
		everyScorer[name+"_weight"] = numberKnob(1 + float64(i)/8)
	}
	add("llm-d", policies.Params{"preset": textKnob("precise-prefix")}, policies.Params{"preset": textKnob("payload-agnostic")}, everyScorer,
		policies.Params{"prefix": textKnob("events"), "affinity_filter": onKnob, "affinity_threshold": numberKnob(.3), "no_hit_lru_weight": numberKnob(1)},
		policies.Params{"preset": textKnob("precise-prefix"), "picker": textKnob("weighted-random"), "speculative_indexing": onKnob, "speculative_ttl_s": numberKnob(.001), "prefix_scale": textKnob("min-max")},
		policies.Params{"picker": textKnob("random"), "utilization_filter": onKnob, "session_filter": onKnob, "session_ttl_s": numberKnob(.001), "autotune": onKnob},
		policies.Params{"affinity_filter": onKnob, "affinity_threshold": numberKnob(.3), "affinity_strict_threshold": numberKnob(.9), "affinity_exploration": numberKnob(.5),
			"affinity_penalty_s": numberKnob(0), "match_length_weight": numberKnob(.5), "output_ratio": numberKnob(1.5), "block_tokens": numberKnob(16), "token_load_weight": numberKnob(2)})
	add("lmetric", policies.Params{"hotspot_detector": onKnob, "hotspot_window_turns": numberKnob(4)}, policies.Params{"include_queue": offKnob, "bs_plus_one": offKnob},
		policies.Params{"batch": textKnob("sample")}, policies.Params{"batch": textKnob("ledger"), "bs_plus_one": offKnob})
	add("dynamo", policies.Params{"temperature": numberKnob(.5)}, policies.Params{"kv_events": offKnob, "ttl_s": numberKnob(.002)},
		policies.Params{"kv_events": offKnob, "temperature": numberKnob(.5), "ttl_s": numberKnob(0)}, policies.Params{"overlap_decay": numberKnob(1), "request_weight": numberKnob(2)})
	for _, gate := range []string{"overload", "budget", "budget_attention"} {
		for _, spill := range []string{"load", "lmetric", "lmetric_attention", "prefill_work_attention", "dynamo"} {
			add("smetric", policies.Params{"gate": textKnob(gate), "spill": textKnob(spill), "gamma": numberKnob(.02), "overload": numberKnob(1)})
		}
	}
	add("smetric", policies.Params{"decode_mask": onKnob, "hit": numberKnob(0)}, policies.Params{"decode_mask": onKnob, "spill": textKnob("load"), "expected_hit": textKnob("prompt")})
	add("smetric-figure", policies.Params{"request_tokens": numberKnob(40), "overload": numberKnob(1)})
	near := policies.Params{"balance_abs_threshold": numberKnob(1), "max_tree_tokens": numberKnob(150)}
	add("smg-cache-aware", near, policies.Params{"index": textKnob("events")}, policies.Params{"index": textKnob("events"), "balance_abs_threshold": numberKnob(1)},
		policies.Params{"usage_overload_threshold": numberKnob(.6), "usage_spread_threshold": numberKnob(.4)})
	add("chwbl", policies.Params{"key": textKnob("thread")}, policies.Params{"key": textKnob("session"), "load_factor": numberKnob(1)}, policies.Params{"key": textKnob("prefix"), "key_tokens": numberKnob(16)})
	add("bailian", policies.Params{"form": textKnob("linear")}, policies.Params{"top_k": numberKnob(1), "batch": textKnob("sample")})
	add("preble", policies.Params{"warm_up_turns": numberKnob(0), "imbalance": numberKnob(1), "window_s": numberKnob(.001), "kv_tokens": numberKnob(150)})
	add("aibrix-prefix-cache", policies.Params{"imbalance": numberKnob(0), "table_blocks": numberKnob(300), "ttl_s": numberKnob(.002)})
	add("sticky", policies.Params{"capacity_threads": numberKnob(2)})
	add("sticky-bounded", policies.Params{"bound": numberKnob(.5), "kv_events": offKnob}, policies.Params{"capacity_threads": numberKnob(1), "temperature": numberKnob(1)})
	add("sticky-least-loaded", policies.Params{"idle_s": numberKnob(.001)})
	return all
}

// name is an arm's, with the knobs that it sets.
func (a arm) name() string { return a.gate + knobs(a.params) + "/" + a.router + knobs(a.routerParams) }

func knobs(p policies.Params) string {
	var all []string
	for k, v := range p {
		text := fmt.Sprint(v.Number)
		if v.Text != "" {
			text = v.Text
		} else if v.Bool {
			text = "true"
		}
		all = append(all, k+"="+text)
	}
	slices.Sort(all)
	return "(" + strings.Join(all, ",") + ")"
}
