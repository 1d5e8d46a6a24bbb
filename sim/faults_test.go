package sim

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
)

// randomFaults draws faults, late and lossy signals and router instances for a random world; often none.
func randomFaults(rt *rapid.T, c *Config) {
	second := func(label string, max float64) int64 {
		return toPS(rapid.Float64Range(0, max).Draw(rt, label) * 1e12)
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(rt, "faults") {
		f := Fault{
			Kind: FaultKind(rapid.IntRange(1, int(numFaultKinds)-1).Draw(rt, "kind")), AtPS: second("at", 30),
			ForPS: second("for", 20) + 1, Replica: int32(rapid.IntRange(-1, c.Replicas-1).Draw(rt, "replica")),
			Factor: rapid.Float64Range(0.5, 20).Draw(rt, "factor"), Share: rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(rt, "share"),
			AfterPS: second("after", 5), Releases: ReleaseKind(rapid.IntRange(0, 1).Draw(rt, "releases")),
		}
		if rapid.Bool().Draw(rt, "late") {
			f.DetectPS = second("detect", 25)
		}
		if f.Kind == ReplicaRestart && rapid.Bool().Draw(rt, "at once") {
			f.ForPS = 0
		}
		if f.Kind == LostRelease {
			f.Count = int64(rapid.IntRange(1, 3).Draw(rt, "count"))
		}
		c.Faults = append(c.Faults, f)
	}
	if rapid.Bool().Draw(rt, "bad scrapes") {
		c.Signals.ScrapeDelayPS, c.Signals.ScrapeJitterPS = second("scrape delay", 0.3), second("jitter", 0.3)
		c.Signals.ScrapeLoss = rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(rt, "loss")
	}
	c.Signals.NoProbes = rapid.IntRange(0, 3).Draw(rt, "no probes") == 0
	c.Routers = rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(rt, "routers")
}

// seconds as picoseconds.
func seconds(s float64) int64 { return toPS(s * 1e12) }

// arriving is a world of n sessions of one turn each, at a rate, that share nothing.
func arriving(t *testing.T, n int, rate float64, router string) *Config {
	c := world(t, independent(n, 500, 100), "none", router)
	c.Replicas = 2
	c.Arrivals = Arrivals{Process: Uniform, RatePerS: rate}
	return c
}

// sentTo counts the attempts that were sent to a replica from one moment to another.
func (r *rows) sentTo(replica int32, from, to float64) (n int) {
	for i := range r.turns {
		if x := &r.turns[i]; x.Replica == replica && x.SentPS >= seconds(from) && x.SentPS < seconds(to) {
			n++
		}
	}
	return n
}

func (r *rows) outcomes() map[results.Outcome]int {
	n := map[results.Outcome]int{}
	for i := range r.turns {
		n[r.turns[i].Outcome]++
	}
	return n
}

// watcher keeps what the policies are told.
type watcher struct{ facts []seen }

type seen struct {
	now  policies.Time
	fact policies.Fact
}

func (w *watcher) Watch(o policies.Oracle) policies.Oracle { return o }

func (w *watcher) Step(_ *prefix.Tree, now policies.Time, facts []policies.Fact, _ []policies.Command) error {
	for _, f := range facts {
		w.facts = append(w.facts, seen{now, f})
	}
	return nil
}

// of lists the facts of a kind about a replica.
func (w *watcher) of(k policies.FactKind, r policies.ReplicaID) (out []seen) {
	for _, s := range w.facts {
		if s.fact.Kind == k && s.fact.Replica == r {
			out = append(out, s)
		}
	}
	return out
}

func TestReplicaDown(t *testing.T) {
	for _, detect := range []float64{0, 2} {
		c := arriving(t, 100, 10, "least-requests")
		c.Clients.Retries, c.Clients.RetryDelayPS = 5, seconds(0.5)
		c.Faults = []Fault{{Kind: ReplicaDown, AtPS: seconds(3.01), ForPS: seconds(4), Replica: 0, DetectPS: seconds(detect)}}
		out, totals := simulate(t, c)
		if n := out.sentTo(0, 3.02+detect, 7.01); n != 0 {
			t.Errorf("detected after %g s: %d attempts were sent to the replica that was known to be down", detect, n)
		}
		lost := out.sentTo(0, 3.02, 3.02+detect)
		if (detect > 0) != (lost > 5) {
			t.Errorf("detected after %g s: %d attempts were sent to it before", detect, lost)
		}
		n := out.outcomes()
		if n[results.Finished] != 100 || n[results.FailedRun] < 1+lost || n[results.FailedRun] > 10+lost {
			t.Errorf("outcomes %v; expected all finished in the end, those in flight and the %d sent meanwhile failed", n, lost)
		}
		if out.sentTo(0, 7.01, 100) == 0 || totals.LeasesFailed != int64(n[results.FailedRun]) {
			t.Errorf("after it came back %d attempts were sent to it; %d leases failed, %d attempts did", out.sentTo(0, 7.01, 100), totals.LeasesFailed, n[results.FailedRun])
		}
		sameWalking(t, c)
	}
}

// TestRestartLosesTheCache: a replica that was cut off has its cache when it is back, one that restarted does not.
func TestRestartLosesTheCache(t *testing.T) {
	for kind, hit := range map[FaultKind]int32{ReplicaDown: 992, ReplicaRestart: 0} {
		c := world(t, chain([]call{{prompt: 1000, output: 3}, {prompt: 1100, output: 1, gapS: 10}}), "none", "round-robin")
		c.Faults = []Fault{{Kind: kind, AtPS: seconds(5), ForPS: seconds(1), Replica: AllReplicas}}
		out, _ := simulate(t, c)
		x := out.find(t, 0, 0, 2)
		if x.HitGPU != hit || x.WastedTokens != 992-hit || (hit == 0) != (x.WasteCause == results.CauseRestarted) {
			t.Errorf("fault %d: %d hit tokens, %d wasted because of %s; expected %d hit tokens", kind, x.HitGPU, x.WastedTokens, x.WasteCause, hit)
		}
		sameWalking(t, c)
	}
}

// TestRestartFailsWhatRuns: the attempt fails at the moment of the restart, its client comes again, counters start from 0.
func TestRestartFailsWhatRuns(t *testing.T) {
	c := world(t, chain([]call{{prompt: 1000, output: 1000}}), "none", "vllm-dp")
	c.Clients.Retries = 1
	c.Faults = []Fault{{Kind: ReplicaRestart, AtPS: seconds(2), ForPS: seconds(3), Replica: 0}}
	w := &watcher{}
	c.Decisions = w
	out, totals := simulate(t, c)
	first, second := out.turns[0], out.turns[1]
	if first.Outcome != results.FailedRun || first.Final || first.OutputTokens < 100 || second.Outcome != results.Finished || second.Attempt != 2 || second.SentPS != seconds(5) {
		t.Errorf("attempts %+v and %+v", first, second)
	}
	if totals.LeasesFailed != 1 || totals.LeasesFinished != 1 {
		t.Errorf("%d leases failed, %d finished", totals.LeasesFailed, totals.LeasesFinished)
	}
	if down, again, up := w.of(policies.ReplicaDown, 0), w.of(policies.ReplicaRestarted, 0), w.of(policies.ReplicaUp, 0); len(down) != 1 || down[0].now != 2e9 ||
		len(again) != 1 || again[0].now != 5e9 || len(up) != 2 || up[1].now != 5e9 {
		t.Errorf("down %v, restarted %v, up %v", down, again, up)
	}
	most := int64(0)
	for _, s := range w.of(policies.MetricsSampled, 0) {
		if s.now > 2e9 && s.now < 5e9 {
			t.Fatalf("a sample at %d, while the process was gone", s.now)
		}
		if q := s.fact.Sample.QueryTokens; s.now < 2e9 {
			most = max(most, q)
		} else if s.now == 5e9 && (q != 0 || s.fact.Sample.Running != 0) {
			t.Errorf("counters after the restart: %+v", s.fact.Sample)
		}
	}
	if most != 1000 {
		t.Errorf("the counter of looked-up tokens came to %d before the restart, expected 1000", most)
	}
	c.Decisions = nil
	sameWalking(t, c)
}

func TestJoinAndDrain(t *testing.T) {
	c := arriving(t, 100, 10, "least-requests")
	c.Faults = []Fault{{Kind: ReplicaJoin, AtPS: seconds(3.01), Replica: 1}, {Kind: ReplicaDrain, AtPS: seconds(6.01), ForPS: seconds(2), Replica: 0}}
	out, _ := simulate(t, c)
	if out.sentTo(1, 0, 3.01) != 0 || out.sentTo(1, 3.01, 6.01) < 10 {
		t.Errorf("%d attempts before replica 1 joined, %d in the 3 s after", out.sentTo(1, 0, 3.01), out.sentTo(1, 3.01, 6.01))
	}
	if out.sentTo(0, 6.02, 8.01) != 0 || out.sentTo(0, 8.01, 10) < 5 || out.outcomes()[results.Finished] != 100 {
		t.Errorf("%d attempts while replica 0 drained, %d after; outcomes %v", out.sentTo(0, 6.02, 8.01), out.sentTo(0, 8.01, 10), out.outcomes())
	}
	sameWalking(t, c)
}

// TestSlowReplica holds a replica that is three times as slow to exactly three times the law.
func TestSlowReplica(t *testing.T) {
	c := world(t, chain([]call{{prompt: 1000, output: 300}}), "none", "round-robin")
	out, _ := simulate(t, c)
	c.Faults = []Fault{{Kind: SlowReplica, Replica: 0, Factor: 3}}
	slow, _ := simulate(t, c)
	if a, b := out.turns[0], slow.turns[0]; b.FirstTokenPS != 3*a.FirstTokenPS || b.DonePS != 3*a.DonePS || b.ITLMaxPS != 3*a.ITLMaxPS {
		t.Errorf("first token %d, end %d, longest gap %d; expected three times %d, %d, %d", b.FirstTokenPS, b.DonePS, b.ITLMaxPS, a.FirstTokenPS, a.DonePS, a.ITLMaxPS)
	}
	c.Faults = []Fault{{Kind: SlowReplica, AtPS: seconds(0.5), ForPS: seconds(1), Replica: 0, Factor: 3.3}}
	sameWalking(t, c)
}

// TestErrorBurstIsABlackHole: a replica that fails everything at once looks idle, so the fewest requests are always there.
func TestErrorBurstIsABlackHole(t *testing.T) {
	c := arriving(t, 100, 10, "least-requests")
	c.Faults = []Fault{{Kind: ErrorBurst, AtPS: seconds(3.01), ForPS: seconds(4), Replica: 1, Share: 1}}
	out, _ := simulate(t, c)
	failed, fair := out.outcomes()[results.FailedRun], out.sentTo(1, 0, 3.01)*4/3
	if got := out.sentTo(1, 3.01, 7.01); got != failed || got <= fair {
		t.Errorf("%d attempts went to the failing replica, %d failed; its share before was %d", got, failed, fair)
	}
	c.Faults[0].Share = 0.5
	half, _ := simulate(t, c)
	if n := half.outcomes()[results.FailedRun]; n < 5 || n >= half.sentTo(1, 3.01, 7.01) {
		t.Errorf("with half of them failing, %d of %d failed", n, half.sentTo(1, 3.01, 7.01))
	}
}

func TestScrapesStallAndRepeat(t *testing.T) {
	c := arriving(t, 100, 10, "vllm-dp")
	c.Faults = []Fault{{Kind: ScrapeStall, AtPS: seconds(3.01), ForPS: seconds(2), Replica: 0}, {Kind: StaleCounters, AtPS: seconds(3.01), ForPS: seconds(2), Replica: 1}}
	w := &watcher{}
	c.Decisions = w
	simulate(t, c)
	in := func(s seen) bool { return s.now > 3_010_000_000 && s.now < 5_010_000_000 }
	for _, s := range w.of(policies.MetricsSampled, 0) {
		if in(s) {
			t.Fatalf("a sample at %d, while scrapes stalled", s.now)
		}
	}
	var stale []policies.Sample
	after := int64(0)
	for _, s := range w.of(policies.MetricsSampled, 1) {
		if s.fact.Sample.At != s.now {
			t.Fatalf("a sample of %d came at %d", s.fact.Sample.At, s.now)
		}
		if in(s) {
			s.fact.Sample.At = 0
			stale = append(stale, s.fact.Sample)
		} else if s.now > 5e9 {
			after = max(after, s.fact.Sample.QueryTokens)
		}
	}
	if len(stale) != 20 {
		t.Fatalf("%d stale samples, expected 20", len(stale))
	}
	for _, s := range stale {
		if s != stale[0] || s.QueryTokens == 0 || s.QueryTokens >= after {
			t.Fatalf("stale samples %+v and %+v; the counter came to %d later", stale[0], s, after)
		}
	}
}

// TestLateAndLossyScrapes: a sample says when it was taken, and comes after the delay and up to the jitter.
func TestLateAndLossyScrapes(t *testing.T) {
	c := arriving(t, 300, 10, "vllm-dp")
	c.Signals.ScrapeDelayPS, c.Signals.ScrapeJitterPS, c.Signals.ScrapeLoss = seconds(0.2), seconds(0.3), 0.25
	w := &watcher{}
	c.Decisions = w
	simulate(t, c)
	n, sum, swapped, last := 0, policies.Time(0), 0, policies.Time(0)
	for _, s := range w.of(policies.MetricsSampled, 0) {
		lag := s.now - s.fact.Sample.At
		if lag < 2e8 || lag > 5e8 || s.fact.Sample.At%1e8 != 0 {
			t.Fatalf("a sample of %d came at %d", s.fact.Sample.At, s.now)
		}
		if s.fact.Sample.At < last {
			swapped++
		}
		n, sum, last = n+1, sum+lag, s.fact.Sample.At
	}
	if n < 200 || n > 250 || swapped == 0 {
		t.Errorf("%d of about 300 samples came, %d of them after a newer one; expected three quarters", n, swapped)
	}
	if mean := float64(sum) / float64(n) / 1e9; mean < 0.32 || mean > 0.38 {
		t.Errorf("mean lag %.3f s, expected 0.35", mean)
	}
}

func TestProbesUnsupported(t *testing.T) {
	c := arriving(t, 20, 10, "sticky")
	c.Gate, c.Signals.NoProbes = policy(t, "gate", "session"), true
	c.GateParams = c.Gate.Resolve(nil)
	w := &watcher{}
	c.Decisions = w
	out, _ := simulate(t, c)
	n := 0
	for _, s := range w.facts {
		if s.fact.Kind == policies.UsageProbed || s.fact.Kind == policies.PrefixProbed {
			if n++; s.fact.Outcome != policies.ProbeUnsupported {
				t.Fatalf("a probe was answered: %+v", s.fact)
			}
		}
	}
	if n < 20 || out.turns[0].AdmitReason != policies.ProbeUnavailable.String() {
		t.Errorf("%d answers, admitted because of %s", n, out.turns[0].AdmitReason)
	}
}

func TestLostReleases(t *testing.T) {
	c := arriving(t, 100, 10, "least-requests")
	c.Faults = []Fault{{Kind: LostRelease, Share: 1, Count: 8}}
	_, totals := simulate(t, c)
	if totals.LeasesLost != 8 || totals.LeasesLive != 8 || totals.LeasesAdmitted != totals.LeasesFinished+8 {
		t.Errorf("%+v", totals)
	}
	noted := false
	for _, n := range totals.Notes {
		noted = noted || strings.Contains(n.Label, "leaked") && n.N == 8
	}
	if !noted {
		t.Errorf("the notes do not name the leak: %v", totals.Notes)
	}
	c.Faults = append(c.Faults, Fault{Kind: ReplicaRestart, AtPS: seconds(8), Replica: AllReplicas})
	c.Clients.Retries = 1
	_, totals = simulate(t, c)
	if totals.LeasesAbandoned != 8 || totals.LeasesLive != 0 {
		t.Errorf("after restarts %d leases live, %d were ended by them", totals.LeasesLive, totals.LeasesAbandoned)
	}
}

// TestLeakJamsAGate: the gate waits for a release that never comes; the run ends and says so.
func TestLeakJamsAGate(t *testing.T) {
	c := arriving(t, 10, 10, "least-requests")
	c.Gate = policy(t, "gate", "max-requests")
	c.GateParams = c.Gate.Resolve(policies.Params{"max_requests": {Number: 2}})
	c.Faults = []Fault{{Kind: LostRelease, Share: 1}}
	out, totals := simulate(t, c)
	n := out.outcomes()
	if n[results.TimedOut] == 0 || n[results.Finished] == 0 || n[results.TimedOut]+n[results.Finished] != 10 || totals.LeasesLive != int64(n[results.Finished]) {
		t.Errorf("outcomes %v, %d leases live", n, totals.LeasesLive)
	}
}

func TestClientsLeave(t *testing.T) {
	c := arriving(t, 200, 20, "least-requests")
	c.Clients.CancelUpstream = true
	c.Faults = []Fault{{Kind: ClientDisconnect, AtPS: seconds(2.01), ForPS: seconds(5), Share: 0.5, AfterPS: seconds(0.25)}}
	out, totals := simulate(t, c)
	n := 0
	for _, x := range out.turns {
		in := x.ArrivalPS > seconds(1) && x.ArrivalPS < seconds(7.01)
		if x.Outcome != results.Finished && (!in || x.Outcome != results.TimedOut) {
			t.Fatalf("%+v ended so", x)
		}
		if x.Outcome == results.TimedOut {
			n++
		}
	}
	if n < 35 || n > 65 || totals.LeasesCancelled != int64(n) {
		t.Errorf("%d of 100 clients left, %d leases were cancelled", n, totals.LeasesCancelled)
	}
}

// TestInstancesKeepToThemselves: two router instances that count only their own turns load the replicas less evenly than
// one that counts all.
func TestInstancesKeepToThemselves(t *testing.T) {
	spread := func(routers int) (worst int) {
		c := arriving(t, 400, 40, "least-requests")
		c.Routers = routers
		out, totals := simulate(t, c)
		if totals.LeasesFinished != 400 {
			t.Fatalf("%d routers: %d turns finished", routers, totals.LeasesFinished)
		}
		for _, s := range out.samples {
			if s.Replica == 0 {
				worst = max(worst, int(s.InFlight))
			}
		}
		return worst
	}
	if one, many := spread(1), spread(20); many <= one {
		t.Errorf("most in flight on replica 0: %d with one router, %d with twenty; ties go to it in each", one, many)
	}
}

func TestFaultsAreDeterministic(t *testing.T) {
	c := arriving(t, 200, 20, "least-requests")
	c.Replicas, c.Routers, c.Clients.Retries = 3, 2, 2
	c.Faults = []Fault{
		{Kind: ReplicaRestart, AtPS: seconds(2), ForPS: seconds(1), Replica: 0, DetectPS: seconds(0.5)}, {Kind: ErrorBurst, AtPS: seconds(3), Share: 0.2, Replica: AllReplicas},
		{Kind: SlowReplica, AtPS: seconds(4), Factor: 1.7, Replica: 1}, {Kind: LostRelease, Share: 0.1}, {Kind: ClientDisconnect, Share: 0.1, ForPS: seconds(9), AfterPS: seconds(0.2)},
	}
	a, aTotals := simulate(t, c)
	b, bTotals := simulate(t, c)
	if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(aTotals, bTotals) {
		t.Error("two runs of one configuration differ")
	}
	c.ReferencePool = true
	if b, _ = simulate(t, c); !reflect.DeepEqual(a, b) {
		t.Error("the reference pool gives other rows")
	}
	c.ReferencePool = false
	c.Seed++
	if other, _ := simulate(t, c); reflect.DeepEqual(a, other) {
		t.Error("another seed draws the same")
	}
	c.Seed--
	sameWalking(t, c)
}

func TestFaultsThatCannotBe(t *testing.T) {
	for want, faults := range map[string][]Fault{
		"replica 7":        {{Kind: ReplicaDown, Replica: 7}},
		"for good":         {{Kind: ReplicaDown, Replica: 0}, {Kind: ReplicaDrain, Replica: 1}},
		"factor":           {{Kind: SlowReplica}},
		"share":            {{Kind: ErrorBurst, Share: 2}},
		"is not a fault":   {{Kind: numFaultKinds}},
		"faults[1] is not": {{Kind: ReplicaJoin}, {Kind: ReplicaDown, AtPS: -1}},
	} {
		c := arriving(t, 1, 1, "round-robin")
		c.Faults = faults
		_, err := Run(context.Background(), c, nothing{})
		var in *InputError
		if !errors.As(err, &in) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

// TestAuditNamesALeak gives the check of the accounts a lease that nobody ended.
func TestAuditNamesALeak(t *testing.T) {
	c := arriving(t, 1, 1, "round-robin")
	r := &run{cfg: c, tree: c.Trace.Tree}
	r.control = r.newCore(nil)
	prompt := c.Trace.Sessions[0].Turns[0].Prompt
	r.control.Step(5e8, []policies.Fact{{Kind: policies.ReplicaUp}, {Kind: policies.TurnArrived, Turn: policies.Turn{Attempt: 77, Prompt: prompt}}}, nil)
	r.totals.LeasesLive = r.control.Audit().Live
	err := r.checkLeases()
	if err == nil || !strings.Contains(err.Error(), "attempt 77 of session 0 on replica 0, admitted at 0.500 s") {
		t.Errorf("error %v does not name the leak", err)
	}
}

// TestFaultAtTheEndOfAStep lets faults begin and end, and clients give up, at the very picosecond at which a step of a run
// ends, or one before or after.
func TestFaultAtTheEndOfAStep(t *testing.T) {
	law := newLaw(t)
	a, b, _ := law.DecodeCoefficients(1)
	ended := func(j int64) int64 {
		return law.Picoseconds(&latency.Batch{Prefill: []latency.Chunk{{Tokens: 1000}}, Sampled: 1}) + j*a + b*(j*1000+j*(j+1)/2)
	}
	for _, async := range []bool{false, true} {
		for j := int64(5); j < 45; j += 9 {
			for off := int64(-1); off <= 1; off++ {
				calls := []call{{prompt: 1000, output: 200}, {prompt: 1300, output: 20}}
				for kind := ReplicaDown; kind < numFaultKinds; kind++ {
					c := world(t, chain(calls, calls), "none", "vllm-dp")
					c.Replicas, c.Engine.Async, c.Clients = 2, async, Clients{Retries: 2, RetryDelayPS: 1e10, CancelUpstream: true}
					c.Faults = []Fault{{Kind: kind, AtPS: ended(j) + off, ForPS: ended(j+30) - ended(j), Replica: 0, Factor: 0.4, Share: 0.7, DetectPS: 1e11, AfterPS: 1e11}}
					sameWalking(t, c)
				}
				c := world(t, chain(calls, calls), "none", "vllm-dp")
				c.Replicas, c.Engine.Async = 2, async
				c.Clients = Clients{TimeoutPS: ended(j) + off, Retries: 2, RetryDelayPS: 1e10, CancelUpstream: true}
				sameWalking(t, c)
			}
		}
	}
}

// TestScrapesOnDemand holds scrapes that are taken when somebody decides equal to scrapes that are all taken: a fault that
// strikes nobody makes the simulator take them all.
func TestScrapesOnDemand(t *testing.T) {
	lazy := 0
	rapid.Check(t, func(rt *rapid.T) {
		c := randomWorld(t, rt)
		if c == nil {
			return
		}
		g := &c.Signals
		c.Faults = nil
		g.ScrapePS = seconds(rapid.SampledFrom([]float64{0.1, 0.7, 15}).Draw(rt, "scrape"))
		if rapid.Bool().Draw(rt, "prompt scrapes") {
			g.ScrapeDelayPS, g.ScrapeJitterPS, g.ScrapeLoss = 0, 0, 0
		}
		c.Router = policy(t, "router", rapid.SampledFrom([]string{"vllm-dp", "lmetric", "llm-d", "dynamo", "smetric"}).Draw(rt, "router"))
		c.RouterParams = c.Router.Resolve(nil)
		if c.Router.Name == "smetric" {
			c.RouterParams = c.Router.Resolve(policies.Params{"spill": {Text: "dynamo"}})
		}
		if gate := rapid.SampledFrom([]string{"as drawn", "aimd-kv", "llm-d-saturation"}).Draw(rt, "gate"); gate != "as drawn" {
			c.Gate, c.Retention = policy(t, "gate", gate), policies.Declaration{} // see TestPinsThatNeverEndHoldAGate
			c.GateParams = c.Gate.Resolve(policies.Params{"tick_s": {Number: 0.5}, "initial_requests": {Number: 2}})
			if gate == "llm-d-saturation" {
				c.GateParams = c.Gate.Resolve(policies.Params{
					"queue_depth": {Number: rapid.SampledFrom([]float64{1, 3}).Draw(rt, "depth")}, "kv_usage": {Number: rapid.SampledFrom([]float64{0.05, 0.4}).Draw(rt, "usage")},
					"stale_s": {Number: rapid.SampledFrom([]float64{0.2, 60}).Draw(rt, "stale")}, "ttl_s": {Number: rapid.SampledFrom([]float64{0.4, 3, 60}).Draw(rt, "ttl")},
					"ceilings": {Text: rapid.SampledFrom([]string{"static", "soft-reflective"}).Draw(rt, "ceilings")},
				})
			}
		}
		some, someTotals := simulate(rt, c)
		c.Faults = []Fault{{Kind: ClientDisconnect}}
		all, allTotals := simulate(rt, c)
		if same(rt, "on demand", some, someTotals, "all", all, allTotals) > 0 {
			lazy++
		}
	})
	if lazy == 0 {
		t.Error("every scrape was taken in every world")
	}
}

// TestScrapesThatHelpNobody: where a gate waits for samples that are always too old when they come, the run ends and says so.
func TestScrapesThatHelpNobody(t *testing.T) {
	c := world(t, chain([]call{{100, 5, 0}}), "llm-d-saturation", "vllm-dp")
	c.GateParams = c.Gate.Resolve(policies.Params{"stale_s": {Number: 0.2}, "ttl_s": {Number: 0}})
	c.Signals.ScrapeDelayPS = 3e11
	_, some := Run(t.Context(), c, &rows{})
	c.Faults = []Fault{{Kind: ClientDisconnect}} // strikes nobody; every scrape is taken
	_, all := Run(t.Context(), c, &rows{})
	if some == nil || all == nil || some.Error() != all.Error() || !strings.Contains(some.Error(), "nothing will happen any more") {
		t.Errorf("on demand: %v\nall: %v", some, all)
	}
}
