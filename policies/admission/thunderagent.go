package admission

import "github.com/sluice-sim/sluice/policies"

// Reads the KV capacity of each replica and the tokens of ended turns. Keeps a table of programs. Ties: in order of first
// arrival; among replicas the lowest number.
// Source: arXiv 2602.13692; ThunderAgent-org/ThunderAgent, scheduler/router.py, backend/state.py; spec: policies C3.
//
// A program is a thread. It counts with the prompt tokens of the turn that runs, and between turns with the prompt and
// output tokens of the last one; the original estimates them from characters. What remains of a replica is its capacity
// less the tokens of the programs on it, less a buffer for each; programs share nothing in this account, since the
// original never refreshes its figure for shared tokens.
//
// A turn of a program that has a place goes there at once. A new program goes to the replica with the fewest tokens if no
// turn waits and it fits there; otherwise it waits, and so do the turns of paused programs. Every tick:
//
//   - Resume. Programs without a place, first those with a turn that waits and one behind them, then new ones, then those
//     that act, each by tokens, are taken while they fit into what remains in all; one that does not fit is passed over. The
//     largest of them is placed first, on the replica with the most room.
//   - Pause. On a replica where less than nothing remains, acting programs are set aside, smallest first, until something
//     does; if all are and it does not suffice, reasoning ones are marked, smallest first, and set aside when their turn
//     ends. The released code forgets to count what it has marked and so marks every one; mark_all does that.
//
// A turn that has waited for the timeout goes to the replica with the most room, and so does, uncounted, one that waits when
// its thread ends. A program whose replica is lost keeps its
// right to run and is placed with its next turn.

// ThunderAgent declares the gate that pauses and resumes programs by the tokens they hold.
func ThunderAgent() policies.Declaration {
	return policies.Declaration{
		Name: "thunderagent",
		Doc: "Lets programs (threads) run while their contexts fit into the KV of the replicas: new ones wait for room, every tick pauses programs where they have outgrown it and resumes others, shortest first. " +
			"It also chooses the replica; the router is not asked. Turns that still wait when their thread has ended go at once and do not count.",
		Source:  "arXiv 2602.13692; ThunderAgent-org/ThunderAgent, scheduler/router.py, backend/state.py; spec: policies C3",
		Missing: "A replica of unknown KV capacity has room for everything.",
		Omits:   "tokens are those of the prompt and the output, not estimated from characters; programs share nothing, since the original never refreshes its figure for shared tokens.",
		Knobs: []policies.Knob{
			tickKnob(),
			bufferKnob(),
			actingWeightKnob(),
			{Name: "acting_half_life_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e6, Unit: "s",
				Doc: "time in which the tokens of an acting program lose half their weight when programs are resumed; 0 for never (the paper's decay is 1)"},
			timeoutKnob(),
			{Name: "mark_all", Kind: policies.BoolKnob, Default: policies.Value{Bool: false},
				Doc: "once acting programs do not suffice, mark every reasoning one, as the released code does"},
		},
		NewGate: func(_ policies.Env, p policies.Params) policies.Gate {
			g := newProgramGate(p, programRules{
				pauseAbove: 1, pauseTo: 1, resumeTo: 1, decayed: true, leastTokens: true, markAll: p["mark_all"].Bool,
			})
			g.table.halfLife = seconds(p["acting_half_life_s"].Number)
			return g
		},
	}
}

func newProgramGate(p policies.Params, r programRules) *programGate {
	r.timeout = seconds(p["timeout_s"].Number)
	return &programGate{
		programRules: r, ticks: ticker{every: seconds(p["tick_s"].Number)},
		table: table{weight: p["acting_weight"].Number, overhead: int64(p["buffer_tokens"].Number)},
	}
}

func tickKnob() policies.Knob {
	return policies.Knob{Name: "tick_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 5}, Min: 0.001, Max: 1e6, Unit: "s",
		Doc: "time between two rounds of resuming and pausing"}
}

func bufferKnob() policies.Knob {
	return policies.Knob{Name: "buffer_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 100}, Min: 0, Max: 1e9, Unit: "tokens",
		Doc: "added to every program's tokens"}
}

func actingWeightKnob() policies.Knob {
	return policies.Knob{Name: "acting_weight", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1, Unit: "fraction",
		Doc: "weight of the tokens of programs between turns"}
}

func timeoutKnob() policies.Knob {
	return policies.Knob{Name: "timeout_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1800}, Min: 0.001, Max: 1e6, Unit: "s",
		Doc: "a turn that has waited so long goes whether it fits or not"}
}
