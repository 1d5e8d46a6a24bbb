package studies

import "strings"

// grid is the settings that a router is tried with, each as "knob=value,knob=value" of its own knobs; "" is the defaults.
type grid struct {
	router   string
	settings []string
	why      string // where there is nothing to try
}

// grids has the first arm of the comparison first. At most eight settings each, the defaults among them: the knobs that say
// how much load may outweigh what is resident, those that say how much is remembered where that is too little here, and
// published variants. They were widened where the best was at an edge.
var grids = []grid{
	{router: "sticky", why: "its one knob bounds memory"},
	{router: "round-robin"},
	{router: "random"},
	{router: "power-of-two"},
	{router: "least-requests"},
	{router: "least-pending-tokens", settings: each("half_life_s=", "10", "60", "300", "1000")},
	{router: "least-work", settings: each("attention=", "false")},
	{router: "chwbl", settings: []string{
		"load_factor=2", "key=thread", "key=thread,load_factor=2",
		"key=session", "key=session,load_factor=2", "key=session,load_factor=4", "key=session,load_factor=1000",
	}},
	{router: "sticky-bounded", settings: []string{
		"bound=2", "bound=4", "bound=8",
		"prefill_load_scale=16", "bound=1,prefill_load_scale=16", "bound=2,prefill_load_scale=16", "bound=4,prefill_load_scale=16",
	}},
	{router: "sticky-least-loaded", settings: each("idle_s=", "10", "30", "120", "600")},
	{router: "vllm-dp", settings: each("client_count=", "2", "4", "8")},
	{router: "llm-d", settings: []string{
		"prefix_cache_weight=2", "prefix_cache_weight=6", "affinity_filter=true", "preset=precise-prefix",
		"preset=precise-prefix,prefix_cache_weight=1.5", "preset=precise-prefix,affinity_filter=true", "preset=payload-agnostic",
	}},
	{router: "aibrix-prefix-cache", settings: []string{
		"imbalance=32", "deviations=2", "table_blocks=3200000",
		"block_tokens=16", "block_tokens=16,imbalance=32", "block_tokens=16,deviations=2", "block_tokens=16,deviations=3",
	}},
	{router: "smg-cache-aware", settings: []string{
		"balance_abs_threshold=8", "balance_abs_threshold=16", "cache_threshold=0.6", "cache_threshold=0.6,balance_abs_threshold=16",
		"index=events,balance_abs_threshold=4", "index=events,balance_abs_threshold=8", "index=events,balance_abs_threshold=16",
	}},
	{router: "dynamo", settings: []string{
		"prefill_load_scale=4", "prefill_load_scale=16", "prefill_load_scale=64", "prefill_load_scale=16,overlap_score_credit=2",
		"request_weight=64", "prefill_load_scale=16,request_weight=64", "kv_events=false,ttl_s=0",
	}},
	{router: "preble", settings: []string{
		"window_s=60", "window_s=600", "imbalance=3", "imbalance=1000000", "window_s=20,imbalance=3", "window_s=60,imbalance=3",
		"window_s=60,imbalance=3,tpot_s=0.015",
	}},
	{router: "lmetric", settings: []string{
		"batch=ledger", "batch=sample", "bs_plus_one=false", "hotspot_detector=true",
		"include_queue=false", "include_queue=false,batch=ledger", "include_queue=false,hotspot_detector=true",
	}},
	{router: "bailian", settings: []string{
		"top_k=1", "top_k=1,b=10", "top_k=1,b=40",
		"form=linear,lambda=0.4", "form=linear,lambda=0.55", "form=linear", "form=linear,lambda=0.85",
	}},
	{router: "smetric", settings: []string{
		"gamma=0.5", "gamma=2", "gamma=4", "spill=lmetric", "spill=lmetric,gamma=2",
		"spill=lmetric,hit=0.8", "gate=overload,spill=lmetric",
	}},
	{router: "smetric-figure", settings: []string{
		"overload=1.25", "overload=1.5", "overload=3", "spill=lmetric", "overload=1.25,spill=lmetric", "overload=1.5,spill=lmetric",
		"overload=3,spill=lmetric",
	}},
	{router: "oracle"},
}

func each(knob string, values ...string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = knob + v
	}
	return out
}

// all is the defaults and the settings.
func (g *grid) all() []string { return append([]string{""}, g.settings...) }

// arm is the --arm of a setting.
func (g *grid) arm(name, setting string) string {
	text := name + ": policy.router=" + g.router
	if setting != "" {
		text += ",policy.router." + strings.ReplaceAll(setting, ",", ",policy.router.")
	}
	return text
}

// words is a setting as the page writes it.
func words(setting string) string {
	if setting == "" {
		return "defaults"
	}
	return "`" + strings.ReplaceAll(setting, ",", "` `") + "`"
}
