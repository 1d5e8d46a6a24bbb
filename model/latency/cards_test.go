package latency

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestFindCards(t *testing.T) {
	for name, want := range map[string]string{
		"qwen3-30b-a3b": "qwen3-30b-a3b", "Qwen3-Coder-30B-A3B": "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
		"Llama-3.1-8B": "llama-3.1-8b", "LLAMA_3.1_70B": "llama-3.1-70b", "deepseek-ai/DeepSeek-R1": "deepseek-v3", "openai/gpt-oss-120b": "gpt-oss-120b",
	} {
		if m, err := FindModel(name); err != nil || m.Name != want {
			t.Errorf("%s: %v, %v, want %s", name, m, err, want)
		}
	}
	for name, want := range map[string]string{
		"H100": "h100_sxm", "h200": "h200_sxm", "A100": "a100_sxm", "B200": "b200_sxm", "L40S": "l40s", "RTX PRO 6000": "rtx_pro_6000_server",
		"rtx-pro-6000": "rtx_pro_6000_server", "H20": "h20", "H100 PCIe": "h100_pcie", "MI300X": "mi300x", "h100_sxm": "h100_sxm", "H800": "h800",
	} {
		if g, err := FindGPU(name); err != nil || g.Name != want {
			t.Errorf("%s: %v, %v, want %s", name, g, err, want)
		}
	}
	// Near misses name what was meant; a far miss lists everything.
	for _, c := range []struct{ name, want string }{
		{"qwen3-30b-a3", `unknown model "qwen3-30b-a3": did you mean qwen3-30b-a3b`},
		{"lama-3.1-8b", "did you mean llama-3.1-8b"},
		{"gpt-oss", "did you mean gpt-oss-20b or gpt-oss-120b?"},
		{"qwen-coder", "did you mean qwen"},
		{"frobnicator", "the embedded cards are codellama-34b"},
		{"", "the embedded cards are codellama-34b"},
	} {
		if _, err := FindModel(c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := FindGPU("h1000"); err == nil || !strings.Contains(err.Error(), "did you mean h100_sxm") {
		t.Errorf("got %v", err)
	}
	for what, names := range map[string][]string{"models": modelNames(), "gpus": gpuNames()} {
		if !slices.IsSorted(names) || len(names) < 10 {
			t.Errorf("%s are not in order: %v", what, names)
		}
	}
}

func modelNames() (names []string) {
	for _, m := range Models() {
		names = append(names, m.Name)
	}
	return names
}

func gpuNames() (names []string) {
	for _, g := range GPUs() {
		names = append(names, g.Name)
	}
	return names
}

// No two cards answer to the same name.
func TestAliasesAreUnique(t *testing.T) {
	seen := map[string]string{}
	add := func(card string, names []string) {
		for _, n := range append(names, card) {
			if other, ok := seen[plain(n)]; ok && other != card {
				t.Errorf("%s names both %s and %s", n, other, card)
			}
			seen[plain(n)] = card
		}
	}
	for _, m := range Models() {
		add(m.Name, m.Aliases)
	}
	for _, g := range GPUs() {
		add(g.Name, g.Aliases)
	}
}

const tinyModel = `{"name": "tiny", "kind": "dense", "layers": 2, "hidden": 64, "inter": 128, "vocab": 1000,
	"hq": 4, "hk": 2, "d": 16, "params_total": 200000, "params_embed_and_head": 128000}`

const tinyGPU = `{"name": "toy", "spec": {"hbm_bytes": 1e9, "hbm_bw": 1e11},
	"gemm": {"bf16": {"t0": 1e-6, "bw": 1e11, "flops": 1e13, "q": 2, "act": 1}},
	"attn_decode": {"bf16": {"t0": 1e-5, "per_seq": 1e-8, "bw": 1e11}},
	"attn_prefill": {"t0": 1e-5, "flops": 1e13, "serial": 1e-8, "io_bw": 1e11},
	"attn_mixed": {"kind": "sum"}, "elem": {"per_layer": 1e-6}, "sampler": {"t0": 1e-5}}`

func TestLoadCards(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	m, err := LoadModelCard(write("m.json", tinyModel))
	if err != nil {
		t.Fatal(err)
	}
	g, err := LoadGPUCard(write("g.json", tinyGPU))
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(Setup{Model: m, GPU: g})
	if err != nil {
		t.Fatal(err)
	}
	if ps := l.Picoseconds(&Batch{DecodeRows: 1, DecodeContext: 10}); ps <= 0 {
		t.Errorf("%d ps", ps)
	}
	c, err := Capacity(Setup{Model: m, GPU: g}, CapacityOptions{MemoryUtilization: 0.9, BlockTokens: 16})
	if err != nil || !strings.Contains(strings.Join(c.Assumed, "\n"), "hbm_bytes") {
		t.Errorf("%+v, %v", c, err)
	}

	replace := func(card, from, to string) string {
		if !strings.Contains(card, from) {
			t.Fatalf("no %s in the card", from)
		}
		return strings.Replace(card, from, to, 1)
	}
	for _, c := range []struct{ content, want string }{
		{replace(tinyModel, `"layers": 2`, `"layers": 0`), "layers: found 0 or no such key, expected 1 to 10000"},
		{replace(tinyModel, `"layers": 2`, `"layer": 2`), ":1: layer: unknown key; correct or delete it"},
		{replace(tinyModel, `"layers": 2`, `"layers": "2"`), ":1: layers: found text, expected a whole number"},
		{replace(tinyModel, `"hk": 2`, `"hk": 5`), "hk: found 5, expected 1 to 4"},
		{replace(tinyModel, `"hk": 2`, `"hk": 2, "hk": 3`), ":2: hk: the key is given twice"},
		{replace(tinyModel, `"name": "tiny", `, ``), ": name: the key is missing"},
		{replace(tinyModel, `"dense"`, `"moe"`), "experts: found 0 or no such key"},
		{replace(tinyModel, `"hk": 2`, `"hk": 2, "kv_bytes_per_token": {"bf16": 1}`), "kv_bytes_per_token.bf16: found 1, expected 256"},
		{replace(tinyModel, `}`, ``), ": not JSON: unexpected EOF"},
		{"name: tiny\n", ":1: not JSON: invalid character"},
		{"", ": is empty"},
	} {
		path := write("bad.json", c.content)
		if _, err := LoadModelCard(path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for _, c := range []struct{ content, want string }{
		{replace(tinyGPU, `"sum"`, `"other"`), `attn_mixed.kind: found "other", expected sum or tile`},
		{replace(tinyGPU, `"flops": 1e13, "q"`, `"flops": -1, "q"`), "gemm.bf16.flops: found -1"},
		{replace(tinyGPU, `"q": 2`, `"p": 2`), ":2: gemm.bf16.p: unknown key"},
		{replace(tinyGPU, `"serial": 1e-8`, `"serial": 1e8`), "attn_prefill.serial: found 1e+08"},
	} {
		if _, err := LoadGPUCard(write("bad.json", c.content)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if _, err := LoadModelCard(filepath.Join(dir, "absent.json")); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

// What is printed of an embedded card is read back as the same card.
func TestCardsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "card.json")
	check := func(text []byte, err error, load func() (any, error), want any) {
		t.Helper()
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := load(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for _, m := range Models() {
		text, err := ModelJSON(m.Name)
		check(text, err, func() (any, error) { return LoadModelCard(path) }, m)
	}
	for _, g := range GPUs() {
		text, err := GPUJSON(g.Name)
		check(text, err, func() (any, error) { return LoadGPUCard(path) }, g)
	}
	if _, err := ModelJSON("llama-9"); err == nil {
		t.Error("a card of an unknown model")
	}
}

func TestCalibrations(t *testing.T) {
	c, err := FindCalibration("Llama-3.1-70B/H100/fp8")
	if err != nil || c.APISeconds != 0.00585 || c.KDec != 1.0133 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, name := range Calibrations() {
		c, err := FindCalibration(name)
		if err != nil {
			t.Error(err)
		}
		if _, err := c.resolve(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c, err := FindCalibration("none"); err != nil || c != (Calibration{}) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := FindCalibration("llama/h100/fp8"); err == nil || !strings.Contains(err.Error(), "want none or one of gpt-oss-120b/b200_sxm/fp4") {
		t.Error(err)
	}
	// A slower link makes the all-reduce slower by the same factor in its rate.
	full := newLaw(t, "qwen3-32b", "rtx pro 6000", Setup{TensorParallel: 2})
	slow := newLaw(t, "qwen3-32b", "rtx pro 6000", Setup{TensorParallel: 2, Calibration: Calibration{AllReduceRate: 0.5}})
	b := &Batch{Prefill: []Chunk{{8192, 0}}, Sampled: 1}
	if f, s := full.Parts(b).AllReduce, slow.Parts(b).AllReduce; s < 1.9*f || s > 2*f {
		t.Errorf("all-reduce %v s, %v s at half the rate", f, s)
	}
}
