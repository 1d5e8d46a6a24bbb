package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const small = `workload: {generate: {preset: bench}}
arrivals: {process: burst}
cluster: {replicas: 2, model: m, gpu: g}
`

func mustParse(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBundledScenariosAreValidAndCommented(t *testing.T) {
	names := Bundled()
	if diff := cmp.Diff([]string{"bench", "claude-code", "cliff", "demo", "overcommit", "routers", "session-gate"}, names); diff != "" {
		t.Fatal(diff)
	}
	for _, name := range names {
		source, err := Source(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse("", source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Name != name {
			t.Errorf("%s: its name is %s", name, s.Name)
		}
		if len(Title(source)) < 20 || !strings.HasPrefix(string(source), "#") {
			t.Errorf("%s: no title", name)
		}
	}
	if _, err := Source("nothing"); err != ErrNotBundled {
		t.Errorf("Source(nothing) = %v", err)
	}
}

func TestDecidedExampleDecodes(t *testing.T) {
	s := mustParse(t, `version: 1
name: thrash
seed: 1
workload:
  trace: {path: ../traces/kv-cache-tester, format: auto, shared_prefix: auto, idle_cap_s: 60, max_context: 262144}
arrivals: {process: poisson, rate_per_s: 0.2}
replay: closed
clients: {timeout_s: 600, retries: 2, cancel_upstream: true}
cluster:
  replicas: 8
  model: qwen3-coder-30b-a3b
  gpu: h100
  tensor_parallel: 2
  engine:
    block_size: 16
    max_num_batched_tokens: 8192
    max_num_seqs: 1024
    gpu_memory_utilization: 0.92
    async_scheduling: true
  cpu_tier: {gib: 0}
  global_store: {gib: 0}
  calibration: none
signals: {scrape_s: 0.1, probe_ipc_s: 0.0005, kv_event_delay_s: 0.0}
policy:
  gate: {name: session, preset: documented, high_watermark: 0.85, hit_threshold: 0.80, idle_grace_s: 60, wait_poll_s: 5}
  router: {name: smetric}
slo: {ttft_s: 1.0, ttft_per_1k_prompt_s: 0.0625, tpot_s: 0.020}
faults: []
output: {interval_s: 1}
`)
	if s.Workload.Trace.IdleCapS != 60 || s.Cluster.Replicas != 8 || s.Cluster.Engine.GPUMemoryUtilization != 0.92 ||
		s.Policy.Gate.Params["high_watermark"].Number != 0.85 || s.SLO.TTFTPer1kPromptS != 0.0625 || s.Clients.TimeoutS != 600 {
		t.Errorf("decoded to %+v", s)
	}
}

func TestDefaultsAreWrittenOut(t *testing.T) {
	s := mustParse(t, small)
	resolved := string(s.Resolved())
	for _, want := range []string{"  engine:\n    block_size: 16\n    max_num_batched_tokens: null\n", "    max_model_len: null\n", "replay: closed\n", "faults: []\n",
		"  gate:\n    name: none\n  router:\n    name: round-robin\n", "  cpu_tier:\n    gib: 0\n", "slo:\n  ttft_s: null\n"} {
		if !strings.Contains(resolved, want) {
			t.Errorf("the resolved form lacks %q:\n%s", want, resolved)
		}
	}
	if strings.Contains(resolved, "trace:") || strings.Contains(resolved, "rate_per_s") {
		t.Errorf("the resolved form has keys without effect:\n%s", resolved)
	}
	again := mustParse(t, resolved)
	if diff := cmp.Diff(resolved, string(again.Resolved())); diff != "" {
		t.Error(diff)
	}
	if s.Digest() != again.Digest() || len(s.Digest()) != 12 {
		t.Errorf("digests %s and %s", s.Digest(), again.Digest())
	}
	if other := mustParse(t, small+"seed: 2\n"); other.Digest() == s.Digest() {
		t.Error("another seed has the same digest")
	}
}

func TestEveryDefaultIsInRange(t *testing.T) {
	n := 0
	for i := range declaration {
		d := &declaration[i]
		keys := d.keys
		if d.choice != nil {
			for _, o := range d.choice.options() {
				for _, knob := range o.knobs {
					keys = append(keys, knobKey(d.path, d.choice.at, knob))
				}
			}
		}
		for _, k := range keys {
			n++
			if k.required {
				continue
			}
			if v, message := k.decode(k.def); message != "" || k.format(v) != k.def {
				t.Errorf("%s: default %q is written as %q (%s)", k.path, k.def, k.format(v), message)
			}
			if k.doc == "" {
				t.Errorf("%s has no documentation", k.path)
			}
		}
	}
	if n < 60 {
		t.Fatalf("looked at %d keys only", n)
	}
}

func TestWorkloadDigestFollowsTheSessionsOnly(t *testing.T) {
	base := mustParse(t, small)
	for set, same := range map[string]bool{"cluster.replicas=9": true, "policy.router=sticky": true, "seed=7": false, "workload.generate.sessions=3": false} {
		other, err := base.Apply([]string{set})
		if err != nil {
			t.Fatal(err)
		}
		if (other.WorkloadDigest() == base.WorkloadDigest()) != same {
			t.Errorf("%s: equal digests are %v, want %v", set, !same, same)
		}
	}
}

func TestPathsAreRelativeToTheFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "s.yaml")
	text := "workload: {trace: {path: data/x.jsonl}}\narrivals: {process: recorded}\ncluster: {replicas: 1, model: m, gpu: g}\n"
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Path("workload.trace.path"), filepath.Join(dir, "data/x.jsonl"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if strings.Contains(string(s.Resolved()), dir) {
		t.Error("the resolved form holds a path of this machine")
	}
	over, err := s.Apply([]string{"workload.trace.path=other.jsonl"})
	if err != nil {
		t.Fatal(err)
	}
	if got := over.Path("workload.trace.path"); got != "other.jsonl" {
		t.Errorf("an override is relative to the current folder; got %s", got)
	}
	if got := mustParse(t, text).Path("workload.trace.path"); got != filepath.Join("data", "x.jsonl") {
		t.Errorf("got %s", got)
	}
}

func TestLoadRefusesWhatIsNoScenarioFile(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFileBytes+1), 0o666); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "is a folder", big: "at most 1048576", filepath.Join(dir, "none.yaml"): "no such file"} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s) = %v, want %q", path, err, want)
		}
	}
}

func TestProblemPointsAtTheKey(t *testing.T) {
	s := mustParse(t, small)
	got := s.Problem("cluster.gpu", "unknown GPU").Error()
	want := "test.yaml:3:34: cluster.gpu: unknown GPU\n" +
		"    3 | cluster: {replicas: 2, model: m, gpu: g}\n" +
		"      |                                  ^"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	over, err := s.Apply([]string{"cluster.gpu=h999"})
	if err != nil {
		t.Fatal(err)
	}
	if got := over.Problem("cluster.gpu", "unknown GPU").Error(); got != "--set cluster.gpu=h999: cluster.gpu: unknown GPU" {
		t.Errorf("got %s", got)
	}
}
