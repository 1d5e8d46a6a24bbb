package figures

// Paths of the knobs that the session gate's figures vary.
const (
	gateName    = "policy.gate.name"
	sessions    = "arrivals.sessions"
	tool        = "workload.generate.tool_s"
	blocks      = "cluster.engine.num_gpu_blocks_override"
	watermark   = "policy.gate.high_watermark"
	threshold   = "policy.gate.hit_threshold"
	grace       = "policy.gate.idle_grace_s"
	maxSessions = "policy.gate.max_sessions"
	repair      = "policy.gate.repair"
	preset      = "policy.gate.preset"
	scope       = "policy.gate.scope"
	probeTime   = "signals.probe_ipc_s"
)

const (
	sessionsLabel = "sessions under way"
	toolLabel     = "median tool time [s]"
)

// compared are the columns whose changes are reported.
var compared = []string{"total_tps", "late_p95_s"}

// SessionGate is the questions that the session gate's documentation raises.
func SessionGate() Set {
	return Set{
		Name:     "session-gate",
		Doc:      "What the session gate is worth: with and without it, over its knobs, its repairs, and its tuning hints as claims.",
		Scenario: "session-gate",
		Seeds:    3,
		Quick:    []string{"workload.generate.prompts=12"},
		Figures: []Figure{cliff(), blindBand(), watermarkThreshold(), graceGap(), wake(), probes(), ladder("ladder", "1", "8,12,16,20,24"), ladder("ladder-slow-tools", "10", "16,24,32,40,48"),
			hintWatermark(), hintThreshold(), hintGrace()},
	}
}

func cliff() Figure {
	return Figure{
		Name: "cliff", Question: "Throughput and late turns over concurrency, with and without the gate",
		Vary:    []string{tool + "=1,10", gateName + "=none,session", sessions + "=4,8,12,16,20,24,32,48,64"},
		Columns: []string{"total_tps", "late_p95_s", "hit_rate", "recomputed", "kv_usage", "held", "open", "window", "window_hit_rate", "demand"},
		Base:    []Setting{{gateName, "none"}}, Match: []string{tool, sessions}, Paired: compared,
		Chart: Chart{Kind: Lines, X: sessions, XLabel: sessionsLabel, Panels: []string{"total_tps", "late_p95_s", "hit_rate"}},
	}
}

func blindBand() Figure {
	return Figure{
		Name: "blind-band", Question: "Where the cache thrashes while the gate holds nothing",
		Vary:    []string{tool + "=0.3,1,3,10,30", gateName + "=none,session", blocks + "=40001,32001,26001,22001,18001,14001,10001,8001"},
		Columns: []string{"demand", "duty", "recomputed", "held", "kv_usage", "hit_rate", "total_tps", "late_p95_s"},
		Base:    []Setting{{gateName, "none"}}, Match: []string{tool, blocks}, Paired: compared,
		Chart: Chart{Kind: Map, X: blocks, Y: tool, XLabel: "KV blocks: demand over capacity grows to the right", YLabel: toolLabel,
			Panels: []string{"demand", "recomputed", "held", "kv_usage"}, Only: []Setting{{gateName, "session"}}},
	}
}

func watermarkThreshold() Figure {
	return Figure{
		Name: "watermark-threshold", Question: "High watermark and hit threshold",
		Vary:    []string{watermark + "=0.3,0.5,0.7,0.85,0.95", threshold + "=0,0.4,0.6,0.7,0.8,0.9,0.97"},
		Columns: []string{"total_tps", "late_p95_s", "hit_rate", "held", "max_wait_s"},
		Base:    []Setting{{watermark, "0.85"}, {threshold, "0.8"}}, Paired: compared,
		Chart: Chart{Kind: Map, X: threshold, Y: watermark, XLabel: "hit threshold", YLabel: "high watermark",
			Panels: []string{"total_tps", "late_p95_s", "held"}},
	}
}

func graceGap() Figure {
	return Figure{
		Name: "grace-gap", Question: "Idle grace against tool time",
		Set:     []string{sessions + "=64"},
		Vary:    []string{tool + "=0.3,1,3,10,30", grace + "=0,2,10,60,300"},
		Columns: []string{"total_tps", "late_p95_s", "hit_rate", "held", "open", "window", "window_hit_rate"},
		Base:    []Setting{{grace, "60"}}, Match: []string{tool}, Paired: compared,
		Chart: Chart{Kind: Map, X: grace, Y: tool, XLabel: "idle grace [s]", YLabel: toolLabel, Panels: []string{"total_tps", "late_p95_s", "held"}},
	}
}

