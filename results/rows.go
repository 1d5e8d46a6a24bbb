package results

import (
	"fmt"
	"math"
)

// Seconds converts picoseconds to seconds, rounded once.
func Seconds(ps int64) float64 { return float64(ps) / 1e12 }

// turnColumns is one row of turns.parquet. A nil pointer is a null.
type turnColumns struct {
	Run            string   `parquet:"run,dict"`
	Arm            string   `parquet:"arm,dict"`
	Session        int32    `parquet:"session"`
	Thread         int32    `parquet:"thread"`
	Turn           int32    `parquet:"turn"`
	Attempt        int32    `parquet:"attempt"`
	Final          bool     `parquet:"final"`
	Class          int32    `parquet:"class"`
	Group          int32    `parquet:"group"`
	Replica        *int32   `parquet:"replica"`
	PrefillReplica *int32   `parquet:"prefill_replica"`
	Arrival        *float64 `parquet:"arrival_s"`
	Admitted       *float64 `parquet:"admitted_s"`
	Sent           *float64 `parquet:"sent_s"`
	Scheduled      *float64 `parquet:"scheduled_s"`
	FirstToken     *float64 `parquet:"first_token_s"`
	Done           *float64 `parquet:"done_s"`
	Outcome        string   `parquet:"outcome,dict"`
	AdmitReason    string   `parquet:"admit_reason,dict"`
	RouteReason    string   `parquet:"route_reason,dict"`
	GateWait       *float64 `parquet:"gate_wait_s"`
	PromptTokens   int32    `parquet:"prompt_tokens"`
	OutputTokens   int32    `parquet:"output_tokens"`
	HitGPU         int32    `parquet:"hit_gpu_tokens"`
	HitCPU         int32    `parquet:"hit_cpu_tokens"`
	HitGlobal      int32    `parquet:"hit_global_tokens"`
	Computed       int32    `parquet:"computed_tokens"`
	Ceiling        int32    `parquet:"ceiling_tokens"`
	Wasted         int32    `parquet:"wasted_tokens"`
	WasteCause     string   `parquet:"waste_cause,dict"`
	Preemptions    int32    `parquet:"preemptions"`
	GateHolds      int32    `parquet:"gate_holds"`
	UsageProbes    int32    `parquet:"usage_probes"`
	PrefixProbes   int32    `parquet:"prefix_probes"`
	ITLMax         *float64 `parquet:"itl_max_s"`
	ToolGap        *float64 `parquet:"tool_gap_s"`
	IdleTTFT       *float64 `parquet:"idle_ttft_s"`
	IdleTPOT       *float64 `parquet:"idle_tpot_s"`

	slots    [11]float64
	replicas [2]int32
}

// sessionColumns is one row of sessions.parquet.
type sessionColumns struct {
	Run               string   `parquet:"run,dict"`
	Arm               string   `parquet:"arm,dict"`
	Session           int32    `parquet:"session"`
	Name              string   `parquet:"session_name"`
	Group             int32    `parquet:"group"`
	Start             *float64 `parquet:"start_s"`
	End               *float64 `parquet:"end_s"`
	Turns             int32    `parquet:"turns"`
	FinishedTurns     int32    `parquet:"finished_turns"`
	PromptTokens      int64    `parquet:"prompt_tokens"`
	OutputTokens      int64    `parquet:"output_tokens"`
	ComputedTokens    int64    `parquet:"computed_tokens"`
	GateWait          float64  `parquet:"gate_wait_s"`
	AttemptsPreempted int32    `parquet:"attempts_preempted"`
	ReplicasUsed      int32    `parquet:"replicas_used"`
	Outcome           string   `parquet:"outcome,dict"`

	slots [2]float64
}

