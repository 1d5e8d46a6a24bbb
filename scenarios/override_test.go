package scenarios

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func armNames(arms []Arm) []string {
	var names []string
	for _, a := range arms {
		names = append(names, a.Name)
	}
	return names
}

func TestApplyLeavesTheBaseAlone(t *testing.T) {
	base := mustParse(t, small)
	before := string(base.Resolved())
	over, err := base.Apply([]string{"policy.router=sticky", "policy.gate.name=session", "policy.gate.high_watermark=0.5", "seed=9"})
	if err != nil {
		t.Fatal(err)
	}
	if over.Policy.Router.Name != "sticky" || over.Policy.Gate.Params["high_watermark"].Number != 0.5 || over.Seed != 9 {
		t.Errorf("got %+v", over.Policy)
	}
	if string(base.Resolved()) != before {
		t.Error("the base has changed")
	}
}

func TestApplyReplacesTheWorkload(t *testing.T) {
	base := mustParse(t, strings.Replace(small, "preset: bench", "preset: bench, sessions: 5", 1))
	over, err := base.Apply([]string{"workload.trace.path=x.jsonl"})
	if err != nil {
		t.Fatal(err)
	}
	if over.Workload.Source != "trace" || over.Workload.Trace.Path != "x.jsonl" {
		t.Errorf("got %+v", over.Workload)
	}
	back, err := over.Apply([]string{"workload.generate=steady"})
	if err != nil {
		t.Fatal(err)
	}
	if back.Workload.Source != "generate" || back.Workload.Generate.Name != "steady" {
		t.Errorf("got %+v", back.Workload)
	}
}

func TestKnobsGoWithTheirPolicy(t *testing.T) {
	base := mustParse(t, small+"policy: {gate: {name: session, high_watermark: 0.5}}\n")
	other, err := base.Apply([]string{"policy.gate=max-sessions", "policy.gate.max_sessions=7"})
	if err != nil {
		t.Fatal(err)
	}
	back, err := other.Apply([]string{"policy.gate=session"})
	if err != nil {
		t.Fatal(err)
	}
	if got := back.Policy.Gate.Params["high_watermark"].Number; got != 0.5 {
		t.Errorf("the watermark of the file is %v", got)
	}
	sized := mustParse(t, strings.Replace(small, "preset: bench", "preset: bench, sessions: 5", 1))
	steady, err := sized.Apply([]string{"workload.generate=steady"})
	if err != nil {
		t.Fatal(err)
	}
	if got := steady.Workload.Generate.Params["sessions"].Number; got == 5 {
		t.Error("the sessions of one preset have become those of another")
	}
}

func TestGridIsTheProduct(t *testing.T) {
	base := mustParse(t, small)
	arms, err := Grid(base, []string{"policy.router=sticky,lmetric", "cluster.replicas=1,2,4"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"sticky,1", "sticky,2", "sticky,4", "lmetric,1", "lmetric,2", "lmetric,4"}
	if diff := cmp.Diff(want, armNames(arms)); diff != "" {
		t.Error(diff)
	}
	if s := arms[5].Scenario; s.Policy.Router.Name != "lmetric" || s.Cluster.Replicas != 4 {
		t.Errorf("the last arm is %s with %d", s.Policy.Router.Name, s.Cluster.Replicas)
	}
	alone, err := Grid(base, nil)
	if err != nil || len(alone) != 1 || alone[0].Name != "round-robin" {
		t.Errorf("without --vary: %v, %v", armNames(alone), err)
	}
}

func TestGridLeavesKnobsOutThatAnArmDoesNotHave(t *testing.T) {
	base := mustParse(t, small+"policy: {gate: {name: session, hit_threshold: 0.5}}\n")
	arms, err := Grid(base, []string{"policy.gate=none,session", "policy.gate.high_watermark=0.7,0.9"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"none", "session,0.7", "session,0.9"}, armNames(arms)); diff != "" {
		t.Error(diff)
	}
	if got := arms[1].Scenario.Policy.Gate.Params["hit_threshold"].Number; got != 0.5 {
		t.Errorf("the file's threshold is lost: %v", got)
	}
}

func TestGridRefuses(t *testing.T) {
	base := mustParse(t, small)
	for vary, want := range map[string]string{
		"policy.router=sticky,sticki": `"sticki" is unknown; did you mean sticky?`,
		"policy.router=sticky,":       "without empty values",
		"seed=1,1":                    "given twice",
		"sed=1,2":                     "did you mean seed?",
		"arrivals.rate_per_s=1,2":     "has no effect with process burst",
		"policy.gate.preset=a,b":      "none has no such key; it belongs to",
		"seed":                        "expected path=value",
	} {
		if _, err := Grid(base, []string{vary}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--vary %s: %v, want %q", vary, err, want)
		}
	}
	if _, err := Grid(base, []string{"seed=1,2", "seed=3,4"}); err == nil || !strings.Contains(err.Error(), "varied twice") {
		t.Errorf("two of one key: %v", err)
	}
	wide := "seed=1"
	for i := 2; i <= 200; i++ {
		wide += "," + formatNumber(float64(i))
	}
	if _, err := Grid(base, []string{wide, strings.Replace(wide, "seed", "cluster.replicas", 1)}); err == nil {
		t.Error("a grid of 40,000 arms is accepted")
	}
}

func TestBounds(t *testing.T) {
	arms, err := Bounds(mustParse(t, small))
	if err != nil {
		t.Fatal(err)
	}
	if len(arms) != 2 || arms[0].Scenario.Policy.Router.Name != "oracle" || !arms[1].Scenario.Cluster.InfiniteCache ||
		arms[0].Scenario.Cluster.InfiniteCache || arms[1].Scenario.Policy.Router.Name != "oracle" {
		t.Errorf("got %v", armNames(arms))
	}
}
