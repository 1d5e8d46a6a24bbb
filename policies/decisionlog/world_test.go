package decisionlog_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/sim"
	"github.com/sluice-sim/sluice/traces"
)

// world is three small replicas under enough pressure that turns wait, blocks are evicted and clients give up and retry.
func world(t testing.TB, gate, router string, seed uint64) *sim.Config {
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
		Seed: seed, Trace: tr, Arrivals: sim.Arrivals{Process: sim.Concurrent, Sessions: 36},
		Clients:  sim.Clients{TimeoutPS: 40e11, Retries: 2, RetryDelayPS: 2e11, CancelUpstream: true},
		Signals:  sim.Signals{ScrapePS: 1e11, ProbeIPCPS: 5e8, ProbeTimeoutPS: 6e10},
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
	retain(t, c, "none")
	if _, ok := c.Gate.Knob("max_sessions"); ok {
		c.GateParams = policies.Params{"max_sessions": {Number: 12}}
	}
	c.GateParams, c.RouterParams = c.Gate.Resolve(c.GateParams), c.Router.Resolve(nil)
	return c
}

// retain gives c a retention policy.
func retain(t testing.TB, c *sim.Config, name string) {
	t.Helper()
	d, err := catalog.FindRetention(name)
	check(t, err)
	c.Retention, c.RetentionParams = d, d.Resolve(nil)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sink is one that keeps the turns.
type sink struct{ turns []results.Turn }

func (s *sink) Turn(t *results.Turn) error   { s.turns = append(s.turns, *t); return nil }
func (*sink) Session(*results.Session) error { return nil }
func (*sink) Sample(*results.Sample) error   { return nil }

// record runs c and returns its log and its turns.
func record(t testing.TB, c *sim.Config) ([]byte, []results.Turn) {
	t.Helper()
	var log bytes.Buffer
	h := decisionlog.Header{
		Sluice: "test", Seed: c.Seed, Gate: decisionlog.Resolved(c.Gate, c.GateParams), Router: decisionlog.Resolved(c.Router, c.RouterParams),
		Retention: decisionlog.Resolved(c.Retention, c.RetentionParams),
		Signals:   c.Gate.Signals(c.GateParams) | c.Router.Signals(c.RouterParams), Instances: c.Routers, Capability: c.Capability,
	}
	for range c.Replicas {
		h.Capabilities = append(h.Capabilities, c.Capability)
	}
	r := decisionlog.NewRecorder(&log, h)
	c.Router, c.Decisions = r.Router(c.Router), r
	out := &sink{}
	_, err := sim.Run(context.Background(), c, out)
	check(t, err)
	return log.Bytes(), out.turns
}

// lines splits a log.
func lines(log []byte) decisionlog.Lines {
	return func(yield func([]byte, error) bool) {
		for len(log) > 0 {
			n := bytes.IndexByte(log, '\n') + 1
			if n == 0 {
				n = len(log)
			}
			if !yield(log[:n], nil) {
				return
			}
			log = log[n:]
		}
	}
}
