package results

import (
	"fmt"
	"math"
)

// Seconds converts picoseconds to seconds, rounded once.
func Seconds(ps int64) float64 { return float64(ps) / 1e12 }

// turnColumns is one row of turns.parquet. A nil pointer is a null. The doc tags are printed on the metrics page.
type turnColumns struct {
	Run            string   `parquet:"run" doc:"name of the run"`
	Arm            string   `parquet:"arm" doc:"name of the arm"`
	Session        int32    `parquet:"session" doc:"session index of the trace"`
	Thread         int32    `parquet:"thread" doc:"thread within the session, 0 is the root"`
	Turn           int32    `parquet:"turn" doc:"turn number within the thread, from 1"`
	Attempt        int32    `parquet:"attempt" doc:"1 for the first attempt of the turn"`
	Final          bool     `parquet:"final" doc:"the last attempt of its turn; sums over turns use these"`
	Class          int32    `parquet:"class" doc:"request class"`
	Group          int32    `parquet:"group" doc:"group of the session (tenant, repository, prompt of a rollout), -1 for none"`
	Replica        *int32   `parquet:"replica" doc:"replica that decoded; null when never dispatched"`
	PrefillReplica *int32   `parquet:"prefill_replica" doc:"replica that prefilled, where it is another"`
	Arrival        *float64 `parquet:"arrival_s" doc:"the attempt reaches the gate; null when it never did"`
	Admitted       *float64 `parquet:"admitted_s" doc:"the gate admits it"`
	Sent           *float64 `parquet:"sent_s" doc:"it is sent to the replica"`
	Scheduled      *float64 `parquet:"scheduled_s" doc:"the engine schedules it for the first time"`
	FirstToken     *float64 `parquet:"first_token_s" doc:"first output token at the client"`
	Done           *float64 `parquet:"done_s" doc:"last output token, or the end of the attempt"`
	Outcome        string   `parquet:"outcome" doc:"finished, rejected, timed_out, superseded (a newer attempt took its place at the gate), failed (the replica failed it) or unstarted"`
	AdmitReason    string   `parquet:"admit_reason" doc:"reason of admission, or of the last hold"`
	RouteReason    string   `parquet:"route_reason" doc:"reason of the router's choice"`
	GateWait       *float64 `parquet:"gate_wait_s" doc:"time at the gate; of an attempt that was never admitted all its life"`
	PromptTokens   int32    `parquet:"prompt_tokens" doc:"prompt length"`
	OutputTokens   int32    `parquet:"output_tokens" doc:"tokens produced"`
	HitGPU         int32    `parquet:"hit_gpu_tokens" doc:"prompt tokens found in the GPU tier at first scheduling"`
	HitCPU         int32    `parquet:"hit_cpu_tokens" doc:"likewise in the CPU tier"`
	HitGlobal      int32    `parquet:"hit_global_tokens" doc:"likewise in the global store"`
	Computed       int32    `parquet:"computed_tokens" doc:"prompt tokens computed, recomputation after preemption included"`
	Ceiling        int32    `parquet:"ceiling_tokens" doc:"hit tokens with an infinite cache and ideal routing"`
	Wasted         int32    `parquet:"wasted_tokens" doc:"prompt tokens computed again"`
	WasteCause     string   `parquet:"waste_cause" doc:"the cause of most of them: none, preempted, retry, restarted, evicted, elsewhere or cold"`
	Preemptions    int32    `parquet:"preemptions" doc:"by the engine"`
	GateHolds      int32    `parquet:"gate_holds" doc:"times the gate told it to wait"`
	UsageProbes    int32    `parquet:"usage_probes" doc:"probes of KV usage"`
	PrefixProbes   int32    `parquet:"prefix_probes" doc:"probes of the resident prefix"`
	ITLMax         *float64 `parquet:"itl_max_s" doc:"longest gap between output tokens; null below two"`
	ToolGap        *float64 `parquet:"tool_gap_s" doc:"from what triggered the turn to its arrival; null for the first turn of a session"`
	IdleTTFT       *float64 `parquet:"idle_ttft_s" doc:"TTFT alone on an idle replica with a warm cache; null without an SLO"`
	IdleTPOT       *float64 `parquet:"idle_tpot_s" doc:"TPOT likewise"`
}

