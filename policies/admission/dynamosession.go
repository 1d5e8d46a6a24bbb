package admission

import "github.com/sluice-sim/sluice/policies"

// Reads the KV capacity of each replica and the tokens of ended turns. Keeps a table of programs. Ties: in order of first
// arrival; among replicas the lowest number.
// Source: ai-dynamo/dynamo, lib/kv-router, queue_admission/session_aware; spec: policies C4.
//
// The programs and their order are thunderagent's; the rules differ in this. A replica is paused when more than pause_at of
// its capacity is used, down to pause_to; if acting programs do not suffice, every reasoning one is marked. Programs
// resume only up to pause_at - hysteresis. A new program waits while any is paused or waits, else it goes to the least used
// replica in which it fits. A turn that has waited for the timeout goes to the replica with the most room, where the
// tokens of acting programs count 2^(-idle/tau). A program that has acted for the retention is forgotten. Beyond
// max_programs a new program goes by unseen (ours: the source bounds its table).

// DynamoSessionAware declares Dynamo's session-aware admission.
func DynamoSessionAware() policies.Declaration {
	return policies.Declaration{
		Name: "dynamo-session-aware",
		Doc: "Pauses programs (threads) where their contexts use more of a replica's KV than the high mark, down to a lower one, and resumes them only below a third: hysteresis. " +
			"It also chooses the replica; the router is not asked. Turns that still wait when their thread has ended go at once and do not count.",
		Source:  "ai-dynamo/dynamo, lib/kv-router, queue_admission/session_aware; spec: policies C4",
		Missing: "A replica of unknown KV capacity has room for everything.",
		Omits:   "the shared-prefix budget, off by default, is not built.",
		Knobs: []policies.Knob{
			{Name: "pause_at", Kind: policies.FloatKnob, Default: policies.Value{Number: .95}, Min: 0, Max: 10, Unit: "fraction",
				Doc: "share of the KV above which programs are paused"},
			{Name: "pause_to", Kind: policies.FloatKnob, Default: policies.Value{Number: .80}, Min: 0, Max: 10, Unit: "fraction",
				Doc: "share of the KV down to which they are, pause_at if that is less"},
			{Name: "hysteresis", Kind: policies.FloatKnob, Default: policies.Value{Number: .10}, Min: 0, Max: 10, Unit: "fraction",
				Doc: "programs resume up to pause_at less this share of the KV"},
			tickKnob(),
			bufferKnob(),
			actingWeightKnob(),
			{Name: "decay_tau_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1e6, Unit: "s",
				Doc: "time in which an acting program's tokens lose half their weight when a replica is chosen after the timeout; 0 for never"},
			timeoutKnob(),
			{Name: "retention_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1800}, Min: 0.001, Max: 1e6, Unit: "s",
				Doc: "an acting program is forgotten after this time"},
			{Name: "max_programs", Kind: policies.IntKnob, Default: policies.Value{Number: 10000}, Min: 1, Max: 1e6, Unit: "programs",
				Doc: "programs that are watched at a time"},
		},
		NewGate: func(_ policies.Env, p policies.Params) policies.Gate {
			at := p["pause_at"].Number
			g := newProgramGate(p, programRules{
				pauseAbove: at, pauseTo: min(at, p["pause_to"].Number), resumeTo: at - p["hysteresis"].Number, markAll: true, behindAny: true,
				retention: seconds(p["retention_s"].Number), maxPrograms: int(p["max_programs"].Number),
			})
			g.table.halfLife = seconds(p["decay_tau_s"].Number)
			return g
		},
	}
}
