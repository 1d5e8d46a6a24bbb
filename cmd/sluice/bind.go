package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
	"github.com/sluice-sim/sluice/sim"
	"github.com/sluice-sim/sluice/traces"
)

// workload is the sessions that all arms with the same workload share. It is only read.
type workload struct {
	source      traces.Source // before turns over an arm's context limit are dropped
	large       bool          // its sessions are not held in memory
	traceDigest string
}

// loadWorkload imports or generates the sessions of a scenario.
func loadWorkload(ctx context.Context, sc *scenarios.Scenario) (*workload, error) {
	src, err := openWorkload(sc)
	if err != nil {
		return nil, badInput(err)
	}
	large := src.About().Turns > heldTurns
	if large {
		spareMemory()
	} else if src, err = traces.Hold(src); err != nil {
		return nil, badInput(err)
	}
	digest, err := traces.Digest(src)
	if err != nil {
		return nil, badInput(err)
	}
	return &workload{source: src, large: large, traceDigest: digest}, ctx.Err()
}

// spareMemory has garbage collected when there is half as much of it as is live, not as much, unless the environment says
// how much. Of a large workload little is live for long but tables without pointers, so that costs next to nothing.
func spareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// heldTurns is up to how many turns a workload is kept in memory, about 25 MB. The sessions of a larger one are made or
// read again whenever they are needed; the results are the same.
const heldTurns = 250_000

func openWorkload(sc *scenarios.Scenario) (traces.Source, error) {
	if sc.Workload.Source == "generate" {
		return traces.GenerateSource(sc.Workload.Generate.Name, uint64(sc.Seed), sc.Workload.Generate.Generator())
	}
	t := &sc.Workload.Trace
	src, err := traces.OpenSource(sc.Path("workload.trace.path"), t.Format, traces.Options{
		IdleCapNS: rounded(t.IdleCapS * 1e9), SharedPrefix: traces.SharedPrefix(t.SharedPrefix),
		OutputReuse: traces.OutputReuse(t.OutputReuse), Models: traces.ModelChoice(t.Models),
	})
	if err == nil && t.Sessions > 0 {
		src, err = traces.HeadOf(src, int(t.Sessions))
	}
	return src, err
}

// runArm simulates one scenario over its workload.
func runArm(ctx context.Context, sc *scenarios.Scenario, w *workload, mode modeFlags, sink results.Sink, progress func(done, total int64)) (*results.Totals, error) {
	cfg, err := bind(sc, w)
	if err != nil {
		return nil, badInput(err)
	}
	cfg.Progress = progress
	cfg.Check, cfg.Walk, cfg.ReferencePool = mode.check, mode.walk, mode.reference
	if mode.log != nil {
		logDecisions(cfg, mode.log)
	}
	totals, err := sim.Run(ctx, cfg, sink)
	if w.large {
		debug.FreeOSMemory() // the state of the simulation makes room for what the summary sorts
	}
	var in *sim.InputError
	if errors.As(err, &in) {
		err = badInput(err)
	}
	return totals, err
}

// infiniteBlocks is the KV of a replica with an infinite cache: more than any run that this machine can hold fills.
const infiniteBlocks = 1 << 30

