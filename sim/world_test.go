package sim

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// rows collects what a run hands out.
type rows struct {
	turns    []results.Turn
	sessions []results.Session
	samples  []results.Sample
	forever  bool // the run ended because an engine goes round for nothing; there are no totals and no samples then
}

func (r *rows) Turn(t *results.Turn) error       { r.turns = append(r.turns, *t); return nil }
func (r *rows) Session(s *results.Session) error { r.sessions = append(r.sessions, *s); return nil }
func (r *rows) Sample(s *results.Sample) error   { r.samples = append(r.samples, *s); return nil }

// find returns the last attempt of a turn.
func (r *rows) find(t *testing.T, session, thread, number int32) results.Turn {
	t.Helper()
	for _, x := range r.turns {
		if x.Session == session && x.Thread == thread && x.Number == number && x.Final {
			return x
		}
	}
	t.Fatalf("no final row of session %d thread %d turn %d", session, thread, number)
	return results.Turn{}
}

// nothing is a sink that keeps nothing.
type nothing struct{}

func (nothing) Turn(*results.Turn) error       { return nil }
func (nothing) Session(*results.Session) error { return nil }
func (nothing) Sample(*results.Sample) error   { return nil }

func newLaw(t testing.TB) *latency.Law {
	t.Helper()
	m, err := latency.FindModel("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	g, err := latency.FindGPU("h100")
	if err != nil {
		t.Fatal(err)
	}
	law, err := latency.New(latency.Setup{Model: m, GPU: g, TensorParallel: 1})
	if err != nil {
		t.Fatal(err)
	}
	return law
}

func policy(t testing.TB, kind, name string) policies.Declaration {
	t.Helper()
	find := catalog.FindRouter
	if kind == "gate" {
		find = catalog.FindGate
	}
	d, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// world is a configuration of one Llama-3.1-8B replica on an H100, all sessions at once, which tests change.
func world(t testing.TB, tr *traces.Trace, gate, router string) *Config {
	t.Helper()
	law := newLaw(t)
	e := engine.DefaultConfig()
	e.MaxModelLen = 1 << 20
	c := &Config{
		Seed: 1, Trace: tr, Arrivals: Arrivals{Process: Burst},
		Signals:  Signals{ScrapePS: 1e11, ProbeIPCPS: 5e8},
		Replicas: 1, GPUsPerReplica: 1, Engine: e, KVBlocks: 1 << 16, Law: law, MaxModelLen: 1 << 20,
		Gate: policy(t, "gate", gate), Router: policy(t, "router", router),
		IntervalPS: 1e12, MaxSamples: 5000, Check: true,
	}
	c.GateParams, c.RouterParams = c.Gate.Resolve(nil), c.Router.Resolve(nil)
	c.Capability = policies.Capability{
		KVTokens: int64(c.KVBlocks) * 16, BlockTokens: 16, PrefillTokensPerSec: law.PrefillRate(8192),
		AttentionDoubling: law.AttentionDoubling(), MaxBatchedTokens: e.MaxBatchedTokens,
	}
	return c
}

// withRetention pins by a policy of the catalog, with some of its knobs given.
func withRetention(t testing.TB, c *Config, name string, p policies.Params) {
	t.Helper()
	d, err := catalog.FindRetention(name)
	if err != nil {
		t.Fatal(err)
	}
	c.Retention, c.RetentionParams = d, d.Resolve(p)
}

func simulate(t reporter, c *Config) (*rows, *results.Totals) {
	t.Helper()
	out := &rows{}
	totals, err := Run(context.Background(), c, out)
	if _, drawn := t.(*rapid.T); drawn && errors.Is(err, errForever) {
		out.forever = true
		return out, &results.Totals{}
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return out, totals
}

// call is one turn of a hand-made session: prompt and output tokens and the tool gap before it in seconds.
type call struct {
	prompt, output int32
	gapS           float64
}

// chain makes a trace of sessions that share nothing; every turn of a session continues the one before.
func chain(sessions ...[]call) *traces.Trace {
	tr := &traces.Trace{Name: "chain", Tree: &prefix.Tree{}, Models: []string{"m"}}
	for _, calls := range sessions {
		s := traces.Session{Name: "s", StartNS: traces.Unknown, Group: -1, Threads: 1}
		stream := tr.Tree.Root()
		for i, c := range calls {
			t := traces.Turn{Number: int32(i + 1), Prompt: prefix.Prefix{Stream: stream, Tokens: c.prompt}, OutputTokens: c.output, DurationNS: traces.Unknown}
			t.DepLo = int32(len(s.Deps))
			if i > 0 {
				s.Deps = append(s.Deps, traces.Dep{Turn: int32(i - 1), DelayNS: int64(c.gapS * 1e9)})
			} else {
				t.StartNS = int64(c.gapS * 1e9)
			}
			t.DepHi = int32(len(s.Deps))
			s.Turns = append(s.Turns, t)
		}
		tr.Sessions = append(tr.Sessions, s)
	}
	return tr
}

// generated makes a trace of a preset.
func generated(t testing.TB, preset string, knobs map[string]float64) *traces.Trace {
	t.Helper()
	p := traces.Params{}
	for k, v := range knobs {
		p[k] = traces.Num(v)
	}
	tr, err := traces.Generate(preset, 1, p)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// cpuTier is host memory for a number of blocks behind each replica of c.
func cpuTier(t testing.TB, c *Config, blocks int32) *CPUTier {
	t.Helper()
	link, err := latency.FindLink("pcie5_dma")
	if err != nil {
		t.Fatal(err)
	}
	x := &CPUTier{BlockBytes: int64(c.Engine.BlockTokens) * 131072, Link: link, Layers: 32}
	x.Chunks, x.BlocksPerChunk, x.PromptOnly = blocks, 1, true
	return x
}
