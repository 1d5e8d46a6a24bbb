package admission

import "github.com/sluice-sim/sluice/policies"

// Values of the knobs of llm-d-saturation.
const (
	globalStrict = "global-strict"
	programAware = "program-aware"

	fcfs        = "fcfs"
	sloDeadline = "slo-deadline"

	ceilingStatic     = "static"
	ceilingHoldback   = "priority-holdback"
	ceilingReflective = "soft-reflective"
)

func saturationKnobs() []policies.Knob {
	knobs := detectorKnobs()
	knobs = append(knobs, orderKnobs()...)
	return append(knobs, limitKnobs()...)
}

func detectorKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "flow_control", Kind: policies.BoolKnob, Default: policies.Value{Bool: true},
			Doc: "whether turns are queued; false is the older rule, which refuses those of classes above 0 while the saturation is 1 or more and lets all others go"},
		{Name: "probabilistic_admitter", Kind: policies.BoolKnob, Default: policies.Value{Bool: false},
			Doc: "whether turns of classes above 0 are refused on arrival with a chance of shed_factor x saturation^5, by the formula of utilization without its limit of age"},
		{Name: "shed_factor", Kind: policies.FloatKnob, Default: policies.Value{Number: 300}, Min: 0, Max: 1e9,
			Doc: "probabilistic_admitter: its factor"},
		{Name: "detector", Kind: policies.EnumKnob, Default: policies.Value{Text: detectUtilization}, Enum: []string{detectUtilization, detectConcurrency},
			Doc: "how saturation is measured"},
		{Name: "queue_depth", Kind: policies.FloatKnob, Default: policies.Value{Number: 5}, Min: .001, Max: 1e6, Unit: "turns",
			Doc: "utilization: waiting turns of a saturated replica"},
		{Name: "kv_usage", Kind: policies.FloatKnob, Default: policies.Value{Number: .8}, Min: .001, Max: 10, Unit: "fraction",
			Doc: "utilization: KV usage of a saturated replica"},
		{Name: "stale_s", Kind: policies.FloatKnob, Default: policies.Value{Number: .2}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "utilization: an older sample counts as saturated"},
		{Name: "mode", Kind: policies.EnumKnob, Default: policies.Value{Text: countRequests}, Enum: []string{countRequests, countTokens, countHybrid},
			Doc: "concurrency: what is counted"},
		{Name: "max_requests", Kind: policies.IntKnob, Default: policies.Value{Number: 100}, Min: 1, Max: 1e6, Unit: "turns",
			Doc: "concurrency: turns in flight of a saturated replica"},
		{Name: "max_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 1e6}, Min: 1, Max: 1e12, Unit: "tokens",
			Doc: "concurrency: uncached prompt tokens without a first token of a saturated replica"},
	}
}

func orderKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "ceilings", Kind: policies.EnumKnob, Default: policies.Value{Text: ceilingStatic}, Enum: []string{ceilingStatic, ceilingHoldback, ceilingReflective},
			Doc: "from which saturation no turn of a class goes: the same for each, evenly lower for each further class, or lower with the saturation itself; class 0 always counts as one of them"},
		{Name: "ceiling", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1e6, Unit: "fraction",
			Doc: "static: the ceiling, inclusive; priority-holdback: that of the first class"},
		{Name: "min_ceiling", Kind: policies.FloatKnob, Default: policies.Value{Number: .5}, Min: 0, Max: 1e6, Unit: "fraction",
			Doc: "priority-holdback: ceiling of the last class"},
		{Name: "fairness", Kind: policies.EnumKnob, Default: policies.Value{Text: globalStrict}, Enum: []string{globalStrict, programAware},
			Doc: "whose turn is next within a class: anyone's, or that of the session with the least attained service"},
		{Name: "ordering", Kind: policies.EnumKnob, Default: policies.Value{Text: fcfs}, Enum: []string{fcfs, sloDeadline},
			Doc: "which of these turns is next: the first to arrive, or the one whose first token is due first"},
		{Name: "ttft_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "slo-deadline: from arrival to when the first token is due"},
		{Name: "ttft_per_1k_prompt_s", Kind: policies.FloatKnob, Default: policies.Value{Number: .0625}, Min: 0, Max: 1000, Unit: "s",
			Doc: "slo-deadline: added to it for every 1,000 prompt tokens"},
	}
}

func limitKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "ttl_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 60}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "a turn that has waited so long is refused; 0 for never"},
		{Name: "max_queued", Kind: policies.IntKnob, Default: policies.Value{Number: 5000}, Min: 1, Max: 1e6, Unit: "turns",
			Doc: "turns that may wait in a class; more are refused"},
		{Name: "max_queued_bytes", Kind: policies.IntKnob, Default: policies.Value{Number: 1e9}, Min: 0, Max: 1e15, Unit: "bytes",
			Doc: "bytes of requests that may wait in a class; a turn that does not fit is refused; 0 for no limit"},
		{Name: "total_queued", Kind: policies.IntKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e6, Unit: "turns",
			Doc: "turns that may wait in all classes together; 0 for no limit"},
		{Name: "total_queued_bytes", Kind: policies.IntKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e15, Unit: "bytes",
			Doc: "bytes of requests that may wait in all classes together; 0 for no limit"},
		{Name: "bytes_per_token", Kind: policies.FloatKnob, Default: policies.Value{Number: 4}, Min: 0, Max: 1000, Unit: "bytes",
			Doc: "bytes of a request for each token of its prompt, which is all that is known of its size"},
		{Name: "expiry_scan_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "a turn that was refused for its wait or whose client left counts as queued until the next multiple of this time; 0 for no longer"},
		{Name: "retry_after_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "when a refused turn may come again"},
	}
}