// bind turns a scenario into a run.
func bind(sc *scenarios.Scenario, w *workload) (*sim.Config, error) {
	setup, err := deployment(sc)
	if err != nil {
		return nil, err
	}
	law, err := latency.New(setup)
	if err != nil {
		return nil, sc.Problem("cluster.gpu", err.Error())
	}
	blocks, err := kvBlocks(sc, setup)
	if err != nil {
		return nil, err
	}
	e := engineConfig(sc, setup, law)
	cfg := &sim.Config{
		Seed: uint64(sc.Seed), Open: sc.Replay == "open",
		Arrivals: arrivals(sc), ClassShares: sc.Arrivals.ClassShares,
		Clients: sim.Clients{
			TimeoutPS: rounded(sc.Clients.TimeoutS * 1e12), Retries: int32(sc.Clients.Retries),
			RetryDelayPS: rounded(sc.Clients.RetryDelayS * 1e12), CancelUpstream: sc.Clients.CancelUpstream,
		},
		Signals: sim.Signals{
			ScrapePS: rounded(sc.Signals.ScrapeS * 1e12), ScrapeDelayPS: rounded(sc.Signals.ScrapeDelayS * 1e12),
			ScrapeJitterPS: rounded(sc.Signals.ScrapeJitterS * 1e12), ScrapeLoss: sc.Signals.ScrapeLoss, NoProbes: sc.Signals.Probes == "unsupported",
			ProbeIPCPS:     rounded(sc.Signals.ProbeIPCS * 1e12),
			ProbeTimeoutPS: rounded(sc.Signals.ProbeTimeoutS * 1e12), KVEventDelayPS: rounded(sc.Signals.KVEventDelayS * 1e12),
		},
		Faults: faults(sc), Routers: int(sc.Cluster.Routers),
		Replicas: int(sc.Cluster.Replicas), GPUsPerReplica: int(sc.Cluster.TensorParallel),
		KVBlocks: blocks, Law: law, IntervalPS: rounded(sc.Output.IntervalS * 1e12), MaxSamples: 5000,
		IdleLatency: sc.SLO != (scenarios.SLO{}),
	}
	if cfg.CPUTier, err = cpuTier(sc, setup); err != nil {
		return nil, err
	}
	if cfg.MaxModelLen, err = maxModelLen(sc, blocks); err != nil {
		return nil, err
	}
	e.MaxModelLen = cfg.MaxModelLen
	cfg.Engine = e
	context := cfg.MaxModelLen
	if n := sc.Workload.Trace.MaxContext; sc.Workload.Source == "trace" && n > 0 && n < int64(context) {
		context = int32(n)
	}
	if cfg.Source, err = traces.DropOver(w.source, context); err != nil {
		return nil, err
	}
	if cfg.Source.About().Sessions == 0 {
		return nil, sc.Problem("workload", fmt.Sprintf("no session is left: every turn is above the context limit of %d tokens", context))
	}
	cfg.Capability = policies.Capability{
		KVTokens: int64(blocks) * int64(e.BlockTokens), BlockTokens: e.BlockTokens, PrefillTokensPerSec: law.PrefillRate(8192),
		AttentionDoubling: law.AttentionDoubling(), MaxBatchedTokens: e.MaxBatchedTokens,
	}
	if cfg.Gate, err = catalog.FindGate(sc.Policy.Gate.Name); err != nil {
		return nil, sc.Problem("policy.gate", err.Error())
	}
	if cfg.Router, err = catalog.FindRouter(sc.Policy.Router.Name); err != nil {
		return nil, sc.Problem("policy.router", err.Error())
	}
	if cfg.Retention, err = catalog.FindRetention(sc.Policy.Retention.Name); err != nil {
		return nil, sc.Problem("policy.retention", err.Error())
	}
	cfg.GateParams, cfg.RouterParams, cfg.RetentionParams = sc.Policy.Gate.Params, sc.Policy.Router.Params, sc.Policy.Retention.Params
	return cfg, nil
}

// deployment finds the cards that a scenario names.
func deployment(sc *scenarios.Scenario) (s latency.Setup, err error) {
	c := &sc.Cluster
	if isFile(c.Model) {
		s.Model, err = latency.LoadModelCard(sc.Path("cluster.model"))
	} else {
		s.Model, err = latency.FindModel(c.Model)
	}
	if err != nil {
		return s, sc.Problem("cluster.model", err.Error())
	}
	if isFile(c.GPU) {
		s.GPU, err = latency.LoadGPUCard(sc.Path("cluster.gpu"))
	} else {
		s.GPU, err = latency.FindGPU(c.GPU)
	}
	if err != nil {
		return s, sc.Problem("cluster.gpu", err.Error())
	}
	if s.Calibration, err = latency.FindCalibration(c.Calibration); err != nil {
		return s, sc.Problem("cluster.calibration", err.Error())
	}
	s.TensorParallel = int(c.TensorParallel)
	s.WeightDType, s.MoEDType = unlessAuto(c.WeightDtype), unlessAuto(c.MoEDtype)
	if d := unlessAuto(c.Engine.KVCacheDtype); d != "bfloat16" {
		s.KVDType = d
	}
	return s, nil
}