// sessionColumns is one row of sessions.parquet.
type sessionColumns struct {
	Run               string   `parquet:"run" doc:"name of the run"`
	Arm               string   `parquet:"arm" doc:"name of the arm"`
	Session           int32    `parquet:"session" doc:"session index of the trace"`
	Name              string   `parquet:"session_name" doc:"name of the session in its source"`
	Group             int32    `parquet:"group" doc:"group, -1 for none"`
	Start             *float64 `parquet:"start_s" doc:"first arrival; null when it never started"`
	End               *float64 `parquet:"end_s" doc:"last completion; null when no turn finished"`
	Turns             int32    `parquet:"turns" doc:"turns of the session"`
	FinishedTurns     int32    `parquet:"finished_turns" doc:"turns that finished"`
	PromptTokens      int64    `parquet:"prompt_tokens" doc:"sum over its turns"`
	OutputTokens      int64    `parquet:"output_tokens" doc:"sum over its turns"`
	ComputedTokens    int64    `parquet:"computed_tokens" doc:"prompt tokens computed for it"`
	GateWait          float64  `parquet:"gate_wait_s" doc:"sum of its waits at the gate"`
	AttemptsPreempted int32    `parquet:"attempts_preempted" doc:"attempts that a newer attempt replaced at the gate"`
	ReplicasUsed      int32    `parquet:"replicas_used" doc:"replicas that served it"`
	Outcome           string   `parquet:"outcome" doc:"complete (every turn finished) or incomplete"`
}

// sampleColumns is one row of replicas.parquet.
type sampleColumns struct {
	Run            string  `parquet:"run" doc:"name of the run"`
	Arm            string  `parquet:"arm" doc:"name of the arm"`
	Replica        int32   `parquet:"replica" doc:"replica index"`
	T              float64 `parquet:"t_s" doc:"end of the interval; it starts at the end of the replica's former row, the first at 0"`
	Running        int32   `parquet:"running" doc:"requests running at the end of the interval"`
	Waiting        int32   `parquet:"waiting" doc:"requests waiting in the engine at its end"`
	Usage          float64 `parquet:"usage" doc:"referenced KV blocks / usable blocks at its end"`
	ResidentTokens int64   `parquet:"resident_tokens" doc:"tokens of cached content, referenced or idle, at its end"`
	CPUTokens      int64   `parquet:"cpu_tokens" doc:"tokens in the CPU tier at its end"`
	InFlight       int32   `parquet:"in_flight" doc:"attempts dispatched and not ended, at its end"`
	ComputedTokens int64   `parquet:"computed_tokens" doc:"prompt tokens computed in the interval"`
	OutputTokens   int64   `parquet:"output_tokens" doc:"tokens produced in it"`
	HitTokens      int64   `parquet:"hit_tokens" doc:"tokens found cached by the turns first scheduled in it"`
	PromptTokens   int64   `parquet:"prompt_tokens" doc:"prompt tokens of these turns"`
	EvictedTokens  int64   `parquet:"evicted_tokens" doc:"tokens evicted in it"`
	Busy           float64 `parquet:"busy_s" doc:"time computing in it"`
	Preemptions    int32   `parquet:"preemptions" doc:"by the engine in it"`
}

// Outcomes of a session in sessions.parquet.
const (
	sessionComplete   = "complete"
	sessionIncomplete = "incomplete"
)

// GateWaitPS is how long the attempt stood at the gate: until its admission, or for the whole of its life when it was
// never admitted; Missing when it never arrived or the end of its wait is not known.
func (t *Turn) GateWaitPS() int64 {
	end := t.AdmittedPS
	if end == Missing {
		end = t.DonePS
	}
	return since(t.ArrivalPS, end)
}

// since is end - start, Missing when either is.
func since(start, end int64) int64 {
	if start == Missing || end == Missing {
		return Missing
	}
	return end - start
}

