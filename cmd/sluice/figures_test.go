package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/figures"
)

// TestFiguresInDocsAreCurrent runs a few arms of the session gate's figures again and expects the rows of docs/figures to
// the digit. When it fails because the simulator has changed: sluice figures session-gate -o docs/figures/session-gate,
// then go test ./figures -update, then read whether docs/session-gate.md still says what the numbers say.
func TestFiguresInDocsAreCurrent(t *testing.T) {
	set, err := figures.Find("session-gate")
	if err != nil {
		t.Fatal(err)
	}
	small := set
	small.Figures = nil
	for name, vary := range map[string][]string{
		"cliff":      {"workload.generate.tool_s=1", "policy.gate.name=none,session", "arrivals.sessions=20"},
		"blind-band": {"workload.generate.tool_s=30", "policy.gate.name=none,session", "cluster.engine.num_gpu_blocks_override=10001"},
		"wake":       {"policy.gate.preset=documented,as-shipped", "policy.gate.scope=cluster", "arrivals.sessions=24"},
	} {
		f := set.Figures[slices.IndexFunc(set.Figures, func(f figures.Figure) bool { return f.Name == name })]
		f.Vary = vary
		small.Figures = append(small.Figures, f)
	}
	dir := t.TempDir()
	if err := small.Run(t.Context(), dir, simulateInto, figures.Options{Jobs: 2}); err != nil {
		t.Fatal(err)
	}
	for _, f := range small.Figures {
		old := csvRows(t, filepath.Join("../../docs/figures/session-gate", f.Name+".csv"))
		for _, row := range csvRows(t, filepath.Join(dir, f.Name+".csv")) {
			if !slices.Contains(old, row) {
				t.Errorf("docs/figures/session-gate/%s.csv does not have the row\n%s", f.Name, row)
			}
		}
	}
}

func csvRows(t *testing.T, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range records {
		rows = append(rows, strings.Join(r, ","))
	}
	return rows
}