// isFile tells a path from the name of a card.
func isFile(card string) bool {
	return strings.HasSuffix(card, ".json") || strings.ContainsAny(card, `/\`)
}

func unlessAuto(dtype string) string {
	if dtype == "auto" {
		return ""
	}
	return dtype
}

// kvBlocks is the number of usable blocks of a replica: given, or what the memory leaves. vLLM counts its null block in
// num_gpu_blocks; nothing can be stored there.
func kvBlocks(sc *scenarios.Scenario, s latency.Setup) (int32, error) {
	e := &sc.Cluster.Engine
	n, key := int64(0), "cluster.engine.num_gpu_blocks_override"
	switch {
	case sc.Cluster.InfiniteCache:
		return infiniteBlocks, nil
	case e.NumGPUBlocksOverride > 0:
		n = e.NumGPUBlocksOverride
	default:
		report, err := latency.Capacity(s, latency.CapacityOptions{
			MemoryUtilization: e.GPUMemoryUtilization, OverheadBytes: rounded(sc.Cluster.OverheadGiB * (1 << 30)), BlockTokens: int(e.BlockSize),
		})
		n, key = report.NumGPUBlocks, "cluster.engine.gpu_memory_utilization"
		if e.KVCacheMemoryBytes > 0 {
			if report.BlockBytes == 0 {
				return 0, sc.Problem("cluster.engine.kv_cache_memory_bytes", err.Error())
			}
			n, key, err = e.KVCacheMemoryBytes/report.BlockBytes, "cluster.engine.kv_cache_memory_bytes", nil
		}
		if err != nil {
			return 0, sc.Problem(key, err.Error())
		}
	}
	if n < 2 || n > infiniteBlocks {
		return 0, sc.Problem(key, fmt.Sprintf("that is %d KV blocks; a replica needs 2 to %d", n, infiniteBlocks))
	}
	return int32(n - 1), nil
}

// cpuTier is the host memory behind each replica, nil for none. Its size is over all GPUs of the replica, which each hold
// their share of every block.
func cpuTier(sc *scenarios.Scenario, s latency.Setup) (*sim.CPUTier, error) {
	t := &sc.Cluster.CPUTier
	if t.GiB == 0 {
		return nil, nil
	}
	tokenBytes, err := s.Model.KVBytes(kvDtype(s), s.TensorParallel)
	if err != nil {
		return nil, sc.Problem("cluster.cpu_tier.gib", err.Error())
	}
	c := &sim.CPUTier{BlockBytes: tokenBytes * sc.Cluster.Engine.BlockSize, Link: s.GPU.HostLink(), Layers: s.Model.Layers}
	chunks := rounded(t.GiB*(1<<30)) / (c.BlockBytes * t.BlocksPerChunk * int64(s.TensorParallel))
	if chunks < 1 || chunks > infiniteBlocks {
		return nil, sc.Problem("cluster.cpu_tier.gib", fmt.Sprintf("that is %d chunks of %d blocks; the CPU tier needs 1 to %d", chunks, t.BlocksPerChunk, infiniteBlocks))
	}
	c.Chunks, c.BlocksPerChunk = int32(chunks), int32(t.BlocksPerChunk)
	c.ARC, c.StoreThreshold, c.PromptOnly = t.Eviction == "arc", int32(t.StoreThreshold), t.PromptOnly
	c.Overlap = map[string]latency.Overlap{"asynchronous": latency.Asynchronous, "blocking": latency.Blocking, "layer-wise": latency.LayerWise}[t.Overlap]
	return c, nil
}

func kvDtype(s latency.Setup) string {
	if s.KVDType == "" {
		return "bf16"
	}
	return s.KVDType
}

// maxModelLen is the longest prompt and output together that a replica takes; vLLM does not start when that does not fit
// in the KV cache.
func maxModelLen(sc *scenarios.Scenario, blocks int32) (int32, error) {
	tokens := min(int64(blocks)*sc.Cluster.Engine.BlockSize, math.MaxInt32/2)
	n := sc.Cluster.Engine.MaxModelLen
	if n == 0 {
		return int32(tokens), nil
	}
	if n > tokens {
		return 0, sc.Problem("cluster.engine.max_model_len", fmt.Sprintf("%d tokens do not fit in the KV cache of a replica, %d tokens; lower it, or give the replicas more KV", n, tokens))
	}
	return int32(n), nil
}

func engineConfig(sc *scenarios.Scenario, s latency.Setup, law *latency.Law) engine.Config {
	e := &sc.Cluster.Engine
	c := engine.Config{
		BlockTokens: int32(e.BlockSize), MaxNumSeqs: int32(e.MaxNumSeqs), MaxBatchedTokens: int32(e.MaxNumBatchedTokens),
		LongPrefillTokens: int32(e.LongPrefillThreshold), ChunkedPrefill: e.EnableChunkedPrefill, PrefixCaching: e.EnablePrefixCaching,
		ReserveFullISL: e.SchedulerReserveFullISL, Watermark: e.Watermark, Priority: e.SchedulingPolicy == "priority",
		Async: e.AsyncScheduling, SkipBlocked: e.SkipBlockedRequests, SlidingWindowTokens: law.Window(),
	}
	if c.MaxBatchedTokens == 0 {
		c.MaxBatchedTokens = int32(s.GPU.DefaultMaxBatchedTokens())
	}
	if c.MaxNumSeqs == 0 {
		c.MaxNumSeqs = min(int32(s.GPU.DefaultMaxSeqs()), c.MaxBatchedTokens)
	}
	return c
}

func arrivals(sc *scenarios.Scenario) sim.Arrivals {
	a := &sc.Arrivals
	processes := map[string]sim.Process{
		"poisson": sim.Poisson, "uniform": sim.Uniform, "recorded": sim.Recorded, "concurrent": sim.Concurrent,
		"burst": sim.Burst, "rollout": sim.Rollout,
	}
	return sim.Arrivals{
		Process: processes[a.Process], RatePerS: a.RatePerS, Speedup: a.Speedup, Sessions: int(a.Sessions),
		Prompts: int(a.Prompts), Samples: int(a.Samples), Shuffle: a.Shuffle,
	}
}

// rounded is a float of a scenario as an integer; the scenario's ranges keep it inside int64.
func rounded(x float64) int64 {
	v, _ := exact.RoundToInt64(x)
	return v
}

func faults(sc *scenarios.Scenario) []sim.Fault {
	kinds := map[string]sim.FaultKind{
		"replica_down": sim.ReplicaDown, "replica_restart": sim.ReplicaRestart, "replica_join": sim.ReplicaJoin,
		"replica_drain": sim.ReplicaDrain, "slow_replica": sim.SlowReplica, "error_burst": sim.ErrorBurst,
		"scrape_stall": sim.ScrapeStall, "stale_counters": sim.StaleCounters, "lost_release": sim.LostRelease,
		"client_disconnect": sim.ClientDisconnect,
	}
	releases := map[string]sim.ReleaseKind{"all": sim.AnyRelease, "cancelled": sim.CancelledRelease}
	var out []sim.Fault
	for i := range sc.Faults {
		f := &sc.Faults[i]
		out = append(out, sim.Fault{
			Kind: kinds[f.Kind], AtPS: rounded(f.AtS * 1e12), ForPS: rounded(f.ForS * 1e12), Replica: int32(f.Replica),
			DetectPS: rounded(f.DetectS * 1e12), Factor: f.Factor, Share: f.Share, Count: f.Count,
			Releases: releases[f.Releases], AfterPS: rounded(f.AfterS * 1e12),
		})
	}
	return out
}
