package policies_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/admission"
	"github.com/sluice-sim/sluice/policies/routing"
	"github.com/sluice-sim/sluice/prefix"
)

// scripted is a gate whose verdicts a test gives.
type scripted struct {
	verdict  func(v *policies.View, t *policies.Turn, p *policies.Probes) policies.Verdict
	observed []policies.Fact
	wake     policies.Time
	onFact   func(v *policies.View, f *policies.Fact)
	late     bool
}

func (s *scripted) Observe(_ policies.Time, v *policies.View, f *policies.Fact) {
	s.observed = append(s.observed, *f)
	if f.Kind == policies.Woke {
		s.wake = policies.Never
	}
	if s.onFact != nil {
		s.onFact(v, f)
	}
}

func (s *scripted) Admit(_ policies.Time, v *policies.View, t *policies.Turn, p *policies.Probes) policies.Verdict {
	return s.verdict(v, t, p)
}

func (s *scripted) NextWake() policies.Time { return s.wake }
func (s *scripted) NoticesLate() bool       { return s.late }

func admitAll(*policies.View, *policies.Turn, *policies.Probes) policies.Verdict {
	return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.Open}
}

func holdAll(*policies.View, *policies.Turn, *policies.Probes) policies.Verdict {
	return policies.Verdict{Kind: policies.VerdictHold, Reason: policies.NoSlot, Until: policies.Never}
}

func newController(replicas int, g policies.Gate) (*policies.Controller, *prefix.Tree) {
	tree := &prefix.Tree{}
	tree.Root()
	r := routing.LeastRequests()
	c := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: replicas, Gate: g, Router: r.NewRouter(policies.Env{}, nil)})
	return c, tree
}

func none() policies.Gate { return admission.None().NewGate(policies.Env{}, nil) }

func turn(attempt policies.AttemptID, thread policies.ThreadID) policies.Fact {
	return policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{
		Attempt: attempt, Thread: thread, Session: policies.SessionID(thread), Number: 1, Prompt: prefix.Prefix{Tokens: 100},
	}}
}

func up(r policies.ReplicaID) policies.Fact {
	return policies.Fact{Kind: policies.ReplicaUp, Replica: r}
}
func down(r policies.ReplicaID) policies.Fact {
	return policies.Fact{Kind: policies.ReplicaDown, Replica: r}
}

func about(k policies.FactKind, a policies.AttemptID) policies.Fact {
	return policies.Fact{Kind: k, Attempt: a}
}

// step runs one Step and compares the commands with want, given as a list of lines.
func step(t *testing.T, c *policies.Controller, now policies.Time, want []policies.Command, facts ...policies.Fact) {
	t.Helper()
	if d := cmp.Diff(want, c.Step(now, facts, nil)); d != "" {
		t.Fatalf("at %d: commands differ (-want +got):\n%s", now, d)
	}
}

func sent(a policies.AttemptID, r policies.ReplicaID, why policies.Reason) []policies.Command {
	return []policies.Command{
		{Kind: policies.Admit, Attempt: a, Replica: r, Reason: why},
		{Kind: policies.Dispatch, Attempt: a, Replica: r, Reason: policies.LeastLoaded},
	}
}

func held(a policies.AttemptID, why policies.Reason) policies.Command {
	return policies.Command{Kind: policies.Hold, Attempt: a, Replica: policies.NoReplica, Reason: why}
}

func aborted(a policies.AttemptID) policies.Command {
	return policies.Command{Kind: policies.Abort, Attempt: a, Replica: policies.NoReplica, Reason: policies.SupersededAttempt}
}

