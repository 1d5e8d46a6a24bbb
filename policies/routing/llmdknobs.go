package routing

import "github.com/sluice-sim/sluice/policies"

// Values of the knobs of llm-d.
const (
	pickMaxScore       = "max-score"
	pickWeightedRandom = "weighted-random"
	pickRandom         = "random"

	scaleShare  = "share"
	scaleMinMax = "min-max"
)

func llmdKnobs() []policies.Knob {
	knobs := llmdPrefixKnobs()
	knobs = append(knobs, llmdScorerKnobs()...)
	knobs = append(knobs, llmdFilterKnobs()...)
	return append(knobs, llmdWeightKnobs()...)
}

func llmdPrefixKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "preset", Kind: policies.EnumKnob, Default: policies.Value{Text: "default"}, Enum: []string{"default", "precise-prefix", "payload-agnostic"}, Doc: "which profile the weights and the prefix index come from"},
		{Name: "picker", Kind: policies.EnumKnob, Default: policies.Value{Text: pickMaxScore}, Enum: []string{pickMaxScore, pickWeightedRandom, pickRandom},
			Doc: "who is taken of those that the filters leave: the largest sum, each with a chance in proportion to its sum, or each with the same chance"},
		{Name: "prefix", Kind: policies.EnumKnob, Default: policies.Value{Text: "preset"}, Enum: []string{"preset", "approximate", "events"}, Doc: "what says where a prefix is: what was sent, or KV events"},
		{Name: "block_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 64}, Min: 1, Max: 1e6, Unit: "tokens", Doc: "prefix approximate: size of a block"},
		{Name: "lru_blocks", Kind: policies.IntKnob, Default: policies.Value{Number: 31250}, Min: 1, Max: 1e9, Unit: "blocks", Doc: "prefix approximate: blocks remembered for each replica"},
		{Name: "autotune", Kind: policies.BoolKnob, Default: policies.Value{Bool: false},
			Doc: "prefix approximate: whether a block is as large as the engine's, but at least block_tokens, and as many are remembered as the engine has, where these are known"},
		{Name: "speculative_indexing", Kind: policies.BoolKnob, Default: policies.Value{Bool: false}, Doc: "prefix events: whether what was sent within speculative_ttl_s counts as there too"},
		{Name: "speculative_ttl_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 2}, Min: 0, Max: 1e6, Unit: "s", Doc: "speculative_indexing: how long; 0 for ever"},
		{Name: "max_prefix_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 131072}, Min: 1, Max: 1e9, Unit: "tokens", Doc: "how much of a prompt is looked up"},
	}
}

func llmdScorerKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "prefix_scale", Kind: policies.EnumKnob, Default: policies.Value{Text: scaleShare}, Enum: []string{scaleShare, scaleMinMax},
			Doc: "prefix-cache: share of the blocks looked up that are there, or, as an older precise scorer, that share scaled to 0..1 between the least and the most of those that have any"},
		{Name: "match_length_weight", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1, Unit: "fraction",
			Doc: "prefix-cache: weight of (tokens found/match_length_tokens, at most 1)^2, beside the share"},
		{Name: "match_length_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 8192}, Min: 1, Max: 1e9, Unit: "tokens", Doc: "prefix-cache: tokens found that score 1 there"},
		{Name: "load_threshold", Kind: policies.IntKnob, Default: policies.Value{Number: 128}, Min: 1, Max: 1e6, Unit: "requests", Doc: "load-aware: requests waiting that score 0"},
		{Name: "idle_threshold", Kind: policies.IntKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e6, Unit: "turns", Doc: "active-request: turns in flight that score 1"},
		{Name: "max_busy_score", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1, Doc: "active-request: what a replica that is not idle scores at most"},
		{Name: "token_load_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 1 << 22}, Min: 1, Max: 1e9, Unit: "tokens", Doc: "token-load: tokens in flight that score 0"},
		{Name: "output_ratio", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1000,
			Doc: "tokens in flight: output expected of a turn, as a multiple of its prompt, which counts until it ends; llm-d has 1.5 where it is on. Uncached prompt tokens count until the first token"},
		{Name: "session_ttl_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 300}, Min: 0, Max: 1e6, Unit: "s", Doc: "session-affinity: how long a session may be idle and keep its replica; 0 for ever"},
	}
}

func llmdFilterKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "utilization_filter", Kind: policies.BoolKnob, Default: policies.Value{Bool: false}, Doc: "whether replicas that are full or whose sample is old are left out, if others are left"},
		{Name: "filter_queue_depth", Kind: policies.FloatKnob, Default: policies.Value{Number: 5}, Min: .001, Max: 1e6, Unit: "requests", Doc: "utilization filter: waiting requests of a full replica"},
		{Name: "filter_kv_usage", Kind: policies.FloatKnob, Default: policies.Value{Number: .8}, Min: .001, Max: 10, Unit: "fraction", Doc: "utilization filter: KV usage of a full replica"},
		{Name: "filter_stale_s", Kind: policies.FloatKnob, Default: policies.Value{Number: .2}, Min: 0, Max: 1e6, Unit: "s", Doc: "utilization filter: an older sample is old"},
		{Name: "filter_headroom", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1000, Unit: "fraction", Doc: "utilization filter: by how much more both limits are, but usage at most 1"},
		{Name: "session_filter", Kind: policies.BoolKnob, Default: policies.Value{Bool: false}, Doc: "whether only the session's replica is left if it has one"},
		{Name: "affinity_filter", Kind: policies.BoolKnob, Default: policies.Value{Bool: false}, Doc: "whether only replicas with enough of the prefix are scored, if there are any"},
		{Name: "affinity_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: .8}, Min: 0, Max: 1, Unit: "fraction", Doc: "affinity filter: share of the prefix that is enough"},
		{Name: "affinity_strict_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1, Unit: "fraction",
			Doc: "affinity filter: share that is enough in another such filter, before the one with affinity_threshold; llm-d has .99 where it predicts latency; 0 for none"},
		{Name: "affinity_penalty_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 18}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "affinity filter: all are scored if the best of these is later than the best of all by more; 0 never lets them"},
		{Name: "affinity_rate", Kind: policies.FloatKnob, Default: policies.Value{Number: 15928}, Min: 1, Max: 1e9, Unit: "tokens/s", Doc: "affinity filter: prefill rate that turns tokens in flight into time"},
		{Name: "affinity_exploration", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1, Unit: "fraction", Doc: "affinity filter: chance that a turn skips it"},
	}
}

// llmdScorers are the names of the scorers, in the order of llmdWeights.
var llmdScorers = []string{
	"queue", "running_requests", "kv_cache_utilization", "load_aware", "active_request", "token_load", "prefix_cache", "no_hit_lru", "session_affinity",
}

// llmdWeights are the weights of the presets.
var llmdWeights = map[string][]float64{
	"default":          {2, 0, 2, 0, 0, 0, 3, 0, 0},
	"precise-prefix":   {1, 0, 1, 0, 0, 0, 2, 0, 0},
	"payload-agnostic": {0, 0, 0, 0, 1, 0, 0, 0, 1},
}

func llmdWeightKnobs() []policies.Knob {
	var knobs []policies.Knob
	for _, name := range llmdScorers {
		knobs = append(knobs, policies.Knob{Name: name + "_weight", Kind: policies.FloatKnob, Default: policies.Value{Number: -1}, Min: -1, Max: 1000,
			Doc: "weight of this scorer, in steps of 0.001; 0 leaves it out and -1 takes the preset's"})
	}
	return knobs
}