func wake() Figure {
	return Figure{
		Name: "wake", Question: "Wake one (documented) against wake all (as shipped)",
		Vary:    []string{preset + "=documented,as-shipped", scope + "=cluster,session", sessions + "=16,24,32,48,64"},
		Columns: []string{"total_tps", "late_p95_s", "session_p95_s", "max_wait_s", "usage_probes", "held"},
		Base:    []Setting{{preset, "documented"}, {scope, "cluster"}}, Match: []string{sessions}, Paired: compared,
		Chart: Chart{Kind: Lines, X: sessions, XLabel: sessionsLabel, Panels: []string{"total_tps", "late_p95_s", "usage_probes"}},
	}
}

func probes() Figure {
	return Figure{
		Name: "probe-latency", Question: "Time that a probe takes",
		Vary:    []string{sessions + "=16,32", probeTime + "=0,0.0005,0.005,0.05,0.2,0.5"},
		Columns: []string{"total_tps", "late_p95_s", "gate_wait_s", "ttft_p95_s", "held"},
		Base:    []Setting{{probeTime, "0"}}, Match: []string{sessions}, Paired: compared,
		Chart: Chart{Kind: Lines, X: probeTime, XLabel: "time of a probe besides the step in progress [s]", Panels: []string{"total_tps", "late_p95_s", "gate_wait_s"}},
	}
}

func ladder(name, toolS, bounds string) Figure {
	return Figure{
		Name: name, Question: "Repairs of the gate, and a fixed number of sessions; tools of " + toolS + " s",
		Set: []string{tool + "=" + toolS, "policy.gate.max_wait_s=30"},
		Vary: []string{gateName + "=none,session,max-sessions", repair + "=none,strict,demand,expected,aging", maxSessions + "=" + bounds,
			sessions + "=16,24,32,48,64"},
		Columns: []string{"total_tps", "late_p95_s", "session_p50_s", "session_p95_s", "hit_rate", "held", "max_wait_s"},
		Base:    []Setting{{gateName, "none"}}, Match: []string{sessions}, Paired: []string{"total_tps", "late_p95_s", "session_p95_s"},
		Tune:  maxSessions,
		Chart: Chart{Kind: Lines, X: sessions, XLabel: sessionsLabel, Panels: []string{"total_tps", "late_p95_s", "session_p95_s"}},
	}
}

func hintWatermark() Figure {
	return Figure{
		Name: "hint-watermark", Question: `"Lower the watermark if hit rate collapses before the gate engages"`,
		Vary:    []string{tool + "=1,3,10,30", watermark + "=0.85,0.7,0.5,0.3,0.2,0.1,0.05"},
		Columns: []string{"hit_rate", "total_tps", "late_p95_s", "session_p95_s", "kv_usage", "held", "max_wait_s"},
		Base:    []Setting{{watermark, "0.85"}}, Match: []string{tool}, Paired: []string{"hit_rate", "total_tps", "late_p95_s", "session_p95_s"},
		Chart: Chart{Kind: Lines, X: watermark, XLabel: "high watermark", Panels: []string{"hit_rate", "total_tps", "late_p95_s"}},
	}
}

func hintThreshold() Figure {
	return Figure{
		Name: "hint-threshold", Question: `"Lower the hit threshold if sessions stall"`,
		Vary:    []string{sessions + "=32,64", tool + "=0.3,3", threshold + "=0.8,0.7,0.6,0.4,0.2,0"},
		Columns: []string{"max_wait_s", "gate_wait_s", "total_tps", "late_p95_s", "session_p95_s", "hit_rate", "held"},
		Base:    []Setting{{threshold, "0.8"}}, Match: []string{sessions, tool}, Paired: []string{"max_wait_s", "gate_wait_s", "session_p95_s", "total_tps"},
		Chart: Chart{Kind: Lines, X: threshold, XLabel: "hit threshold", Panels: []string{"max_wait_s", "session_p95_s", "total_tps"}},
	}
}

func hintGrace() Figure {
	return Figure{
		Name: "hint-grace", Question: `"Raise the grace if tools are slow"`,
		Set:     []string{sessions + "=64"},
		Vary:    []string{watermark + "=0.85,0.3", tool + "=3,10,30", grace + "=60,5,15,120,300"},
		Columns: []string{"total_tps", "late_p95_s", "hit_rate", "kv_usage", "held"},
		Base:    []Setting{{grace, "60"}}, Match: []string{watermark, tool}, Paired: []string{"hit_rate", "total_tps", "late_p95_s"},
		Chart: Chart{Kind: Lines, X: grace, XLabel: "idle grace [s]", LogX: true, Panels: []string{"total_tps", "late_p95_s", "hit_rate"}},
	}
}