func join(lists ...[]policies.Command) []policies.Command {
	var all []policies.Command
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestNoReplicaUpHoldsAndRetries(t *testing.T) {
	c, _ := newController(2, none())
	step(t, c, 1, []policies.Command{held(1, policies.NoReplicaUp), held(2, policies.NoReplicaUp)}, turn(2, 2), turn(1, 1))
	step(t, c, 5, join(sent(1, 1, policies.Ungated), sent(2, 1, policies.Ungated)), up(1))
	step(t, c, 6, nil, down(1), about(policies.Failed, 1), about(policies.Failed, 2))
	if a := c.Audit(); a.Admitted != 2 || a.Failed != 2 || a.Live != 0 || a.Waiting != 0 {
		t.Errorf("audit %+v", a)
	}
}

func TestEachLeaseEndsOnce(t *testing.T) {
	c, _ := newController(1, none())
	step(t, c, 1, sent(1, 0, policies.Ungated), up(0), turn(1, 1))
	step(t, c, 2, nil, turn(1, 1), about(policies.FirstToken, 1), about(policies.FirstToken, 1), about(policies.ClientGone, 1), about(policies.ClientGone, 1))
	if got := c.View().DecodeTokens(0); got != 101 {
		t.Errorf("decode tokens %d, want 101", got)
	}
	step(t, c, 3, nil, about(policies.Failed, 1), about(policies.Finished, 1), about(policies.Failed, 7), turn(1, 1))
	want := policies.Audit{Admitted: 1, Cancelled: 1, Ignored: 6}
	if d := cmp.Diff(want, c.Audit()); d != "" {
		t.Errorf("audit (-want +got):\n%s", d)
	}
	v := c.View()
	if v.InFlight(0) != 0 || v.QueuedTokens(0) != 0 || v.QueuedMoment(0) != 0 || v.DecodeTokens(0) != 0 || v.Running(1) != 0 {
		t.Error("the ledger kept something of an ended lease")
	}
}

func TestSupersededAtOnce(t *testing.T) {
	g := &scripted{verdict: holdAll, wake: policies.Never}
	c, _ := newController(1, g)
	step(t, c, 1, []policies.Command{held(1, policies.NoSlot)}, up(0), turn(1, 1))
	step(t, c, 2, []policies.Command{aborted(1), held(2, policies.NoSlot)}, about(policies.AttemptSuperseded, 1), turn(2, 1))
	step(t, c, 3, []policies.Command{aborted(2), held(3, policies.NoSlot)}, turn(3, 1))
	step(t, c, 4, []policies.Command{aborted(3), aborted(4), held(5, policies.NoSlot)}, turn(5, 1), turn(4, 1))
	step(t, c, 5, nil, about(policies.ClientGone, 5))
	if a := c.Audit(); a.Superseded != 4 || a.Waiting != 0 || a.Ignored != 0 {
		t.Errorf("audit %+v", a)
	}
	told := 0
	for _, f := range g.observed {
		if f.Kind == policies.AttemptSuperseded && f.Thread == 1 {
			told++
		}
	}
	if told != 4 {
		t.Errorf("the gate saw %d superseded attempts, want 4", told)
	}
}

func TestRunningAttemptIsLeftAlone(t *testing.T) {
	c, _ := newController(1, none())
	step(t, c, 1, sent(1, 0, policies.Ungated), up(0), turn(1, 1))
	step(t, c, 2, sent(2, 0, policies.Ungated), about(policies.AttemptSuperseded, 1), turn(2, 1))
	if a := c.Audit(); a.Live != 2 || a.Superseded != 0 {
		t.Errorf("audit %+v", a)
	}
}

func TestSupersededNoticesLate(t *testing.T) {
	g := &scripted{wake: policies.Never, late: true, verdict: func(*policies.View, *policies.Turn, *policies.Probes) policies.Verdict {
		return policies.Verdict{Kind: policies.VerdictHold, Reason: policies.UnderPressure, Until: 50}
	}}
	c, _ := newController(1, g)
	step(t, c, 1, []policies.Command{held(1, policies.UnderPressure)}, up(0), turn(1, 1))
	step(t, c, 2, []policies.Command{held(2, policies.BehindWaiter)}, about(policies.AttemptSuperseded, 1), turn(2, 1))
	step(t, c, 3, []policies.Command{held(3, policies.BehindWaiter)}, turn(3, 1))
	if got := c.NextWake(); got != 50 {
		t.Errorf("next wake %d, want 50", got)
	}
	g.verdict = admitAll
	step(t, c, 50, join([]policies.Command{aborted(1), aborted(2)}, sent(3, 0, policies.Open)))
}

func TestWakesInOrderOfArrival(t *testing.T) {
	g := &scripted{verdict: holdAll, wake: policies.Never}
	c, _ := newController(1, g)
	facts := []policies.Fact{up(0)}
	for a := range policies.AttemptID(20) {
		facts = append(facts, turn(20-a, policies.ThreadID(a)))
	}
	c.Step(1, facts, nil)
	g.verdict = admitAll
	g.onFact = func(v *policies.View, f *policies.Fact) { v.Wake(0, 3) }
	step(t, c, 2, join(sent(2, 0, policies.Open), sent(3, 0, policies.Open), sent(4, 0, policies.Open)), about(policies.ClientGone, 1))
	if a, ok := c.View().FirstWaiter(0); !ok || a != 5 {
		t.Errorf("first waiter %d %v, want 5", a, ok)
	}
}

func TestWokenUnderSeveralKeysInOrderOfArrival(t *testing.T) {
	g := &scripted{wake: policies.Never, verdict: func(_ *policies.View, u *policies.Turn, _ *policies.Probes) policies.Verdict {
		return policies.Verdict{Kind: policies.VerdictHold, Reason: policies.NoSlot, Until: policies.Never, WakeOn: policies.WakeKey(u.Attempt)}
	}}
	c, _ := newController(1, g)
	c.Step(1, []policies.Fact{up(0), turn(1, 1), turn(2, 2), turn(3, 3)}, nil)
	g.verdict = admitAll
	g.onFact = func(v *policies.View, f *policies.Fact) {
		v.Wake(3, 1)
		v.Wake(1, 1)
	}
	step(t, c, 2, join(sent(1, 0, policies.Open), sent(3, 0, policies.Open)), about(policies.SessionFinished, 0))
}

func TestGateThatWakesWhatItHoldsLetsTimeGoOn(t *testing.T) {
	g := &scripted{wake: policies.Never}
	asked := 0
	g.verdict = func(v *policies.View, _ *policies.Turn, _ *policies.Probes) policies.Verdict {
		asked++
		v.Wake(0, -1)
		return policies.Verdict{Kind: policies.VerdictHold, Reason: policies.NoSlot, Until: -5}
	}
	c, _ := newController(1, g)
	c.Step(1, []policies.Fact{up(0), turn(1, 1), turn(2, 2)}, nil)
	for range 100 {
		c.Step(1, nil, nil)
	}
	if asked > 100 || c.NextWake() != 2 {
		t.Errorf("asked %d times at one moment, next wake %d", asked, c.NextWake())
	}
}

func TestOverdueGateIsWokenWithoutAFact(t *testing.T) {
	g := &scripted{verdict: admitAll, wake: 10}
	c, _ := newController(1, g)
	c.Step(9, nil, nil)
	if c.NextWake() != 10 || len(g.observed) != 0 {
		t.Fatalf("next wake %d, %d facts", c.NextWake(), len(g.observed))
	}
	c.Step(12, nil, nil)
	if len(g.observed) != 1 || g.observed[0].Kind != policies.Woke || c.NextWake() != policies.Never {
		t.Errorf("facts %v, next wake %d", g.observed, c.NextWake())
	}
}

// probeFirst asks all replicas for usage, then replica 0 for the prefix, then admits.
func probeFirst(_ *policies.View, _ *policies.Turn, p *policies.Probes) policies.Verdict {
	switch {
	case !p.HasUsage:
		return policies.Verdict{Kind: policies.VerdictProbeUsage, Replica: policies.AllReplicas}
	case !p.HasPrefix:
		return policies.Verdict{Kind: policies.VerdictProbePrefix, Replica: 0}
	}
	return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.Open}
}

