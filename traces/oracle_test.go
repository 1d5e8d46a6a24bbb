package traces

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"testing"
)

// oracleDist is a Dist under the oracle's names; an absent one is {}.
func oracleDist(d *Dist) map[string]any {
	if d == nil {
		return map[string]any{}
	}
	m := map[string]any{"n": d.N, "min": d.Min, "p50": d.P50, "p90": d.P90, "p99": d.P99, "max": d.Max}
	if d.Mean != nil {
		m["mean"], m["sum"] = *d.Mean, *d.Sum
	}
	return m
}

func oracleCounts(c []Count) map[string]any {
	m := map[string]any{}
	for _, x := range c {
		m[x.Value] = x.N
	}
	return m
}

func oracleCache(c *CacheStats) map[string]any {
	return map[string]any{
		"any_hit_blocks": c.AnyHitBlocks, "blocks": c.Blocks, "cross": c.Cross, "hit_tokens": c.HitTokens,
		"ideal_block_hit": *c.BlockHit, "ideal_token_hit": *c.TokenHit, "in_tokens": c.InputTokens, "intra": c.Intra,
		"intra_share": *c.IntraShare, "prefix_hit_blocks": c.PrefixHitBlocks, "reuse_interval_s": oracleDist(c.ReuseInterval),
		"unique_blocks": c.UniqueBlocks, "vllm_hit_blocks": c.VLLMHitBlocks,
	}
}

func oracleKV(s *Stats) map[string]any {
	return map[string]any{
		"api_s": oracleDist(s.ServiceTime), "brk": s.Breaks, "cache": oracleCache(s.Cache), "compact": s.Halved,
		"duration_s": oracleDist(s.Duration), "ext": s.Extends, "final_in": oracleDist(s.FinalInput),
		"first_in": oracleDist(s.FirstInput), "gap_s": oracleDist(s.Gap), "idle_s": oracleDist(s.Idle),
		"in_tok": oracleDist(s.InputTokens), "lastblk": s.LastBlock, "lcp0": s.Unrelated, "max_overlap": s.MaxOverlap,
		"models": oracleCounts(s.Models), "no_api": s.NoService, "no_think": s.NoThink, "out0": s.OutputZero,
		"out_tok": oracleDist(s.OutputTokens), "pairs": s.Steps, "per_trace_token_hit": oracleDist(s.FileTokenHit),
		"requests": s.Requests, "sequences": s.Sequences, "stops": oracleCounts(s.Stops), "subagents": s.Subagents,
		"system_tokens": oracleDist(s.SystemTokens), "think_s": oracleDist(s.Think), "tool_tokens": oracleDist(s.ToolTokens),
		"traces": s.Sessions, "traces_with_overlap": s.Overlapping, "ttft_s": oracleDist(s.TTFT),
		"turns_main": oracleDist(s.TurnsPerSession), "turns_sub": oracleDist(s.TurnsPerSubagent), "types": oracleCounts(s.Types),
	}
}

func oracleMooncake(s *Stats) map[string]any {
	return map[string]any{
		"cache": oracleCache(s.Cache), "derived_multi": s.MultiTurn, "derived_sessions": s.Sessions, "file": s.Name,
		"gap_s": oracleDist(s.Gap), "in_tok": oracleDist(s.InputTokens), "max_per_60s": s.MaxPerMinute, "out0": s.OutputZero,
		"out1": s.OutputOne, "out_tok": oracleDist(s.OutputTokens), "rate": *s.Rate, "req_with_parent": s.WithParent,
		"requests": s.Requests, "span_s": *s.Span, "t_first": *s.FirstTime, "t_last": *s.LastTime,
		"turns": oracleDist(s.TurnsPerSession),
	}
}

// compareOracle reports every field that is missing, surplus or different: integers exactly, floats to 1e-9.
func compareOracle(t *testing.T, path string, got, want any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: got %v, want an object", path, got)
			return
		}
		keys := make([]string, 0, len(w))
		for k := range w {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			if _, ok := g[k]; !ok {
				t.Errorf("%s.%s: missing", path, k)
				continue
			}
			compareOracle(t, path+"."+k, g[k], w[k])
		}
		for k := range g {
			if _, ok := w[k]; !ok {
				t.Errorf("%s.%s: not in the oracle", path, k)
			}
		}
	case json.Number:
		switch g := got.(type) {
		case int64:
			if w.String() != strconv.FormatInt(g, 10) {
				t.Errorf("%s: got %d, want %s", path, g, w)
			}
		case float64:
			f, err := w.Float64()
			if err != nil || math.Abs(g-f) > 1e-9*math.Max(math.Abs(f), 1e-300) {
				t.Errorf("%s: got %.12g, want %s", path, g, w)
			}
		default:
			t.Errorf("%s: got %T", path, got)
		}
	default:
		if got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

func readOracles(t *testing.T) map[string]any {
	t.Helper()
	f, err := os.Open(sharedTraces(t, "oracles.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestStatsReproduceTheOracles(t *testing.T) {
	oracles := readOracles(t)
	for _, n := range []string{"0001", "0010", "0026", "0295"} {
		files, err := filepath.Glob(filepath.Join(sharedTraces(t, "kv-cache-tester/traces"), "trace_"+n+".json*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		s, err := StatsKVCacheTester(files[0], Limits{})
		if err != nil {
			t.Fatal(err)
		}
		compareOracle(t, "kv_trace_"+n, oracleKV(s), oracles["kv_trace_"+n])
	}
	for key, file := range map[string]string{"mc_conv": "conversation_trace.jsonl", "mc_syn": "synthetic_trace.jsonl"} {
		s, err := StatsMooncake(sharedTraces(t, "mooncake/FAST25-release/traces/"+file), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		compareOracle(t, key, oracleMooncake(s), oracles[key])
	}
}

func TestStatsReproduceTheOraclesOfTheWholeFolder(t *testing.T) {
	oracles := readOracles(t)
	s, err := StatsKVCacheTester(sharedTraces(t, "kv-cache-tester/traces"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	compareOracle(t, "kv", oracleKV(s), oracles["kv"])

	f, err := os.Open(sharedTraces(t, "kv-cache-tester/per_trace.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows)-1 != len(s.Files) {
		t.Fatalf("%d files, want %d", len(s.Files), len(rows)-1)
	}
	for i, row := range rows[1:] {
		g := s.Files[i]
		got := fmt.Sprint([]any{g.Name, g.MainRequests, g.Subagents, g.SubRequests, g.InputTokens, g.OutputTokens, g.Blocks,
			g.PrefixHitBlocks, g.UniqueBlocks, g.Steps, g.Extends, g.LastBlock, g.Breaks, g.NoService, g.OutputZero,
			strconv.FormatFloat(g.LastMain, 'f', 1, 64)})
		if want := fmt.Sprint(row); got != want {
			t.Errorf("row %d: got %s\nwant %s", i+1, got, want)
		}
	}
}
