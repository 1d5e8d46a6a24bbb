package explain

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

type nowhere struct{}

func (nowhere) Turn(*results.Turn) error       { return nil }
func (nowhere) Session(*results.Session) error { return nil }
func (nowhere) Sample(*results.Sample) error   { return nil }

// What is found by following every block is what the core's index, which keeps runs of blocks, told the router.
func TestResidencyIsWhatTheRouterSaw(t *testing.T) {
	m, err := latency.FindModel("llama-3.1-8b")
	check(t, err)
	g, err := latency.FindGPU("h100")
	check(t, err)
	law, err := latency.New(latency.Setup{Model: m, GPU: g, TensorParallel: 1})
	check(t, err)
	tr, err := traces.Generate("claude-code", 1, traces.Params{"sessions": traces.Num(24)})
	check(t, err)
	tr = traces.DropOverContext(tr, 40_000)
	e := engine.DefaultConfig()
	e.MaxModelLen = 40_000
	gate, err := catalog.FindGate("none")
	check(t, err)
	router, err := catalog.FindRouter("lmetric")
	check(t, err)
	c := &sim.Config{
		Seed: 1, Trace: tr, Arrivals: sim.Arrivals{Process: sim.Burst}, Signals: sim.Signals{ScrapePS: 1e13, KVEventDelayPS: 1e9},
		Replicas: 2, GPUsPerReplica: 1, Engine: e, KVBlocks: 3000, Law: law, MaxModelLen: 40_000, IntervalPS: 1e13, MaxSamples: 100,
		Gate: gate, Router: router, GateParams: gate.Resolve(nil), RouterParams: router.Resolve(nil),
	}
	var log bytes.Buffer
	rec := decisionlog.NewRecorder(&log, decisionlog.Header{
		Gate: decisionlog.Resolved(gate, nil), Router: decisionlog.Resolved(router, nil), Capabilities: make([]policies.Capability, 2),
	})
	c.Router, c.Decisions = rec.Router(router), rec
	_, err = sim.Run(context.Background(), c, nowhere{})
	check(t, err)

	d := decisionlog.NewDecoder()
	prompts := map[policies.AttemptID]policies.Turn{}
	type decision struct {
		step   int64
		turn   policies.Turn
		scores []policies.ReplicaScore
	}
	var all []decision
	for line := range split(log.Bytes())() {
		s, err := d.Take(line)
		check(t, err)
		if s == nil {
			continue
		}
		for _, f := range s.Facts {
			if f.Kind == policies.TurnArrived {
				prompts[f.Turn.Attempt] = f.Turn
			}
		}
		for _, x := range s.Scores {
			all = append(all, decision{s.Number, prompts[x.Attempt], append([]policies.ReplicaScore{}, x.Of...)})
		}
	}
	hits, evicted := 0, int32(0)
	for i := len(all) / 4; i < len(all); i += 1 + len(all)/40 {
		x := all[i]
		r, err := followBlocks(split(log.Bytes())(), d.Tree, x.turn.Prompt, x.step)
		check(t, err)
		for _, s := range x.scores {
			got, want := r.hit(s.Replica, x.turn.Prompt.Tokens), int32(s.Terms[0])
			if got != want {
				t.Errorf("step %d, attempt %d, replica %d: %d tokens by block, the router saw %d", x.step, x.turn.Attempt, s.Replica, got, want)
			}
			if want > 0 {
				hits++
			}
			f := r.fate(s.Replica, x.turn.Prompt.Tokens)
			evicted += f.evicted
			if sum := got + f.evicted + f.cleared + f.stranded + f.elsewhere + f.fresh; sum != x.turn.Prompt.Tokens/16*16 {
				t.Errorf("step %d, replica %d: the fates of %d of %d tokens are told", x.step, s.Replica, sum, x.turn.Prompt.Tokens)
			}
		}
	}
	if len(all) < 100 || hits < 10 || evicted == 0 {
		t.Errorf("%d decisions, %d hits and %d evicted tokens: the run is too quiet to test with", len(all), hits, evicted)
	}
}
