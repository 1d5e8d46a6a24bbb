package gateway

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
	"github.com/sluice-sim/sluice/sim"
	"github.com/sluice-sim/sluice/traces"
)

// TestDriversAgree runs one trace through the simulator's driver, and brings what happened there to the gateway's driver at
// the same times through the same calls as the gateway makes: arrivals with their keys, releases of leases, answers of
// probes, scrapes, KV events. The gateway's driver numbers sessions and attempts itself, keeps its own timer and its own
// ledger. Both must give the same commands at the same times.
func TestDriversAgree(t *testing.T) {
	worlds := map[string]func(*sim.Config){
		"calm": func(*sim.Config) {},
		"clients retry": func(c *sim.Config) {
			c.Clients = sim.Clients{TimeoutPS: 40e11, Retries: 1000, RetryDelayPS: 2e11, CancelUpstream: true}
		},
		"replica restarts": func(c *sim.Config) {
			c.Clients = sim.Clients{Retries: 1000, RetryDelayPS: 2e11, CancelUpstream: true}
			c.Faults = []sim.Fault{{Kind: sim.ReplicaRestart, AtPS: 8e12, ForPS: 2e12, Replica: 1}}
		},
	}
	pairs := [][2]string{
		{"session", "sticky"}, {"session", "smg-cache-aware"}, {"max-sessions", "smetric"}, {"max-requests", "least-work"}, {"concur", "lmetric"},
		{"thunderagent", "round-robin"}, {"aimd-kv", "preble"}, {"none", "least-requests"},
	}
	for name, change := range worlds {
		for _, p := range pairs {
			t.Run(fmt.Sprintf("%s/%s/%s", name, p[0], p[1]), func(t *testing.T) {
				c := simulated(t, p[0], p[1])
				change(c)
				log := recordOf(t, c)
				got, audit := drive(t, c, log)
				want := commandsOf(t, log)
				compare(t, want, got)
				if audit.Imbalance() != 0 || audit.Live != 0 || audit.Waiting != 0 {
					t.Errorf("accounts at the end: %+v", audit)
				}
			})
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// simulated is three small replicas under enough pressure that turns wait and blocks are evicted.
func simulated(t testing.TB, gate, router string) *sim.Config {
	t.Helper()
	m, err := latency.FindModel("llama-3.1-8b")
	check(t, err)
	g, err := latency.FindGPU("h100")
	check(t, err)
	law, err := latency.New(latency.Setup{Model: m, GPU: g, TensorParallel: 1})
	check(t, err)
	tr, err := traces.Generate("bench", 1, traces.Params{
		"sessions": traces.Num(60), "turns": traces.Num(4), "input_tokens": traces.Num(900), "output_tokens": traces.Num(60),
	})
	check(t, err)
	e := engine.DefaultConfig()
	e.MaxModelLen = 1 << 15
	c := &sim.Config{
		Seed: 1, Trace: tr, Arrivals: sim.Arrivals{Process: sim.Concurrent, Sessions: 36},
		Signals:  sim.Signals{ScrapePS: 1e11, ScrapeDelayPS: 1e9, ProbeIPCPS: 5e8, ProbeTimeoutPS: 6e10},
		Replicas: 3, GPUsPerReplica: 1, Engine: e, KVBlocks: 400, Law: law, MaxModelLen: 6400,
		IntervalPS: 1e12, MaxSamples: 100,
	}
	c.Capability = policies.Capability{
		KVTokens: int64(c.KVBlocks) * 16, BlockTokens: 16, PrefillTokensPerSec: law.PrefillRate(8192),
		AttentionDoubling: law.AttentionDoubling(), MaxBatchedTokens: e.MaxBatchedTokens,
	}
	c.Gate, err = catalog.FindGate(gate)
	check(t, err)
	c.Router, err = catalog.FindRouter(router)
	check(t, err)
	c.Retention, err = catalog.FindRetention("none")
	check(t, err)
	for _, k := range []string{"max_sessions", "max_requests"} {
		if _, ok := c.Gate.Knob(k); ok && gate != "aimd-kv" {
			c.GateParams = policies.Params{k: {Number: 12}}
		}
	}
	c.GateParams, c.RouterParams = c.Gate.Resolve(c.GateParams), c.Router.Resolve(nil)
	return c
}

// askedLater leaves every probe to be answered by Batch.Probed.
func askedLater(Probe, *policies.View) (Answer, bool) { return Answer{}, true }

type noRows struct{}

func (noRows) Turn(*results.Turn) error       { return nil }
func (noRows) Session(*results.Session) error { return nil }
func (noRows) Sample(*results.Sample) error   { return nil }

// recordOf is the decision log of a simulation.
func recordOf(t *testing.T, c *sim.Config) []byte {
	t.Helper()
	var log bytes.Buffer
	h := decisionlog.Header{
		Sluice: "test", Seed: c.Seed, Gate: decisionlog.Resolved(c.Gate, c.GateParams), Router: decisionlog.Resolved(c.Router, c.RouterParams),
		Retention: decisionlog.Resolved(c.Retention, nil), Instances: 1, Capability: c.Capability,
	}
	for range c.Replicas {
		h.Capabilities = append(h.Capabilities, c.Capability)
	}
	r := decisionlog.NewRecorder(&log, h)
	c.Router, c.Decisions = r.Router(c.Router), r
	_, err := sim.Run(context.Background(), c, noRows{})
	check(t, err)
	return log.Bytes()
}

func linesOf(log []byte) decisionlog.Lines {
	return func(yield func([]byte, error) bool) {
		for line := range bytes.Lines(log) {
			if !yield(line, nil) {
				return
			}
		}
	}
}

// said is a command and when it was given. Attempts are named by the order in which they arrived.
type said struct {
	now     policies.Time
	command policies.Command
}

func commandsOf(t *testing.T, log []byte) []said {
	t.Helper()
	d := decisionlog.NewDecoder()
	var out []said
	order := map[policies.AttemptID]policies.AttemptID{}
	for line := range bytes.Lines(log) {
		s, err := d.Take(line)
		check(t, err)
		if s == nil {
			continue
		}
		for _, f := range s.Facts {
			if f.Kind == policies.TurnArrived {
				order[f.Turn.Attempt] = policies.AttemptID(len(order))
			}
		}
		for _, c := range s.Commands {
			c.Attempt = order[c.Attempt]
			out = append(out, said{s.Now, c})
		}
	}
	return out
}

func compare(t *testing.T, want, got []said) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			var w, g said
			if i < len(want) {
				w = want[i]
			}
			if i < len(got) {
				g = got[i]
			}
			t.Fatalf("command %d of %d (simulator) and %d (gateway): simulator %+v, gateway %+v", i, len(want), len(got), w, g)
		}
	}
	if len(want) < 100 {
		t.Errorf("only %d commands were compared", len(want))
	}
}

