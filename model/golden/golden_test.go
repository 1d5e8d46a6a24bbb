package golden

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// verifyAll replays files with both pools, those of the simple connector with the reference pool.
func verifyAll(t *testing.T, files []string) {
	t.Helper()
	for _, f := range files {
		t.Run(strings.SplitN(filepath.Base(f), ".", 2)[0], func(t *testing.T) {
			t.Parallel()
			pools := []Options{{}, {Extent: true}}
			if base := filepath.Base(f); base[0] == 's' || strings.Contains(base, "simple") {
				pools = pools[:1]
			}
			for _, opt := range pools {
				res, err := VerifyFile(f, opt)
				if err != nil {
					t.Fatal(err)
				}
				if d := res.Difference; d != nil {
					t.Errorf("%+v: step t=%d field %s:\nexpected %s\ngot      %s", opt, d.Step, d.Field, d.Expected, d.Got)
				}
				if res.Steps == 0 || res.Fields < 4*res.Steps {
					t.Errorf("%+v: only %d fields of %d steps were compared", opt, res.Fields, res.Steps)
				}
			}
		})
	}
}

func files(t *testing.T, dir string, patterns ...string) []string {
	t.Helper()
	var all []string
	for _, p := range patterns {
		m, err := filepath.Glob(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m...)
	}
	return all
}

func TestGoldens(t *testing.T) {
	all := files(t, "testdata", "*.json", "*.json.gz")
	if len(all) != 76 {
		t.Errorf("%d golden files in testdata, expected 76", len(all))
	}
	verifyAll(t, all)
}

// TestSharedGoldens replays the whole set where it stands beside the repository.
func TestSharedGoldens(t *testing.T) {
	dir := filepath.Join(cmp.Or(os.Getenv("SLUICE_SHARED"), "../../../shared"), "vllm-golden")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the whole set of vLLM goldens is not beside the repository")
	}
	all := files(t, dir, "[adlorsx][0-9]*")
	if len(all) != 100 {
		t.Errorf("%d golden files, expected 100", len(all))
	}
	verifyAll(t, all)
}

// change alters the last number, bool or string of a recorded value. Of in, which mixes inputs with outputs, only the
// output of the last add or reset is altered.
func change(v any) (any, bool) {
	switch x := v.(type) {
	case float64:
		return x + 1, true
	case bool:
		return !x, true
	case string:
		return x + "x", true
	case []any:
		for i := len(x) - 1; i >= 0; i-- {
			if y, ok := change(x[i]); ok {
				x[i] = y
				return x, true
			}
		}
	}
	return v, false
}

// TestChangedGolden alters one recorded value at a time: every field, at its first and its last occurrence. The replay
// must name that step and that field.
func TestChangedGolden(t *testing.T) {
	names := []string{"d06-duplicate-hash-blocks", "d12-preempt-fcfs", "d25-reset-prefix-cache", "a04-async-duplicate-hash-blocks",
		"a07-async-preempt-fcfs", "a13-async-eos", "a15-async-reset", "o01-sync-store-evict-load", "o04-arc",
		"o09-reset-connector", "s01-sync-store-evict-load", "x02-random-offload"}
	seen := map[string]int{}
	for _, name := range names {
		path := filepath.Join("testdata", name+".json")
		long := name[0] == 'x'
		if long {
			path += ".gz"
		}
		whole, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		last := map[string]int{}
		first := map[string]int{}
		for i, st := range whole.Steps {
			for f := range st.Fields {
				if _, ok := first[f]; !ok {
					first[f] = i
				}
				last[f] = i
			}
		}
		for f := range first {
			if f == "t" || f == "mid" || (long && seen[f] > 0) {
				continue // inputs, and in a long file what the short ones have
			}
			for _, at := range []int{first[f], last[f]} {
				g, err := Load(path)
				if err != nil {
					t.Fatal(err)
				}
				if !alter(t, &g.Steps[at], f) {
					continue
				}
				seen[f]++
				wantDifference(t, name, g, g.Steps[at].T, f)
			}
		}
		for f, v := range whole.Totals {
			if long {
				break
			}
			sums, ok := v.(map[string]any)
			if !ok {
				sums = map[string]any{"": v}
			}
			for part := range sums {
				g, err := Load(path)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					g.Totals[f], _ = change(g.Totals[f])
					wantDifference(t, name, g, -1, "totals."+f)
					continue
				}
				m := g.Totals[f].(map[string]any)
				m[part], _ = change(m[part])
				wantDifference(t, name, g, -1, "totals."+f+"."+part)
			}
		}
	}
	all := []string{"in", "n", "new", "res", "pre", "blk", "up", "fin", "pc", "pcreset", "ev", "q", "free", "usage", "ch", "fq",
		"xpc", "cpu", "off.ext", "off.load", "off.store", "off.flush", "off.done", "off.recv", "off.cev", "off.sfail"}
	for _, f := range all {
		if seen[f] == 0 {
			t.Errorf("field %s was never altered", f)
		}
		delete(seen, f)
	}
	if len(seen) > 0 {
		t.Errorf("fields that this test does not know: %v", seen)
	}
}