func TestProbes(t *testing.T) {
	var seen policies.Probes
	g := &scripted{wake: policies.Never, verdict: func(v *policies.View, u *policies.Turn, p *policies.Probes) policies.Verdict {
		seen = *p
		return probeFirst(v, u, p)
	}}
	c, _ := newController(3, g)
	ask := func(k policies.CommandKind, r policies.ReplicaID) policies.Command {
		return policies.Command{Kind: k, Attempt: 1, Replica: r}
	}
	usage := func(r policies.ReplicaID, u float64) policies.Fact {
		return policies.Fact{Kind: policies.UsageProbed, Attempt: 1, Replica: r, Usage: u}
	}
	step(t, c, 1, []policies.Command{ask(policies.ProbeUsage, 0), ask(policies.ProbeUsage, 1), ask(policies.ProbeUsage, 2)}, up(0), up(1), up(2), turn(1, 1))
	step(t, c, 2, nil, usage(0, .25), usage(0, .99), usage(7, 1))
	step(t, c, 3, nil, down(2))
	step(t, c, 4, []policies.Command{ask(policies.ProbePrefix, 0)}, usage(1, .75))
	if !seen.UsageOK || seen.UsageMean != .5 || seen.UsageMax != .75 {
		t.Errorf("probes %+v", seen)
	}
	step(t, c, 5, sent(1, 0, policies.Open), policies.Fact{Kind: policies.PrefixProbed, Attempt: 1, HitTokens: 64, PromptTokens: 100})
	if !seen.PrefixOK || seen.HitTokens != 64 {
		t.Errorf("probes %+v", seen)
	}
	if got := c.Audit().Ignored; got != 2 {
		t.Errorf("%d facts ignored, want 2", got)
	}
}