// manualClock stands still until it is told.
type manualClock struct {
	now    policies.Time
	timers []*manualTimer
}

type manualTimer struct {
	at   policies.Time
	f    func()
	done bool
}

func (c *manualClock) Now() policies.Time { return c.now }

func (c *manualClock) AfterFunc(d time.Duration, f func()) func() bool {
	m := &manualTimer{at: c.now + policies.Time(d), f: f}
	c.timers = append(c.timers, m)
	return func() bool { was := m.done; m.done = true; return !was }
}

// advance runs the timers that are due up to and with a moment, which it makes the present.
func (c *manualClock) advance(to policies.Time) {
	for {
		var next *manualTimer
		kept := c.timers[:0]
		for _, m := range c.timers {
			if m.done {
				continue
			}
			kept = append(kept, m)
			if m.at <= to && (next == nil || m.at < next.at) {
				next = m
			}
		}
		c.timers = kept
		if next == nil {
			break
		}
		next.done = true
		c.now = max(c.now, next.at)
		next.f()
	}
	c.now = max(c.now, to)
}

// drive brings the facts of a log to a gateway's driver and returns the commands of the log that this one writes.
func drive(t *testing.T, c *sim.Config, log []byte) ([]said, Audit) {
	t.Helper()
	from := decisionlog.NewDecoder()
	clock := &manualClock{}
	var own bytes.Buffer
	core := CoreConfig{Version: "test", Seed: c.Seed, Policy: scenarios.Policy{
		Gate: scenarios.Choice{Name: c.Gate.Name, Params: c.GateParams}, Router: scenarios.Choice{Name: c.Router.Name, Params: c.RouterParams},
	}}
	for range c.Replicas {
		core.Capabilities = append(core.Capabilities, c.Capability)
	}
	d, err := NewDriver(DriverConfig{Core: core, Clock: clock, Tree: from.Tree, Log: &own, Probe: askedLater})
	check(t, err)
	r := &retelling{d: d, attempts: map[policies.AttemptID]*Attempt{}, last: map[[2]int32]*Attempt{}}
	for line := range bytes.Lines(log) {
		s, err := from.Take(line)
		check(t, err)
		if s == nil {
			continue
		}
		if s.Now > clock.now {
			clock.advance(s.Now - 1)
			clock.now = s.Now
		}
		d.Do(func(b *Batch) {
			for i := range s.Facts {
				r.tell(t, b, &s.Facts[i])
			}
		})
		clock.advance(s.Now)
	}
	check(t, d.Err())
	if _, err := decisionlog.Replay(linesOf(own.Bytes())); err != nil {
		t.Errorf("the log of the gateway's driver: %v", err)
	}
	return commandsOf(t, own.Bytes()), d.Audit()
}