// TestSimpleConnectorNeedsReferencePool has the extent pool refuse a file of the simple connector.
func TestSimpleConnectorNeedsReferencePool(t *testing.T) {
	path := filepath.Join("testdata", "s01-sync-store-evict-load.json")
	if _, err := VerifyFile(path, Options{Extent: true}); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "reference pool") {
		t.Errorf("error %v does not say what to do", err)
	}
}

func alter(t *testing.T, st *Step, field string) bool {
	t.Helper()
	var v any
	if err := json.Unmarshal(st.Fields[field], &v); err != nil {
		t.Fatal(err)
	}
	if list, ok := v.([]any); ok && field == "in" {
		last := list[len(list)-1].([]any)
		if last[0] == "abort" {
			return false
		}
	}
	v, ok := change(v)
	if !ok {
		return false // an empty list
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	st.Fields[field] = raw
	return true
}

func wantDifference(t *testing.T, name string, g *File, step int64, field string) {
	t.Helper()
	res, err := Verify(g, Options{})
	if err != nil {
		t.Fatalf("%s step t=%d field %s altered: %v", name, step, field, err)
	}
	d := res.Difference
	if d == nil || d.Step != step || d.Field != field || d.Expected == d.Got {
		t.Errorf("%s step t=%d field %s altered: the replay reports %+v", name, step, field, d)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	good, err := os.ReadFile(filepath.Join("testdata", "d01-single-short.json"))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		"truncated":     string(good[:len(good)/2]),
		"other format":  strings.Replace(string(good), "vllm-golden/1", "vllm-golden/9", 1),
		"zero blocks":   strings.Replace(string(good), `"num_blocks":`, `"num_blocks":0,"x":`, 1),
		"negative run":  strings.Replace(string(good), `"p":[[`, `"p":[[5,-3],[`, 1),
		"connector":     strings.Replace(string(good), `"totals"`, `"offload":{"connector":"Other","num_cpu_blocks":8,"blocks_per_chunk":1,"eviction_policy":"lru"},"totals"`, 1),
		"no CPU blocks": strings.Replace(string(good), `"totals"`, `"offload":{"connector":"OffloadingConnector","blocks_per_chunk":1,"eviction_policy":"lru"},"totals"`, 1),
		"unknown input": strings.Replace(string(good), `["add",0,0]`, `["sub",0,0]`, 1),
		"far request":   strings.Replace(string(good), `["add",0,0]`, `["add",77,0]`, 1),
	}
	var names []string
	for n := range cases {
		names = append(names, n)
	}
	sort.Strings(names)
	for i, n := range names {
		p := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		if err := os.WriteFile(p, []byte(cases[n]), 0o600); err != nil {
			t.Fatal(err)
		}
		if cases[n] == string(good) {
			t.Errorf("%s: the case does not change the file", n)
		}
		if _, err := VerifyFile(p, Options{}); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: error %v does not name the file", n, err)
		}
	}
	if _, err := VerifyFile(dir, Options{}); err == nil || !strings.Contains(err.Error(), "found a folder") {
		t.Errorf("a folder: %v", err)
	}
}