func TestProbeOfNobodyIsAnsweredAtOnce(t *testing.T) {
	asked := 0
	g := &scripted{wake: policies.Never, verdict: func(_ *policies.View, _ *policies.Turn, p *policies.Probes) policies.Verdict {
		asked++
		return policies.Verdict{Kind: policies.VerdictProbePrefix, Replica: policies.NoReplica}
	}}
	c, _ := newController(1, g)
	step(t, c, 1, sent(1, 0, policies.ProbeUnavailable), up(0), turn(1, 1))
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
}

func TestHoldIsSentOnceForEachReason(t *testing.T) {
	why, asked := policies.NoSlot, 0
	g := &scripted{wake: policies.Never}
	g.verdict = func(*policies.View, *policies.Turn, *policies.Probes) policies.Verdict {
		asked++
		return policies.Verdict{Kind: policies.VerdictHold, Reason: why, Until: 0}
	}
	c, _ := newController(1, g)
	step(t, c, 1, []policies.Command{held(1, policies.NoSlot)}, up(0), turn(1, 1))
	step(t, c, 1, nil) // a hold does not end at the moment at which it begins
	step(t, c, 2, nil)
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
	why = policies.UnderPressure
	step(t, c, 3, []policies.Command{held(1, policies.UnderPressure)})
}

func TestReject(t *testing.T) {
	g := &scripted{wake: policies.Never, verdict: func(*policies.View, *policies.Turn, *policies.Probes) policies.Verdict {
		return policies.Verdict{Kind: policies.VerdictReject, Reason: policies.NoSlot, RetryAfter: 7}
	}}
	c, _ := newController(1, g)
	step(t, c, 1, []policies.Command{{Kind: policies.Reject, Attempt: 1, Replica: policies.NoReplica, Reason: policies.NoSlot, RetryAfter: 7}}, up(0), turn(1, 1))
	if a := c.Audit(); a.Rejected != 1 || a.Waiting != 0 {
		t.Errorf("audit %+v", a)
	}
}

func TestDrainingReplicaTakesNothingNew(t *testing.T) {
	c, _ := newController(2, none())
	draining := policies.Fact{Kind: policies.ReplicaDraining, Replica: 0}
	step(t, c, 1, join(sent(1, 0, policies.Ungated), sent(2, 1, policies.Ungated)), draining, up(0), up(1), turn(1, 1), turn(2, 2))
	step(t, c, 2, sent(3, 1, policies.Ungated), draining, turn(3, 3))
	step(t, c, 3, []policies.Command{held(4, policies.NoReplicaUp)}, down(1), turn(4, 4))
	step(t, c, 4, sent(4, 0, policies.Ungated), up(0), about(policies.Finished, 1))
	if got := c.Audit(); got.Finished != 1 || got.Live != 3 || got.Ignored != 1 {
		t.Errorf("audit %+v", got)
	}
}

func TestThreadRecord(t *testing.T) {
	c, _ := newController(2, none())
	v := c.View()
	if v.LastReplica(5) != policies.NoReplica || v.History(5) != 0 || v.FinishedTurns(5) != 0 || v.Running(5) != 0 {
		t.Error("a thread that never came has a record")
	}
	step(t, c, 1, sent(1, 1, policies.Ungated), up(1), turn(1, 5))
	if v.LastReplica(5) != 1 || v.Running(5) != 1 {
		t.Errorf("last %d running %d", v.LastReplica(5), v.Running(5))
	}
	step(t, c, 2, nil, policies.Fact{Kind: policies.Finished, Attempt: 1, OutputTokens: 40})
	second := turn(2, 5)
	second.Turn.Number = 2
	step(t, c, 3, sent(2, 1, policies.Ungated), second)
	step(t, c, 4, nil, about(policies.Failed, 2)) // leaves the history as it was
	if v.History(5) != 140 || v.FinishedTurns(5) != 1 || v.Running(5) != 0 {
		t.Errorf("history %d finished %d running %d", v.History(5), v.FinishedTurns(5), v.Running(5))
	}
}