// turns writes rows of turns.parquet, in the order of turnColumns.
func (p *parquetFile) turns(run, arm string, rows []Turn) error {
	n := len(rows)
	p.label(run, n)
	p.label(arm, n)
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.Session })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.Thread })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.Number })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.Attempt })
	fill(p.bools(n), rows, func(t *Turn) uint8 { return bit(t.Final) })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.Class })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.Group })
	p.indexes(fill(p.nullable(n), rows, func(t *Turn) int64 { return int64(t.Replica) }))
	p.indexes(fill(p.nullable(n), rows, func(t *Turn) int64 { return int64(t.PrefillReplica) }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.ArrivalPS }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.AdmittedPS }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.SentPS }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.ScheduledPS }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.FirstTokenPS }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.DonePS }))
	labels(p, rows, func(t *Turn) string { return t.Outcome.String() })
	labels(p, rows, func(t *Turn) string { return t.AdmitReason })
	labels(p, rows, func(t *Turn) string { return t.RouteReason })
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.GateWaitPS() }))
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.PromptTokens })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.OutputTokens })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.HitGPU })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.HitCPU })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.HitGlobal })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.ComputedTokens })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.CeilingTokens })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.WastedTokens })
	labels(p, rows, func(t *Turn) string { return t.WasteCause.String() })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.Preemptions })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.GateHolds })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.UsageProbes })
	fill(p.int32s(n), rows, func(t *Turn) int32 { return t.PrefixProbes })
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.ITLMaxPS }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.ToolGapPS }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.IdleTTFTPS }))
	p.times(fill(p.nullable(n), rows, func(t *Turn) int64 { return t.IdleTPOTPS }))
	return p.endRows(n)
}

// sessions writes rows of sessions.parquet, in the order of sessionColumns.
func (p *parquetFile) sessions(run, arm string, rows []Session) error {
	n := len(rows)
	p.label(run, n)
	p.label(arm, n)
	fill(p.int32s(n), rows, func(s *Session) int32 { return s.Session })
	labels(p, rows, func(s *Session) string { return s.Name })
	fill(p.int32s(n), rows, func(s *Session) int32 { return s.Group })
	p.times(fill(p.nullable(n), rows, func(s *Session) int64 { return s.StartPS }))
	p.times(fill(p.nullable(n), rows, func(s *Session) int64 { return s.EndPS }))
	fill(p.int32s(n), rows, func(s *Session) int32 { return s.Turns })
	fill(p.int32s(n), rows, func(s *Session) int32 { return s.FinishedTurns })
	fill(p.int64s(n), rows, func(s *Session) int64 { return s.PromptTokens })
	fill(p.int64s(n), rows, func(s *Session) int64 { return s.OutputTokens })
	fill(p.int64s(n), rows, func(s *Session) int64 { return s.ComputedTokens })
	fill(p.doubles(n), rows, func(s *Session) uint64 { return math.Float64bits(Seconds(s.GateWaitPS)) })
	fill(p.int32s(n), rows, func(s *Session) int32 { return s.AttemptsPreempted })
	fill(p.int32s(n), rows, func(s *Session) int32 { return s.ReplicasUsed })
	labels(p, rows, outcomeOf)
	return p.endRows(n)
}

func outcomeOf(s *Session) string {
	if s.Complete {
		return sessionComplete
	}
	return sessionIncomplete
}

