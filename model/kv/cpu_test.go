package kv

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// cpuOps is a recorded file of calls of vLLM's CPUOffloadingManager.
type cpuOps struct {
	Format string     `json:"format"`
	Traces []cpuTrace `json:"traces"`
}

type cpuTrace struct {
	Seed           int                 `json:"seed"`
	Policy         string              `json:"policy"`
	Blocks         int32               `json:"num_blocks"`
	StoreThreshold int32               `json:"store_threshold"`
	Ops            [][]json.RawMessage `json:"ops"`
}

func loadCPUOps(t *testing.T, path string) []cpuTrace {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f cpuOps
	if err := json.Unmarshal(raw, &f); err != nil || f.Format != "vllm-golden-cpuops/1" {
		t.Fatalf("%s: format %q, %v", path, f.Format, err)
	}
	return f.Traces
}

// decode reads a recorded value.
func decode[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

// replayCPUOps drives a tier with a trace and returns the first difference, or nothing.
func replayCPUOps(t *testing.T, tr cpuTrace) string {
	t.Helper()
	tier := NewCPUTier(CPUConfig{Chunks: tr.Blocks, ARC: tr.Policy == "arc", StoreThreshold: tr.StoreThreshold})
	for n, op := range tr.Ops {
		what := decode[string](t, op[0])
		rest := op[1:]
		var keys []ChunkKey
		if what != "reset_cache" {
			keys = decode[[]ChunkKey](t, rest[0])
			rest = rest[1:]
		}
		tier.Evicted, tier.EvictedKeys = tier.Evicted[:0], tier.EvictedKeys[:0]
		got, took, events := "", 0, [][2]any{}
		switch what {
		case "lookup":
			for _, k := range keys {
				got += string("MPHH"[tier.Lookup(k)])
			}
			got, took = fmt.Sprintf("%q", got), 1
		case "prepare_store":
			which, slots, ok := tier.PrepareStore(keys, nil, nil)
			stored := make([]ChunkKey, len(which))
			for i, w := range which {
				stored[i] = keys[w]
			}
			if took = 1; !ok {
				got = "null"
				break
			}
			got = text(map[string]any{"store": stored, "blocks": append([]int32{}, slots...), "evicted": append([]ChunkKey{}, tier.EvictedKeys...)})
			if len(tier.EvictedKeys) > 0 {
				events = append(events, [2]any{1, slices.Clone(tier.EvictedKeys)})
			}
		case "complete_store":
			ok := decode[bool](t, rest[0])
			rest = rest[1:]
			var stored []ChunkKey
			for _, k := range keys {
				if i := tier.held(k); ok && i != nowhere && tier.entries[i].ref == storing {
					stored = append(stored, k)
				}
			}
			tier.CompleteStore(keys, ok)
			if len(stored) > 0 {
				events = append(events, [2]any{0, stored})
			}
		case "touch":
			tier.Touch(keys)
		case "prepare_load":
			got, took = text(tier.PrepareLoad(keys, nil)), 1
		case "complete_load":
			tier.CompleteLoad(keys)
		case "reset_cache":
			tier.Reset()
		default:
			t.Fatalf("operation %d is %q", n, what)
		}
		if took > 0 {
			if want := same(t, rest[0]); want != same(t, json.RawMessage(got)) {
				return fmt.Sprintf("operation %d %s %v: got %s, expected %s", n, what, keys, got, want)
			}
		}
		seen := false
		for _, raw := range rest[took:] {
			m := decode[map[string]json.RawMessage](t, raw)
			if e, ok := m["events"]; ok {
				seen = true
				if want := same(t, e); want != same(t, json.RawMessage(text(events))) {
					return fmt.Sprintf("operation %d %s %v: events %s, expected %s", n, what, keys, text(events), want)
				}
				continue
			}
			state := map[string]int32{"free": tier.Free(), "evictable": tier.Evictable(), "write_pending": tier.Pending()}
			if want := same(t, raw); want != text(state) {
				return fmt.Sprintf("operation %d %s %v: state %s, expected %s", n, what, keys, text(state), want)
			}
		}
		if !seen && len(events) > 0 {
			return fmt.Sprintf("operation %d %s %v: events %s, expected none", n, what, keys, text(events))
		}
	}
	return ""
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// same is a canonical form of a JSON value.
func same(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	return text(decode[any](t, raw))
}

// TestCPUTierGolden replays calls recorded from vLLM: traces 1, 4, 7 and 8 from testdata, all of them where the whole
// set stands beside the repository.
func TestCPUTierGolden(t *testing.T) {
	replay := func(t *testing.T, path string, traces, ops int) {
		n := 0
		all := loadCPUOps(t, path)
		for _, tr := range all {
			n += len(tr.Ops)
			if d := replayCPUOps(t, tr); d != "" {
				t.Errorf("trace %d (%s, %d chunks, threshold %d): %s", tr.Seed, tr.Policy, tr.Blocks, tr.StoreThreshold, d)
			}
		}
		if len(all) != traces || n != ops {
			t.Errorf("%d traces with %d operations, expected %d with %d", len(all), n, traces, ops)
		}
	}
	t.Run("testdata", func(t *testing.T) { replay(t, filepath.Join("testdata", "cpu-ops.json"), 4, 1401) })
	t.Run("shared", func(t *testing.T) {
		path := filepath.Join("..", "..", "..", "shared", "vllm-golden", "u02-cpu-manager-ops.json")
		if _, err := os.Stat(path); err != nil {
			t.Skip("the whole set of vLLM goldens is not beside the repository")
		}
		replay(t, path, 8, 3785)
	})
}
