// Package studies holds comparisons that the documentation shows, and how they were made.
package studies

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
)

var program = flag.String("routers", "", "tune and compare all routers with this `program` and write what comes out to docs/policies.md")

const (
	scenario    = "routers"
	tuningSeed  = 2
	firstSeed   = 11
	seeds       = 5
	begin, end  = "<!-- begin routers -->\n", "<!-- end routers -->\n"
	goodMetric  = "slo.good_total_tps"
	ttftMetric  = "ttft_s.p95"
	mostPerGrid = 8
)

var page = filepath.Join("..", "docs", "policies.md")

// TestRouters makes the section of docs/policies.md, if asked.
func TestRouters(t *testing.T) {
	if *program == "" {
		t.Skip("make routers runs this")
	}
	picks, tuning := tune(t)
	section := write(picks, tuning, compare(t, seeds, comparison(picks)...))
	fmt.Print(section)
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, _, tail := split(t, string(raw))
	if err := os.WriteFile(page, []byte(head+begin+section+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPageFitsTheGrids holds that every router is compared, with a setting of its grid, and that the page states the grids.
func TestPageFitsTheGrids(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := split(t, string(raw))
	if len(grids) != len(catalog.Routers()) {
		t.Errorf("%d grids for %d routers", len(grids), len(catalog.Routers()))
	}
	base := bundled(t)
	for _, d := range catalog.Routers() {
		i := slices.IndexFunc(grids, func(g grid) bool { return g.router == d.Name })
		if i < 0 {
			t.Errorf("%s has no grid", d.Name)
			continue
		}
		g := &grids[i]
		if n := len(g.all()); n > mostPerGrid || n == 1 && len(d.Knobs) > 0 && g.why == "" {
			t.Errorf("%s: %d settings for %d knobs", d.Name, n, len(d.Knobs))
		}
		shown := 0
		for _, setting := range g.all() {
			if _, err := scenarios.Named(base, []string{g.arm("x", setting)}); err != nil {
				t.Error(err)
			}
			if strings.Contains(section, "--arm '"+g.arm(g.router, setting)+"'") {
				shown++
			}
			if !strings.Contains(section, "| "+g.router+" | "+words(setting)+" |") {
				t.Errorf("%s: the page does not state the setting %q; write it with: make routers", d.Name, setting)
			}
		}
		if shown != 1 {
			t.Errorf("%s: the page compares %d settings of its grid, want 1; write it with: make routers", d.Name, shown)
		}
	}
}

func bundled(t *testing.T) *scenarios.Scenario {
	source, err := scenarios.Source(scenario)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := scenarios.Parse("", source)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// split is a page before, in and after the section.
func split(t *testing.T, page string) (head, section, tail string) {
	head, rest, ok := strings.Cut(page, begin)
	section, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("docs/policies.md has no section between %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return head, section, tail
}

// compare runs `sluice compare` and reads its results.
func compare(t *testing.T, seeds int, args ...string) *results.Comparison {
	out := filepath.Join(t.TempDir(), "results")
	if raw, err := exec.Command(*program, append(args, "--out", out)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	c, err := results.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Arms {
		if n := len(c.Arms[i].Runs); n != seeds {
			t.Fatalf("%s: %d runs, want %d", c.Arms[i].Name, n, seeds)
		}
	}
	return c
}

// tried is a setting with what it gave.
type tried struct {
	setting    string
	good, ttft float64
}

// tune tries every setting of every grid and picks, for each router, the most tokens within the SLO; the lowest p95 of the
// time to first token among equals, then the first.
func tune(t *testing.T) (picks []string, all [][]tried) {
	args := []string{"compare", scenario, "--set", fmt.Sprintf("seed=%d", tuningSeed)}
	for i := range grids {
		for j, setting := range grids[i].all() {
			args = append(args, "--arm", grids[i].arm(fmt.Sprintf("%s/%d", grids[i].router, j), setting))
		}
	}
	table := compare(t, 1, args...).Table()
	good, ttft := values(t, table, goodMetric), values(t, table, ttftMetric)
	at := 0
	for i := range grids {
		var tries []tried
		best := 0
		for j, setting := range grids[i].all() {
			x := tried{setting, good[at], ttft[at]}
			at++
			tries = append(tries, x)
			if b := tries[best]; x.good > b.good || x.good == b.good && x.ttft < b.ttft {
				best = j
			}
		}
		picks = append(picks, tries[best].setting)
		all = append(all, tries)
	}
	return picks, all
}

// comparison is the arguments of sluice that compare all routers with their picks.
func comparison(picks []string) []string {
	args := []string{"compare", scenario, "--set", fmt.Sprintf("seed=%d", firstSeed), "--seeds", fmt.Sprint(seeds)}
	for i := range grids {
		args = append(args, "--arm", grids[i].arm(grids[i].router, picks[i]))
	}
	return args
}

func row(table *results.Table, metric string) *results.Row {
	i := slices.IndexFunc(table.Rows, func(r results.Row) bool { return r.Metric == metric })
	if i < 0 {
		return nil
	}
	return &table.Rows[i]
}

func values(t *testing.T, table *results.Table, metric string) []float64 {
	r := row(table, metric)
	if r == nil {
		t.Fatalf("the table has no %s", metric)
	}
	var out []float64
	for i, c := range r.Cells {
		if c.Value == nil {
			t.Fatalf("%s has no %s", table.Columns[i], metric)
		}
		out = append(out, *c.Value)
	}
	return out
}