// retelling turns facts back into what a gateway calls.
type retelling struct {
	d        *Driver
	attempts map[policies.AttemptID]*Attempt
	last     map[[2]int32]*Attempt // by thread and number of the turn
}

func (r *retelling) tell(t *testing.T, b *Batch, f *policies.Fact) {
	t.Helper()
	a := r.attempts[f.Attempt]
	switch f.Kind {
	case policies.TurnArrived:
		turn := [2]int32{int32(f.Turn.Thread), f.Turn.Number}
		x := Arrival{
			Session: fmt.Sprint("session ", f.Turn.Session), Thread: fmt.Sprint("thread ", f.Turn.Thread), Prompt: f.Turn.Prompt,
			MaxTokens: f.Turn.MaxTokens, Class: f.Turn.Class, Group: f.Turn.Group,
		}
		if f.Turn.Retry > 0 {
			x.Former = r.last[turn]
		}
		a, err := b.Arrive(x)
		check(t, err)
		r.attempts[f.Turn.Attempt], r.last[turn] = a, a
	case policies.AttemptSuperseded, policies.Woke, policies.ThreadFinished: // the driver says these of itself
	case policies.ClientGone:
		b.Gone(a)
	case policies.UsageProbed, policies.PrefixProbed:
		b.Probed(Probe{Attempt: a, Replica: f.Replica, Prefix: f.Kind == policies.PrefixProbed}, Answer{f.Outcome, f.Usage, f.HitTokens, f.PromptTokens})
	case policies.Dispatched:
		b.Dispatched(a)
	case policies.FirstToken:
		b.FirstToken(a, Usage{Prompt: f.PromptTokens, Cached: f.HitTokens})
	case policies.Finished:
		b.Finished(a, Usage{Prompt: f.PromptTokens, Output: f.OutputTokens, Cached: f.HitTokens, Preemptions: f.Preemptions})
	case policies.Failed:
		b.Failed(a)
	case policies.SessionFinished:
		if !b.EndSession(fmt.Sprint("session ", f.Session)) {
			t.Fatalf("session %d is not known", f.Session)
		}
	case policies.MetricsSampled:
		b.Sampled(f.Replica, f.Sample)
	case policies.TokensProgressed:
		b.ProgressedTo(a, f.OutputTokens)
	case policies.BlocksStored:
		b.Stored(f.Replica, f.Stream, f.Lo, f.Hi, f.BlockTokens)
	case policies.BlocksEvicted:
		b.Evicted(f.Replica, f.Stream, f.Lo, f.Hi, f.BlockTokens)
	case policies.BlocksCleared:
		b.Cleared(f.Replica)
	case policies.ReplicaUp:
		b.Up(f.Replica)
	case policies.ReplicaDown:
		b.Down(f.Replica)
	case policies.ReplicaDraining:
		b.Draining(f.Replica)
	case policies.ReplicaRestarted:
		b.Restarted(f.Replica)
	default:
		t.Fatalf("a fact of kind %s", f.Kind)
	}
}
