package sim

import (
	"context"
	"fmt"
	"testing"
	"time"
	"os"
	"strconv"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

type counter struct {
	out                      map[results.Outcome]int
	reasons map[string]int
	hit, prompt, ceil, waste, computed int64
	holds, wait                int64
	over int
}

func (c *counter) Turn(t *results.Turn) error {
	c.out[t.Outcome]++
	c.reasons[t.AdmitReason]++
	c.hit += int64(t.HitGPU)
	c.prompt += int64(t.PromptTokens)
	c.ceil += int64(t.CeilingTokens)
	c.waste += int64(t.WastedTokens)
	c.computed += int64(t.ComputedTokens)
	c.holds += int64(t.GateHolds)
	if t.AdmittedPS >= 0 { c.wait += t.AdmittedPS-t.ArrivalPS }
	if t.HitGPU > t.CeilingTokens { c.over++ }
	return nil
}
func (c *counter) Session(*results.Session) error { return nil }
func (c *counter) Sample(*results.Sample) error   { return nil }

func TestScratch(t *testing.T) {
	t0 := time.Now()
	tr, err := traces.ReadKVCacheTester("../../shared/traces/kv-cache-tester/traces", traces.Options{IdleCapNS: 60e9, SharedPrefix: "auto"})
	if err != nil { t.Fatal(err) }
	fmt.Println("load", time.Since(t0), tr.Report)
	tr = traces.DropOverContext(tr, 262144)
	fmt.Println(tr.Report.Dropped, tr.Report.Notes, tr.Turns())
	t0 = time.Now()
	ceil := traces.Ceiling(tr, 16)
	fmt.Println("ceiling", time.Since(t0))
	m, _ := latency.FindModel("Qwen3-Coder-30B-A3B")
	g, _ := latency.FindGPU("H100")
	rate := 0.05
	if v := os.Getenv("RATE"); v != "" { rate, _ = strconv.ParseFloat(v, 64) }
	gates := []string{"none"}
	if v := os.Getenv("GATE"); v != "" { gates = []string{v} }
	routers := []string{"round-robin", "sticky"}
	if v := os.Getenv("ROUTER"); v != "" { routers = []string{v} }
	for _, gate := range gates {
		for _, router := range routers {
			law, err := latency.New(latency.Setup{Model: m, GPU: g, TensorParallel: 2})
			if err != nil { t.Fatal(err) }
			gd, err := catalog.FindGate(gate); if err != nil { t.Fatal(err) }
			rd, err := catalog.FindRouter(router); if err != nil { t.Fatal(err) }
			ec := engine.DefaultConfig()
			ec.MaxModelLen = 262144
			kvb := 56399
			if v := os.Getenv("KV"); v != "" { kvb, _ = strconv.Atoi(v) }
			cfg := &Config{Seed: 1, Trace: tr, Ceiling: ceil, Arrivals: Arrivals{Process: Poisson, RatePerS: rate, Shuffle: true},
				Signals: Signals{ScrapePS: 1e11, ProbeIPCPS: 5e8}, Replicas: 8, GPUsPerReplica: 2, Engine: ec, KVBlocks: int32(kvb), Law: law, MaxModelLen: 262144,
				Gate: gd, Router: rd, GateParams: gd.Resolve(policies.Params{}), RouterParams: rd.Resolve(policies.Params{}),
				Capability: policies.Capability{KVTokens: int64(kvb)*16, BlockTokens: 16, PrefillTokensPerSec: law.PrefillRate(8192), AttentionDoubling: law.AttentionDoubling(), MaxBatchedTokens: 8192},
				IntervalPS: 1e12, MaxSamples: 5000, Check: os.Getenv("CHECK") != ""}
			c := &counter{out: map[results.Outcome]int{}, reasons: map[string]int{}}
			t0 := time.Now()
			tot, err := Run(context.Background(), cfg, c)
			if err != nil { t.Fatal(err) }
			d := time.Since(t0)
			busy := int64(0); for _, b := range tot.BusyPS { busy += b }
			fmt.Printf("%s/%s: %.2fs wall; end %.0f s, steps %d (%.0f ns/step), events %d, policy %d, preempt %d busy %.2f | hit %.4f ceil %.4f waste/comp %.3f over %d holds %d waitmean %.2f %v %v causes %v\n", gate, router, d.Seconds(), float64(tot.EndPS)/1e12, tot.Steps, float64(d.Nanoseconds())/float64(tot.Steps), tot.Events, tot.PolicySteps, tot.Preemptions,
				float64(busy)/float64(tot.EndPS)/8, float64(c.hit)/float64(c.prompt), float64(c.ceil)/float64(c.prompt), float64(c.waste)/float64(c.computed), c.over, c.holds, float64(c.wait)/1e12/float64(tr.Turns()), c.out, c.reasons, tot.WasteTokens)
		}
	}
}
