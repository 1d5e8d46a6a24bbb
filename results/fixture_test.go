package results

import (
	"testing"
)

const second = int64(1_000_000_000_000)

// smallRun is two sessions on two replicas, small enough to work every metric out by hand. Times are in seconds.
//
//	session turn attempt  arrival admitted sent sched first done  prompt out hit ceiling computed wasted
//	0       1    1        0       0        0    0     1     3     100    5   0   0       100      0      replica 0
//	0       2    1        10      12       12   12    13    15    200    2   100 100     100      0      replica 0, held twice
//	1       1    1        5       5        5    5.5   -     8     300    1   0   60      300      0      replica 1, timed out
//	1       1    2        9       9        9    9     11    12    300    2   60  60      240      240    replica 1, retry
//	1       2    -        never arrived
//	read 6 turns: 4 above and 2 dropped
type smallRun struct {
	turns    []Turn
	sessions []Session
	samples  []Sample
	totals   Totals
}

func newSmallRun() *smallRun {
	blank := Turn{Attempt: 1, Final: true, ArrivalPS: Missing, AdmittedPS: Missing, SentPS: Missing,
		ScheduledPS: Missing, FirstTokenPS: Missing, DonePS: Missing, ITLMaxPS: Missing, ToolGapPS: Missing,
		IdleTTFTPS: Missing, IdleTPOTPS: Missing, Replica: -1, PrefillReplica: -1, Group: -1}
	r := &smallRun{}
	add := func(f func(*Turn)) {
		t := blank
		f(&t)
		r.turns = append(r.turns, t)
	}
	times := func(t *Turn, half ...int64) {
		for i, p := range []*int64{&t.ArrivalPS, &t.AdmittedPS, &t.SentPS, &t.ScheduledPS, &t.FirstTokenPS, &t.DonePS} {
			if half[i] != Missing {
				*p = half[i] * second / 2
			}
		}
	}
	add(func(t *Turn) {
		t.Number, t.Replica = 1, 0
		times(t, 0, 0, 0, 0, 2, 6)
		t.PromptTokens, t.OutputTokens, t.ComputedTokens = 100, 5, 100
		t.AdmitReason, t.RouteReason, t.ITLMaxPS = "no_pressure", "min", second
		t.IdleTTFTPS, t.IdleTPOTPS = second/2, second/10
	})
	add(func(t *Turn) {
		t.Session, t.Number, t.Replica = 1, 1, 1
		t.Final = false
		times(t, 10, 10, 10, 11, Missing, 16)
		t.PromptTokens, t.OutputTokens, t.ComputedTokens, t.CeilingTokens = 300, 1, 300, 60
		t.Outcome, t.AdmitReason, t.RouteReason = TimedOut, "no_pressure", "min"
	})
	add(func(t *Turn) {
		t.Session, t.Number, t.Attempt, t.Replica = 1, 1, 2, 1
		times(t, 18, 18, 18, 18, 22, 24)
		t.PromptTokens, t.OutputTokens, t.ComputedTokens, t.CeilingTokens = 300, 2, 240, 60
		t.HitGPU, t.HitCPU, t.WastedTokens, t.WasteCause = 40, 20, 240, CauseRetry
		t.AdmitReason, t.RouteReason, t.ITLMaxPS = "no_pressure", "min", second
		t.IdleTTFTPS, t.IdleTPOTPS = 4*second, second/10
	})
	add(func(t *Turn) {
		t.Number, t.Replica = 2, 0
		times(t, 20, 24, 24, 24, 26, 30)
		t.PromptTokens, t.OutputTokens, t.ComputedTokens, t.CeilingTokens, t.HitGPU = 200, 2, 100, 100, 100
		t.AdmitReason, t.RouteReason, t.ITLMaxPS, t.ToolGapPS = "high_hit", "owner", 2*second, 7*second
		t.GateHolds, t.UsageProbes, t.PrefixProbes = 2, 3, 1
		t.IdleTTFTPS, t.IdleTPOTPS = second/2, second/10
	})
	add(func(t *Turn) {
		t.Session, t.Number, t.Outcome = 1, 2, Unstarted
	})
	r.sessions = []Session{
		{Session: 0, Name: "a", Group: -1, StartPS: 0, EndPS: 15 * second, Turns: 2, FinishedTurns: 2, PromptTokens: 300,
			OutputTokens: 7, ComputedTokens: 200, GateWaitPS: 2 * second, ReplicasUsed: 1, Complete: true},
		{Session: 1, Name: "b", Group: -1, StartPS: 5 * second, EndPS: 12 * second, Turns: 2, FinishedTurns: 1,
			PromptTokens: 600, OutputTokens: 3, ComputedTokens: 540, ReplicasUsed: 1},
	}
	r.samples = []Sample{
		{Replica: 0, EndPS: 5 * second, ComputedTokens: 100, OutputTokens: 5, PromptTokens: 100, BusyPS: 3 * second, Usage: .5, ResidentTokens: 100, InFlight: 1},
		{Replica: 1, EndPS: 5 * second, Usage: .1},
		{Replica: 0, EndPS: 15 * second, ComputedTokens: 100, OutputTokens: 2, HitTokens: 100, PromptTokens: 200, BusyPS: 3 * second, Usage: .5, ResidentTokens: 200, InFlight: 1},
		{Replica: 1, EndPS: 15 * second, ComputedTokens: 540, OutputTokens: 3, HitTokens: 60, PromptTokens: 600, BusyPS: 9 * second, Usage: .9, ResidentTokens: 300, InFlight: 1},
	}
	itl := NewHistogram()
	itl.Record(second/2, 4)
	itl.Record(2*second, 16)
	r.totals = Totals{EndPS: 15 * second, Replicas: 2, GPUs: 4, KVTokens: 1600, KVBlocks: 100, BlockTokens: 16,
		Sessions: 2, Turns: 6, Dropped: []Count{{"context_limit", 2}}, Steps: 20,
		BusyPS: []int64{6 * second, 9 * second}, PrefillBusyPS: 10 * second, DecodeBusyPS: 5 * second, ITL: itl,
		EngineAdmissions: 4, LeasesAdmitted: 4, LeasesFinished: 3, LeasesCancelled: 1}
	r.totals.WasteTokens[CauseRetry] = 240
	// the turn that never arrived makes the fourth of the turns not dropped
	return r
}

func smallInfo() Info {
	return Info{Run: "small", Arm: "sticky", Seed: 7, Version: "v0", ScenarioDigest: "sd", TraceDigest: "td",
		Scenario: []byte("version: 1\n"), Mode: ModeClosed, Gate: "session",
		Varied: []Setting{{"policy.router.name", "sticky"}},
		SLO:    &SLO{TTFTS: 3, TPOTS: 1.5}}
}

func (r *smallRun) send(t *testing.T, sink Sink) {
	t.Helper()
	if err := r.into(sink); err != nil {
		t.Fatal(err)
	}
}

func (r *smallRun) into(sink Sink) error {
	for i := range r.turns {
		if err := sink.Turn(&r.turns[i]); err != nil {
			return err
		}
	}
	for i := range r.sessions {
		if err := sink.Session(&r.sessions[i]); err != nil {
			return err
		}
	}
	for i := range r.samples {
		if err := sink.Sample(&r.samples[i]); err != nil {
			return err
		}
	}
	return nil
}