// sampleColumns is one row of replicas.parquet.
type sampleColumns struct {
	Run            string  `parquet:"run,dict"`
	Arm            string  `parquet:"arm,dict"`
	Replica        int32   `parquet:"replica"`
	T              float64 `parquet:"t_s"`
	Running        int32   `parquet:"running"`
	Waiting        int32   `parquet:"waiting"`
	Usage          float64 `parquet:"usage"`
	ResidentTokens int64   `parquet:"resident_tokens"`
	CPUTokens      int64   `parquet:"cpu_tokens"`
	InFlight       int32   `parquet:"in_flight"`
	ComputedTokens int64   `parquet:"computed_tokens"`
	OutputTokens   int64   `parquet:"output_tokens"`
	HitTokens      int64   `parquet:"hit_tokens"`
	PromptTokens   int64   `parquet:"prompt_tokens"`
	EvictedTokens  int64   `parquet:"evicted_tokens"`
	Busy           float64 `parquet:"busy_s"`
	Preemptions    int32   `parquet:"preemptions"`
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

func nullable(ps int64, slot *float64) *float64 {
	if ps == Missing {
		return nil
	}
	*slot = Seconds(ps)
	return slot
}

func nullableReplica(replica int32, slot *int32) *int32 {
	if replica < 0 {
		return nil
	}
	*slot = replica
	return slot
}

func (c *turnColumns) set(run, arm string, t *Turn) {
	*c = turnColumns{Run: run, Arm: arm, Session: t.Session, Thread: t.Thread, Turn: t.Number, Attempt: t.Attempt,
		Final: t.Final, Class: t.Class, Group: t.Group, Outcome: t.Outcome.String(), AdmitReason: t.AdmitReason,
		RouteReason: t.RouteReason, PromptTokens: t.PromptTokens, OutputTokens: t.OutputTokens, HitGPU: t.HitGPU,
		HitCPU: t.HitCPU, HitGlobal: t.HitGlobal, Computed: t.ComputedTokens, Ceiling: t.CeilingTokens,
		Wasted: t.WastedTokens, WasteCause: t.WasteCause.String(), Preemptions: t.Preemptions, GateHolds: t.GateHolds,
		UsageProbes: t.UsageProbes, PrefixProbes: t.PrefixProbes}
	c.Replica = nullableReplica(t.Replica, &c.replicas[0])
	c.PrefillReplica = nullableReplica(t.PrefillReplica, &c.replicas[1])
	c.Arrival = nullable(t.ArrivalPS, &c.slots[0])
	c.Admitted = nullable(t.AdmittedPS, &c.slots[1])
	c.Sent = nullable(t.SentPS, &c.slots[2])
	c.Scheduled = nullable(t.ScheduledPS, &c.slots[3])
	c.FirstToken = nullable(t.FirstTokenPS, &c.slots[4])
	c.Done = nullable(t.DonePS, &c.slots[5])
	c.GateWait = nullable(t.GateWaitPS(), &c.slots[6])
	c.ITLMax = nullable(t.ITLMaxPS, &c.slots[7])
	c.ToolGap = nullable(t.ToolGapPS, &c.slots[8])
	c.IdleTTFT = nullable(t.IdleTTFTPS, &c.slots[9])
	c.IdleTPOT = nullable(t.IdleTPOTPS, &c.slots[10])
}

func (c *sessionColumns) set(run, arm string, s *Session) {
	*c = sessionColumns{Run: run, Arm: arm, Session: s.Session, Name: s.Name, Group: s.Group, Turns: s.Turns,
		FinishedTurns: s.FinishedTurns, PromptTokens: s.PromptTokens, OutputTokens: s.OutputTokens,
		ComputedTokens: s.ComputedTokens, GateWait: Seconds(s.GateWaitPS), AttemptsPreempted: s.AttemptsPreempted,
		ReplicasUsed: s.ReplicasUsed, Outcome: sessionIncomplete}
	if s.Complete {
		c.Outcome = sessionComplete
	}
	c.Start = nullable(s.StartPS, &c.slots[0])
	c.End = nullable(s.EndPS, &c.slots[1])
}

func (c *sampleColumns) set(run, arm string, s *Sample) {
	*c = sampleColumns{Run: run, Arm: arm, Replica: s.Replica, T: Seconds(s.EndPS), Running: s.Running,
		Waiting: s.Waiting, Usage: s.Usage, ResidentTokens: s.ResidentTokens, CPUTokens: s.CPUTokens,
		InFlight: s.InFlight, ComputedTokens: s.ComputedTokens, OutputTokens: s.OutputTokens, HitTokens: s.HitTokens,
		PromptTokens: s.PromptTokens, EvictedTokens: s.EvictedTokens, Busy: Seconds(s.BusyPS),
		Preemptions: s.Preemptions}
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