func TestTokenProgress(t *testing.T) {
	c, _ := newController(1, none())
	progress := func(n int32) policies.Fact {
		return policies.Fact{Kind: policies.TokensProgressed, Attempt: 1, OutputTokens: n}
	}
	step(t, c, 1, sent(1, 0, policies.Ungated), up(0), turn(1, 1))
	for _, s := range []struct {
		fact policies.Fact
		want int64
	}{{about(policies.FirstToken, 1), 101}, {progress(30), 130}, {progress(20), 130}, {progress(31), 131}, {about(policies.Finished, 1), 0}, {progress(99), 0}} {
		c.Step(2, []policies.Fact{s.fact}, nil)
		if got := c.View().DecodeTokens(0); got != s.want {
			t.Errorf("after %+v: %d decode tokens, want %d", s.fact.Kind, got, s.want)
		}
	}
}

// toDown is a router that breaks its contract.
type toDown struct{ policies.Router }

func (toDown) Route(policies.Time, *policies.View, *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return 1, policies.NoReason
}

func TestBrokenInvariantsPanic(t *testing.T) {
	router := routing.LeastRequests().NewRouter(policies.Env{}, nil)
	whole := policies.ControllerConfig{Tree: &prefix.Tree{}, Replicas: 2, Gate: none(), Router: router}
	for name, f := range map[string]func(){
		"no gate":        func() { c := whole; c.Gate = nil; policies.NewController(c) },
		"capabilities":   func() { c := whole; c.Capabilities = make([]policies.Capability, 3); policies.NewController(c) },
		"time goes back": func() { c := policies.NewController(whole); c.Step(5, nil, nil); c.Step(4, nil, nil) },
		"route to what is down": func() {
			c := whole
			c.Router = toDown{router}
			policies.NewController(c).Step(1, []policies.Fact{up(0), turn(1, 1)}, nil)
		},
		"no verdict": func() {
			c := whole
			c.Gate = &scripted{wake: policies.Never, verdict: func(*policies.View, *policies.Turn, *policies.Probes) policies.Verdict {
				return policies.Verdict{}
			}}
			policies.NewController(c).Step(1, []policies.Fact{up(0), turn(1, 1)}, nil)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// What a replica said and held is gone when it goes down; what was said of a replica that is down does not count.
func TestReplicaThatGoesDownIsForgotten(t *testing.T) {
	c, _ := newController(1, none())
	stored := policies.Fact{Kind: policies.BlocksStored, Hi: 4, BlockTokens: 16}
	sampled := policies.Fact{Kind: policies.MetricsSampled, Sample: policies.Sample{At: 5, Has: policies.HasUsage, Usage: .5}}
	prompt := prefix.Prefix{Tokens: 100}
	c.Step(5, []policies.Fact{up(0), stored, sampled}, nil)
	older := sampled
	older.Sample.At, older.Sample.Usage = 4, .1
	c.Step(6, []policies.Fact{older}, nil)
	if h, ok := c.View().HitTokens(0, prompt); h != 64 || !ok || c.View().Sample(0).Usage != .5 {
		t.Errorf("hit %d %v, usage %v", h, ok, c.View().Sample(0).Usage)
	}
	c.Step(7, []policies.Fact{down(0), stored, sampled, up(0)}, nil)
	if h, ok := c.View().HitTokens(0, prompt); h != 0 || !ok || c.View().Sample(0).Has != 0 {
		t.Errorf("after it went down: hit %d %v, sample %+v", h, ok, c.View().Sample(0))
	}
}

func TestReplayNamesTheFirstDifference(t *testing.T) {
	log := []policies.Entry{
		{Now: 1, Facts: []policies.Fact{up(0), turn(1, 1)}, Commands: sent(1, 0, policies.Ungated)},
		{Now: 2, Facts: []policies.Fact{turn(2, 2)}, Commands: sent(2, 0, policies.Ungated)},
	}
	c, _ := newController(1, none())
	if err := policies.Replay(c, log); err != nil {
		t.Error(err)
	}
	log[1].Commands = log[1].Commands[:1]
	c, _ = newController(1, none())
	want := `entry 1 at 2 ns: command 1 is dispatch of attempt 2 replica 0 reason "least_loaded", the log has missing`
	if err := policies.Replay(c, log); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
