package fakevllm

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/sim"
	"github.com/sluice-sim/sluice/traces"
)

// turnRows keeps what happened to each turn.
type turnRows map[[2]int32]results.Turn

func (r turnRows) Turn(t *results.Turn) error   { r[[2]int32{t.Session, t.Number}] = *t; return nil }
func (turnRows) Session(*results.Session) error { return nil }
func (turnRows) Sample(*results.Sample) error   { return nil }

// simulate runs a trace on one replica of the simulator.
func simulate(t *testing.T, cfg Config, tr *traces.Trace) (turnRows, *results.Totals) {
	t.Helper()
	law, err := latency.New(cfg.Setup)
	if err != nil {
		t.Fatal(err)
	}
	c := &sim.Config{
		Seed: 1, Trace: tr, Arrivals: sim.Arrivals{Process: sim.Poisson, RatePerS: 3}, Replicas: 1, GPUsPerReplica: 1, Engine: cfg.Engine,
		KVBlocks: cfg.Blocks, Law: law, MaxModelLen: cfg.Engine.MaxModelLen, IntervalPS: 1e12, MaxSamples: 10,
		Capability: policies.Capability{
			KVTokens: int64(cfg.Blocks) * 16, BlockTokens: 16, PrefillTokensPerSec: law.PrefillRate(8192),
			AttentionDoubling: law.AttentionDoubling(), MaxBatchedTokens: cfg.Engine.MaxBatchedTokens,
		},
	}
	if c.Gate, err = catalog.FindGate("none"); err != nil {
		t.Fatal(err)
	}
	if c.Router, err = catalog.FindRouter("round-robin"); err != nil {
		t.Fatal(err)
	}
	if c.Retention, err = catalog.FindRetention("none"); err != nil {
		t.Fatal(err)
	}
	c.GateParams, c.RouterParams = c.Gate.Resolve(nil), c.Router.Resolve(nil)
	rows := turnRows{}
	totals, err := sim.Run(context.Background(), c, rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows, totals
}

// texts are the tokens of the streams of a trace, as far as they are known.
type texts struct {
	tree *prefix.Tree
	mu   sync.Mutex
	of   map[prefix.StreamID][]uint32
}

// prompt is the tokens of a prompt; what nobody has said yet is made up.
func (x *texts) prompt(p prefix.Prefix) []uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]uint32(nil), x.upTo(p)...)
}

func (x *texts) upTo(p prefix.Prefix) []uint32 {
	own := x.of[p.Stream]
	if len(own) == 0 {
		if s := x.tree.Stream(p.Stream); s.Parent != prefix.None {
			own = append(own, x.upTo(prefix.Prefix{Stream: s.Parent, Tokens: s.ForkAt})...)
		}
	}
	for i := len(own); i < int(p.Tokens); i++ {
		own = append(own, word(uint64(p.Stream)+1e6, int32(i)))
	}
	x.of[p.Stream] = own
	return own[:p.Tokens]
}

// said continues a prompt by its answer.
func (x *texts) said(p prefix.Prefix, answer []uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if own := x.of[p.Stream]; len(own) == int(p.Tokens) {
		x.of[p.Stream] = append(own, answer...)
	}
}

// The server is the simulator's replica: the turns of a simulated run, sent to it at the times at which they arrived there,
// have their first and last tokens at the same times and hit as much, with evictions and preemptions.
func TestServerIsTheSimulatorsReplica(t *testing.T) {
	for _, async := range []bool{true, false} {
		memnet.Bubble(t, func(t *testing.T) {
			cfg := small(t)
			cfg.Blocks, cfg.Engine.Async, cfg.Engine.MaxBatchedTokens, cfg.Engine.MaxNumSeqs = 900, async, 2048, 256
			if err := cfg.finish(); err != nil {
				t.Fatal(err)
			}
			tr, err := traces.Generate("bench", 1, traces.Params{
				"sessions": traces.Num(40), "turns": traces.Num(4), "input_tokens": traces.Num(900), "output_tokens": traces.Num(80), "gap_s": traces.Num(0.5),
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range tr.Sessions { // no two turns arrive at the same moment, which would be a matter of luck here
				for j := range tr.Sessions[i].Deps {
					tr.Sessions[i].Deps[j].DelayNS += int64(i+1) * 10_007
				}
			}
			rows, totals := simulate(t, cfg, tr)
			r := newRig(t, cfg)
			defer r.close()
			time.Sleep(time.Hour) // times are those of the engine, whenever the server started
			start := time.Now()
			x := &texts{tree: tr.Tree, of: map[prefix.StreamID][]uint32{}}
			var all sync.WaitGroup
			hits := int32(0)
			for si := range tr.Sessions {
				all.Go(func() {
					for ti := range tr.Sessions[si].Turns {
						turn := &tr.Sessions[si].Turns[ti]
						row := rows[[2]int32{int32(si), turn.Number}]
						time.Sleep(time.Until(start.Add(time.Duration(row.ArrivalPS / 1000))))
						q := newRequest(&r.server.cfg, work{prompt: x.prompt(turn.Prompt), maxTokens: turn.OutputTokens, ignoreEOS: true})
						c := r.server.engine()
						c.submit(q)
						first := time.Duration(0)
						for done := false; !done; _, _, done, _ = c.progress(q) {
							<-q.news
							if first == 0 {
								first = time.Since(start)
							}
						}
						var answer []uint32
						for i := range q.produced {
							answer = append(answer, q.output(i))
						}
						x.said(turn.Prompt, answer)
						if d := first - time.Duration(row.FirstTokenPS/1000); d < -1000 || d > 1000 {
							t.Errorf("async %v, session %d turn %d: first token %v from the simulator's", async, si, turn.Number, d)
						}
						if d := time.Since(start) - time.Duration(row.DonePS/1000); d < -1000 || d > 1000 {
							t.Errorf("async %v, session %d turn %d: end %v from the simulator's", async, si, turn.Number, d)
						}
						if q.cached != row.HitGPU || q.preempted != row.Preemptions {
							t.Errorf("async %v, session %d turn %d: %d tokens cached and %d preemptions, simulator %d and %d", async, si, turn.Number, q.cached, q.preempted, row.HitGPU, row.Preemptions)
						}
						c.mu.Lock()
						hits += q.cached
						c.mu.Unlock()
					}
				})
			}
			all.Wait()
			t.Logf("async %v: %d turns, %d tokens cached, %d preemptions, %d engine steps in the simulator", async, len(rows), hits, totals.Preemptions, totals.Steps)
			if hits == 0 || totals.Preemptions == 0 {
				t.Error("the run has no hits or no preemptions, and so tests little")
			}
		})
	}
}
