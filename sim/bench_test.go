package sim

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// realTrace is the recorded sessions beside the repository; the benchmark says so when they are absent.
func realTrace(b *testing.B, maxContext int32) *traces.Trace {
	b.Helper()
	dir := filepath.Join(cmp.Or(os.Getenv("SLUICE_SHARED"), filepath.Join("..", "..", "shared")), "traces", "kv-cache-tester")
	if _, err := os.Stat(dir); err != nil {
		b.Skip("the recorded sessions are not beside the repository")
	}
	tr, err := traces.Open(dir, traces.FormatAuto, traces.Options{IdleCapNS: 60e9, SharedPrefix: traces.SharedAuto})
	if err != nil {
		b.Fatal(err)
	}
	return traces.DropOverContext(tr, maxContext)
}

// claudeCode is the cluster of the README's example: Qwen3-Coder-30B-A3B on pairs of H100.
func claudeCode(b *testing.B, tr *traces.Trace, replicas int, ratePerS float64, router string) *Config {
	b.Helper()
	m, err := latency.FindModel("qwen3-coder-30b-a3b")
	if err != nil {
		b.Fatal(err)
	}
	g, err := latency.FindGPU("h100")
	if err != nil {
		b.Fatal(err)
	}
	setup := latency.Setup{Model: m, GPU: g, TensorParallel: 2}
	law, err := latency.New(setup)
	if err != nil {
		b.Fatal(err)
	}
	memory, err := latency.Capacity(setup, latency.DefaultCapacityOptions())
	if err != nil {
		b.Fatal(err)
	}
	c := world(b, tr, "none", router)
	c.Law, c.Replicas, c.GPUsPerReplica, c.Check = law, replicas, 2, false
	c.KVBlocks = int32(memory.NumGPUBlocks - 1)
	c.Arrivals = Arrivals{Process: Poisson, RatePerS: ratePerS, Shuffle: true}
	c.Capability = policies.Capability{
		KVTokens: memory.Tokens(), BlockTokens: 16, PrefillTokensPerSec: law.PrefillRate(8192), AttentionDoubling: law.AttentionDoubling(), MaxBatchedTokens: 8192,
	}
	return c
}

// BenchmarkRealTrace is the whole run after loading, result folder included, on the recorded Claude Code sessions: ns/turn
// with a light load (hit rate near the ceiling), ns/step under thrash.
func BenchmarkRealTrace(b *testing.B) {
	tr := realTrace(b, 524_288)
	for _, x := range []struct {
		replicas int
		rate     float64
		router   string
	}{{8, 0.02, "sticky"}, {32, 0.08, "sticky"}, {8, 0.05, "sticky"}, {8, 0.1, "round-robin"}, {8, 0.05, "lmetric"}} {
		b.Run(fmt.Sprintf("replicas=%d/rate=%v/%s", x.replicas, x.rate, x.router), func(b *testing.B) {
			c := claudeCode(b, tr, x.replicas, x.rate, x.router)
			dir := b.TempDir()
			var steps, turns int64
			var hit float64
			for n := 0; b.Loop(); n++ {
				w, err := results.Create(filepath.Join(dir, fmt.Sprint(n)), results.Info{Run: "bench", Arm: x.router, Mode: results.ModeClosed, Seed: 1}, results.Options{})
				if err != nil {
					b.Fatal(err)
				}
				totals, err := Run(context.Background(), c, w)
				if err != nil {
					b.Fatal(err)
				}
				summary, err := w.Finish(totals)
				if err != nil {
					b.Fatal(err)
				}
				if h, err := summary.Metric("hit_rate"); err == nil && h != nil {
					hit = *h
				}
				steps, turns = totals.Steps, int64(tr.Turns())
			}
			ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(ns/float64(turns), "ns/turn")
			b.ReportMetric(ns/float64(steps), "ns/step")
			b.ReportMetric(hit, "hit")
		})
	}
}
