package kv

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
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
	tier := NewReferenceCPUTier(CPUConfig{Chunks: tr.Blocks, ARC: tr.Policy == "arc", StoreThreshold: tr.StoreThreshold})
	for n, op := range tr.Ops {
		what := decode[string](t, op[0])
		rest := op[1:]
		var keys []ChunkKey
		if what != "reset_cache" {
			keys = decode[[]ChunkKey](t, rest[0])
			rest = rest[1:]
		}
		tier.ClearEvicted()
		got, took, events := "", 0, [][2]any{}
		switch what {
		case "lookup":
			for _, k := range keys {
				got += string("MPHH"[tier.lookup(k)])
			}
			got, took = fmt.Sprintf("%q", got), 1
		case "prepare_store":
			which, slots, ok := tier.prepareStore(keys, nil, nil)
			stored := make([]ChunkKey, len(which))
			for i, w := range which {
				stored[i] = keys[w]
			}
			if took = 1; !ok {
				got = "null"
				break
			}
			got = text(map[string]any{"store": stored, "blocks": append([]int32{}, slots...), "evicted": append([]ChunkKey{}, evictedKeys(tier.Evicted())...)})
			if len(tier.Evicted()) > 0 {
				events = append(events, [2]any{1, evictedKeys(tier.Evicted())})
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
			tier.completeStore(keys, ok)
			if len(stored) > 0 {
				events = append(events, [2]any{0, stored})
			}
		case "touch":
			tier.touch(keys)
		case "prepare_load":
			got, took = text(tier.prepareLoad(keys, nil)), 1
		case "complete_load":
			tier.completeLoad(keys)
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
		path := filepath.Join(cmp.Or(os.Getenv("SLUICE_SHARED"), "../../../shared"), "vllm-golden", "u02-cpu-manager-ops.json")
		if _, err := os.Stat(path); err != nil {
			t.Skip("the whole set of vLLM goldens is not beside the repository")
		}
		replay(t, path, 8, 3785)
	})
}

// TestLookupCounts holds the counts behind a store threshold against the obvious ones: a list of keys, the one looked
// up longest ago first.
func TestLookupCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		c := lookupCounts{index: newChunkIndex(), order: cpuList{nowhere, nowhere, 0}, limit: limit}
		var order []ChunkKey
		counts := map[ChunkKey]int32{}
		for range 200 {
			k := Chunk(prefix.StreamID(rapid.Int32Range(0, 3).Draw(t, "stream")), rapid.Int32Range(0, 4).Draw(t, "block"))
			if i := slices.Index(order, k); i >= 0 {
				order = slices.Delete(order, i, i+1)
			} else if len(order) == limit {
				delete(counts, order[0])
				order = order[1:]
			}
			order = append(order, k)
			counts[k]++
			c.add(k)
			for s := range prefix.StreamID(4) {
				for b := range int32(5) {
					if got, want := c.get(Chunk(s, b)), counts[Chunk(s, b)]; got != want {
						t.Fatalf("stream %d block %d: count %d, expected %d", s, b, got, want)
					}
				}
			}
		}
	})
}

// TestChunkIndex holds the index against a map, with keys that lie close together as those of streams do.
func TestChunkIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newChunkIndex()
		truth := map[ChunkKey]int32{}
		for i := range int32(400) {
			k := Chunk(prefix.StreamID(rapid.Int32Range(0, 40).Draw(t, "stream")), rapid.Int32Range(0, 3).Draw(t, "block"))
			if rapid.IntRange(0, 2).Draw(t, "operation") > 0 {
				x.set(k, i)
				truth[k] = i
			} else {
				x.remove(k)
				delete(truth, k)
			}
		}
		if x.used != len(truth) {
			t.Fatalf("%d keys, expected %d", x.used, len(truth))
		}
		for s := range prefix.StreamID(41) {
			for b := range int32(4) {
				want, ok := truth[Chunk(s, b)]
				if !ok {
					want = nowhere
				}
				if got := x.get(Chunk(s, b)); got != want {
					t.Fatalf("stream %d block %d: %d, expected %d", s, b, got, want)
				}
			}
		}
	})
}

// evictedKeys lists what was evicted.
func evictedKeys(runs []EvictedRun) []ChunkKey {
	keys := []ChunkKey{}
	for _, r := range runs {
		for n := range r.Hi - r.Lo {
			if r.Up {
				keys = append(keys, Chunk(r.Stream, r.Lo+n))
			} else {
				keys = append(keys, Chunk(r.Stream, r.Hi-1-n))
			}
		}
	}
	return keys
}
