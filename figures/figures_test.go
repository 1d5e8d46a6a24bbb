package figures

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
)

// TestSetsAreComplete holds every figure to what it refers to.
func TestSetsAreComplete(t *testing.T) {
	for _, set := range Sets() {
		seen := map[string]bool{}
		for _, f := range set.Figures {
			if f.Name == "" || seen[f.Name] || f.Question == "" || len(f.Columns) == 0 || len(f.Chart.Panels) == 0 {
				t.Errorf("%s: figure %q is not complete or not unique", set.Name, f.Name)
			}
			seen[f.Name] = true
			for _, c := range slices.Concat(f.Columns, f.Chart.Panels) {
				if _, ok := findColumn(c); !ok {
					t.Errorf("%s: unknown column %q", f.Name, c)
				}
			}
			for _, c := range slices.Concat(f.Paired, f.Chart.Panels) {
				if !slices.Contains(f.Columns, c) {
					t.Errorf("%s: column %s is drawn or compared and not in the table", f.Name, c)
				}
			}
			for _, s := range slices.Concat(f.Base, f.Chart.Only) {
				if !slices.Contains(varied(f, s.Path), s.Value) {
					t.Errorf("%s: %s is never %s", f.Name, s.Path, s.Value)
				}
			}
			paths := append(slices.Clone(f.Match), f.Chart.X)
			if f.Chart.Kind == Map {
				paths = append(paths, f.Chart.Y)
			}
			for _, path := range paths {
				if varied(f, path) == nil {
					t.Errorf("%s: %s does not vary", f.Name, path)
				}
			}
		}
	}
	if _, err := Find("session-gat"); err == nil || !strings.Contains(err.Error(), `did you mean "session-gate"`) {
		t.Errorf("Find of a misspelt name: %v", err)
	}
}

func varied(f Figure, path string) []string {
	for _, v := range f.Vary {
		if p, values, _ := strings.Cut(v, "="); p == path {
			return strings.Split(values, ",")
		}
	}
	return nil
}

// small is a set of one figure whose arms a fake simulator can tell apart.
func small() Set {
	return Set{Name: "small", Scenario: "session-gate", Seeds: 3, Quick: []string{"workload.generate.prompts=2"}, Figures: []Figure{{
		Name: "one", Question: "?", Vary: []string{gateName + "=none,max-sessions", maxSessions + "=3,5", sessions + "=4,8"},
		Columns: []string{"held", "demand"}, Base: []Setting{{gateName, "none"}}, Match: []string{sessions}, Paired: []string{"demand"},
		Tune: maxSessions, Chart: Chart{Kind: Lines, X: sessions, Panels: []string{"held", "demand"}},
	}}}
}

// fake makes one session of two turns; the second turn's length depends on the arm and the seed.
func fake(_ context.Context, sc *scenarios.Scenario, sink results.Sink) (*results.Totals, error) {
	second := int32(1000 * sc.Seed)
	if sc.Policy.Gate.Name == "max-sessions" {
		second += int32(100 * sc.Policy.Gate.Params["max_sessions"].Number)
	}
	done := int64(0)
	for n, prompt := range []int32{1000, second} {
		turn := results.Turn{Number: int32(n + 1), Attempt: 1, Final: true, Outcome: results.Finished, ArrivalPS: done, AdmittedPS: done, SentPS: done,
			ScheduledPS: done, FirstTokenPS: done + 1e12, DonePS: done + 1e12, PromptTokens: prompt, OutputTokens: 1, ToolGapPS: results.Missing,
			ITLMaxPS: results.Missing, IdleTTFTPS: results.Missing, IdleTPOTPS: results.Missing, GateHolds: int32(n)}
		done += 2e12
		if err := sink.Turn(&turn); err != nil {
			return nil, err
		}
	}
	if err := sink.Session(&results.Session{EndPS: 3e12, Turns: 2, FinishedTurns: 2, Complete: true}); err != nil {
		return nil, err
	}
	return &results.Totals{EndPS: 3e12, Replicas: 1, GPUs: 1, KVTokens: 1000, Sessions: 1, Turns: 2, ITL: results.NewHistogram(), BusyPS: []int64{2e12}}, nil
}

// TestTableByHand: the session holds 1,001 tokens for 2 s and then second+1 for 1 s, of 3 s and 1,000 tokens.
func TestTableByHand(t *testing.T) {
	set := small()
	a, b := t.TempDir(), t.TempDir()
	for jobs, dir := range map[int]string{1: a, 4: b} {
		if err := set.Run(t.Context(), dir, fake, Options{Jobs: jobs}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(a, "one.csv"))
	if err != nil {
		t.Fatal(err)
	}
	// Over seeds 1 to 3 second is 2,000 on average, and 300 or 500 more in the other arms: demand grows by 0.1 or 0.1667.
	want := `gate,max_sessions,sessions,held,demand,demand_change,demand_half_width,demand_is,tuning_held,tuned
none,,4,0.5,1.334,,,,0.5,
none,,8,0.5,1.334,,,,0.5,
max-sessions,3,4,0.5,1.434,0.0749,0,higher,0.5,best
max-sessions,3,8,0.5,1.434,0.0749,0,higher,0.5,best
max-sessions,5,4,0.5,1.501,0.1249,0,higher,0.5,
max-sessions,5,8,0.5,1.501,0.1249,0,higher,0.5,
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, name := range []string{"one.csv", "one.svg"} {
		x, _ := os.ReadFile(filepath.Join(a, name))
		y, _ := os.ReadFile(filepath.Join(b, name))
		if len(x) == 0 || string(x) != string(y) {
			t.Errorf("%s depends on the number of jobs", name)
		}
	}
}

func TestRunEndsWithTheFirstError(t *testing.T) {
	set, broken := small(), errors.New("broken")
	dir := filepath.Join(t.TempDir(), "x")
	err := set.Run(t.Context(), dir, func(context.Context, *scenarios.Scenario, results.Sink) (*results.Totals, error) { return nil, broken }, Options{Jobs: 3})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a folder is left behind")
	}
	err = set.Run(t.Context(), dir, func(context.Context, *scenarios.Scenario, results.Sink) (*results.Totals, error) { panic("ouch") }, Options{})
	if err == nil || !strings.Contains(err.Error(), "ouch") {
		t.Errorf("a panic became %v", err)
	}
}

func TestChange(t *testing.T) {
	runs := func(values ...float64) *measured {
		m := &measured{}
		for _, v := range values {
			m.runs = append(m.runs, observation{"x": v})
		}
		return m
	}
	mean, half, ok := change(runs(10, 20, 30), runs(11, 23, 32), "x") // +1, +3, +2: 2 with s = 1; t(2) is 4.3027
	if !ok || math.Abs(mean-.1) > 1e-12 || math.Abs(half-4.302653/math.Sqrt(3)/20) > 1e-6 {
		t.Errorf("change %v, half width %v, %v", mean, half, ok)
	}
	if _, half, ok := change(runs(10), runs(11), "x"); !ok || !math.IsNaN(half) {
		t.Errorf("one seed has the half width %v", half)
	}
	if _, _, ok := change(runs(10), runs(11), "y"); ok {
		t.Error("a column that nobody has changed")
	}
	for _, c := range []struct {
		mean, half float64
		want       string
	}{{.009, 0, "tie"}, {.02, .03, "tie"}, {.03, .02, "higher"}, {-.03, .02, "lower"}, {.5, math.NaN(), "one seed"}} {
		if got := outcome(c.mean, c.half); got != c.want {
			t.Errorf("%v ± %v is %s, want %s", c.mean, c.half, got, c.want)
		}
	}
}