// samples writes rows of replicas.parquet, in the order of sampleColumns.
func (p *parquetFile) samples(run, arm string, rows []Sample) error {
	n := len(rows)
	p.label(run, n)
	p.label(arm, n)
	fill(p.int32s(n), rows, func(s *Sample) int32 { return s.Replica })
	fill(p.doubles(n), rows, func(s *Sample) uint64 { return math.Float64bits(Seconds(s.EndPS)) })
	fill(p.int32s(n), rows, func(s *Sample) int32 { return s.Running })
	fill(p.int32s(n), rows, func(s *Sample) int32 { return s.Waiting })
	fill(p.doubles(n), rows, func(s *Sample) uint64 { return math.Float64bits(s.Usage) })
	fill(p.int64s(n), rows, func(s *Sample) int64 { return s.ResidentTokens })
	fill(p.int64s(n), rows, func(s *Sample) int64 { return s.CPUTokens })
	fill(p.int32s(n), rows, func(s *Sample) int32 { return s.InFlight })
	fill(p.int64s(n), rows, func(s *Sample) int64 { return s.ComputedTokens })
	fill(p.int64s(n), rows, func(s *Sample) int64 { return s.OutputTokens })
	fill(p.int64s(n), rows, func(s *Sample) int64 { return s.HitTokens })
	fill(p.int64s(n), rows, func(s *Sample) int64 { return s.PromptTokens })
	fill(p.int64s(n), rows, func(s *Sample) int64 { return s.EvictedTokens })
	fill(p.doubles(n), rows, func(s *Sample) uint64 { return math.Float64bits(Seconds(s.BusyPS)) })
	fill(p.int32s(n), rows, func(s *Sample) int32 { return s.Preemptions })
	return p.endRows(n)
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// maxSeconds bounds the times a file may hold; beyond it picoseconds do not fit 64 bits.
const maxSeconds = 9e6

// picoseconds reads a nullable column back; a value that no writer produces sets err.
func picoseconds(column string, s *float64, err *error) int64 {
	if s == nil {
		return Missing
	}
	if math.IsNaN(*s) || *s < 0 || *s > maxSeconds {
		*err = fmt.Errorf("column %s: %v is not a time in 0 to %g s", column, *s, float64(maxSeconds))
		return Missing
	}
	return int64(math.Round(*s * 1e12))
}

func replicaOf(r *int32) int32 {
	if r == nil {
		return -1
	}
	return *r
}

func (c *turnColumns) turn() (t Turn, err error) {
	outcome, ok := parseOutcome(c.Outcome)
	if !ok {
		return t, fmt.Errorf("column outcome: unknown value %q", c.Outcome)
	}
	cause, ok := parseCause(c.WasteCause)
	if !ok {
		return t, fmt.Errorf("column waste_cause: unknown value %q", c.WasteCause)
	}
	t = Turn{Session: c.Session, Thread: c.Thread, Number: c.Turn, Attempt: c.Attempt, Final: c.Final, Class: c.Class,
		Group: c.Group, Replica: replicaOf(c.Replica), PrefillReplica: replicaOf(c.PrefillReplica), Outcome: outcome,
		AdmitReason: c.AdmitReason, RouteReason: c.RouteReason, PromptTokens: c.PromptTokens,
		OutputTokens: c.OutputTokens, HitGPU: c.HitGPU, HitCPU: c.HitCPU, HitGlobal: c.HitGlobal,
		ComputedTokens: c.Computed, CeilingTokens: c.Ceiling, WastedTokens: c.Wasted, WasteCause: cause,
		Preemptions: c.Preemptions, GateHolds: c.GateHolds, UsageProbes: c.UsageProbes, PrefixProbes: c.PrefixProbes}
	t.ArrivalPS = picoseconds("arrival_s", c.Arrival, &err)
	t.AdmittedPS = picoseconds("admitted_s", c.Admitted, &err)
	t.SentPS = picoseconds("sent_s", c.Sent, &err)
	t.ScheduledPS = picoseconds("scheduled_s", c.Scheduled, &err)
	t.FirstTokenPS = picoseconds("first_token_s", c.FirstToken, &err)
	t.DonePS = picoseconds("done_s", c.Done, &err)
	t.ITLMaxPS = picoseconds("itl_max_s", c.ITLMax, &err)
	t.ToolGapPS = picoseconds("tool_gap_s", c.ToolGap, &err)
	t.IdleTTFTPS = picoseconds("idle_ttft_s", c.IdleTTFT, &err)
	t.IdleTPOTPS = picoseconds("idle_tpot_s", c.IdleTPOT, &err)
	return t, err
}

func (c *sessionColumns) session() (s Session, err error) {
	s = Session{Session: c.Session, Name: c.Name, Group: c.Group, Turns: c.Turns, FinishedTurns: c.FinishedTurns,
		PromptTokens: c.PromptTokens, OutputTokens: c.OutputTokens, ComputedTokens: c.ComputedTokens,
		AttemptsPreempted: c.AttemptsPreempted, ReplicasUsed: c.ReplicasUsed, Complete: c.Outcome == sessionComplete}
	s.StartPS = picoseconds("start_s", c.Start, &err)
	s.EndPS = picoseconds("end_s", c.End, &err)
	s.GateWaitPS = picoseconds("gate_wait_s", &c.GateWait, &err)
	return s, err
}

func (c *sampleColumns) sample() (s Sample, err error) {
	s = Sample{Replica: c.Replica, Running: c.Running, Waiting: c.Waiting, InFlight: c.InFlight, Usage: c.Usage,
		ResidentTokens: c.ResidentTokens, CPUTokens: c.CPUTokens, ComputedTokens: c.ComputedTokens,
		OutputTokens: c.OutputTokens, HitTokens: c.HitTokens, PromptTokens: c.PromptTokens,
		EvictedTokens: c.EvictedTokens, Preemptions: c.Preemptions}
	if c.Replica < 0 {
		return s, fmt.Errorf("column replica: %d is negative", c.Replica)
	}
	s.EndPS = picoseconds("t_s", &c.T, &err)
	s.BusyPS = picoseconds("busy_s", &c.Busy, &err)
	return s, err
}
