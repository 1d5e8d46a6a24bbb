package sim

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// recordings is where the recorded sessions beside the repository are; the benchmark says so when they are absent.
func recordings(b *testing.B) string {
	b.Helper()
	dir := filepath.Join(cmp.Or(os.Getenv("SLUICE_SHARED"), filepath.Join("..", "..", "shared")), "traces", "kv-cache-tester")
	if _, err := os.Stat(dir); err != nil {
		b.Skip("the recorded sessions are not beside the repository")
	}
	return dir
}

// load reads recorded sessions with an idle cap of a minute.
func load(b *testing.B, path string) *traces.Trace {
	b.Helper()
	tr, err := traces.Open(path, traces.FormatAuto, traces.Options{IdleCapNS: 60e9, SharedPrefix: traces.SharedAuto})
	if err != nil {
		b.Fatal(err)
	}
	return tr
}

func realTrace(b *testing.B, maxContext int32) *traces.Trace {
	b.Helper()
	return traces.DropOverContext(load(b, recordings(b)), maxContext)
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

// BenchmarkRealTrace is the whole run after loading, result folder included, on the recorded Claude Code sessions: the cost
// of a turn with a light load (hit rate near the ceiling), the same sessions on 8 and on 32 replicas, and four times as many at
// a time on 32; that of a step under thrash (hit rates of about 0.6, 0.3 and less).
func BenchmarkRealTrace(b *testing.B) {
	tr := realTrace(b, 524_288)
	for _, x := range []struct {
		replicas int
		rate     float64
		router   string
	}{{8, 0.02, "sticky"}, {32, 0.02, "sticky"}, {32, 0.08, "sticky"}, {8, 0.0287, "sticky"}, {8, 0.034, "sticky"}, {8, 0.1, "round-robin"}, {8, 0.05, "lmetric"}} {
		b.Run(fmt.Sprintf("replicas=%d/rate=%v/%s", x.replicas, x.rate, x.router), func(b *testing.B) {
			c := claudeCode(b, tr, x.replicas, x.rate, x.router)
			dir := b.TempDir()
			var totals *results.Totals
			var summary *results.Summary
			begin := cpuNS(b)
			for n := 0; b.Loop(); n++ {
				totals, summary = runOnce(b, c, filepath.Join(dir, fmt.Sprint(n)), results.Info{Run: "bench", Arm: x.router, Mode: results.ModeClosed, Seed: 1})
			}
			hit, err := summary.Metric("hit_rate")
			if err != nil || hit == nil {
				b.Fatal("no hit rate: ", err)
			}
			ns := float64(cpuNS(b)-begin) / float64(b.N)
			b.ReportMetric(ns/float64(tr.Turns()), "cpu-ns/turn")
			b.ReportMetric(ns/float64(totals.Steps), "cpu-ns/step")
			b.ReportMetric(float64(tr.Turns()), "turns")
			b.ReportMetric(float64(totals.Steps), "steps")
			b.ReportMetric(*hit, "hit")
		})
	}
}

// BenchmarkFiftySessions is the scenario of other tools' reports: of the recorded files in the order of their names the
// first 50 without subagents, with at least five calls and no prompt above 200,000 tokens, one every ten seconds, on eight
// replicas. It reports CPU time of one run, its reading of the 50 files apart, and the most memory that the process had.
func BenchmarkFiftySessions(b *testing.B) {
	files, err := filepath.Glob(filepath.Join(recordings(b), "traces", "*.json*"))
	if err != nil || len(files) == 0 {
		b.Fatal("no recorded files: ", err)
	}
	dir, n := b.TempDir(), 0
	for _, f := range files {
		tr := load(b, f)
		if s := &tr.Sessions[0]; n == 50 || s.Threads > 1 || len(s.Turns) < 5 || slices.ContainsFunc(s.Turns, func(t traces.Turn) bool { return t.Prompt.Tokens > 200_000 }) {
			continue
		}
		n++
		to, err := filepath.Abs(f)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(dir, filepath.Base(f))); err != nil {
			b.Fatal(err)
		}
	}
	begin := cpuNS(b)
	tr := load(b, dir)
	loaded := cpuNS(b)
	c := claudeCode(b, tr, 8, 0.1, "sticky")
	c.Arrivals.Process, c.Arrivals.Shuffle = Uniform, false
	var totals *results.Totals
	for n := 0; b.Loop(); n++ {
		totals, _ = runOnce(b, c, filepath.Join(b.TempDir(), fmt.Sprint(n)), results.Info{Run: "fifty", Arm: "sticky", Mode: results.ModeClosed, Seed: 1})
	}
	b.ReportMetric(float64(len(tr.Sessions)), "sessions")
	b.ReportMetric(float64(totals.Turns), "turns")
	b.ReportMetric(float64(loaded-begin)/1e9, "load-cpu-s")
	b.ReportMetric(float64(cpuNS(b)-loaded)/1e9/float64(b.N), "cpu-s/run")
	b.ReportMetric(peakMiB(b), "peak-MiB")
}

// runOnce runs c, with a results folder.
func runOnce(b *testing.B, c *Config, dir string, info results.Info) (*results.Totals, *results.Summary) {
	b.Helper()
	totals, summary, err := writeRun(c, dir, info)
	if err != nil {
		b.Fatal(err)
	}
	return totals, summary
}

// writeRun is a run with its results folder.
func writeRun(c *Config, dir string, info results.Info) (*results.Totals, *results.Summary, error) {
	w, err := results.Create(dir, info, results.Options{})
	if err != nil {
		return nil, nil, err
	}
	totals, err := Run(context.Background(), c, w)
	if err != nil {
		w.Abort()
		return nil, nil, err
	}
	summary, err := w.Finish(totals)
	return totals, summary, err
}
