package results

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

func armOf(name string, tps ...float64) Arm {
	a := Arm{Name: name}
	for i, v := range tps {
		a.Runs = append(a.Runs, &Summary{Arm: name, Seed: uint64(i + 1), TableWindow: "whole",
			Whole:   &Window{TotalTPS: some(v), HitRate: some(v / 100)},
			Verdict: Verdict{Code: VerdictKV, Bottleneck: VerdictKV, Text: "kv: text"}})
	}
	return a
}

// Differences 2, 1, 3 against a base of mean 20: 10 %, half width 4.30265 * 1 / sqrt(3) / 20.
func TestPairedChange(t *testing.T) {
	c := &Comparison{Arms: []Arm{armOf("a", 10, 20, 30), armOf("b", 12, 21, 33)}}
	tps, hit := c.Table().Rows[0].Cells[1], Cell{}
	for _, r := range c.Table().Rows {
		if r.Metric == "hit_rate" {
			hit = r.Cells[1]
		}
	}
	const half = 4.302652729911275 / 1.7320508075688772
	if *tps.Value != 22 || math.Abs(*tps.Change-.1) > 1e-12 || math.Abs(*tps.HalfWidth-half/20) > 1e-9 {
		t.Errorf("tps: %v %v %v, expected 22, 0.1, %v", *tps.Value, *tps.Change, *tps.HalfWidth, half/20)
	}
	if math.Abs(*hit.Change-.02) > 1e-12 || math.Abs(*hit.HalfWidth-half/100) > 1e-9 {
		t.Errorf("hit rate: %v %v, expected a difference of 0.02 +- %v", *hit.Change, *hit.HalfWidth, half/100)
	}
	if got, want := tps.format(rateRow), "22 (+10.0±12.4%)"; got != want {
		t.Errorf("cell %q, expected %q", got, want)
	}
	if got, want := hit.format(shareRow), "22.0 (+2.0±2.5)"; got != want {
		t.Errorf("cell %q, expected %q", got, want)
	}
	one := &Comparison{Arms: []Arm{armOf("a", 10), armOf("b", 12)}}
	cell := one.Table().Rows[0].Cells[1]
	if cell.HalfWidth != nil || math.Abs(*cell.Change-.2) > 1e-12 {
		t.Errorf("one seed: change %v, half width %v", *cell.Change, cell.HalfWidth)
	}
}

func TestTableSize(t *testing.T) {
	for _, mode := range []string{ModeClosed, ModeRollout} {
		a := armOf("a", 1)
		a.Runs[0].Mode, a.Runs[0].SLO = mode, &SLO{}
		c := &Comparison{Arms: []Arm{a}}
		table := c.Table()
		for _, r := range table.Rows[:len(table.Rows)-1] {
			if _, err := a.Runs[0].Metric(r.Metric); err != nil {
				t.Error(err)
			}
		}
		if lines := 2 + len(table.Rows) + len(table.Notes); lines > 25 {
			t.Errorf("%s: %d lines, at most 25", mode, lines)
		}
	}
}

func TestTableForms(t *testing.T) {
	c := &Comparison{Arms: []Arm{armOf("a", 1234.5), armOf("b|c", 2469)}}
	c.Arms[1].Runs[0].Verdict.Code = VerdictInvalid
	table := c.Table()
	var md, cs, js bytes.Buffer
	for _, err := range []error{table.Markdown(&md), table.CSV(&cs), table.JSON(&js)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := "| TPS total (input incl. cached + output) [tok/s] | 1,234 | 2,469 (+100.0%) |"; !strings.Contains(md.String(), want) {
		t.Errorf("Markdown without %q:\n%s", want, md.String())
	}
	if !strings.Contains(md.String(), `| b\|c |`) || !strings.Contains(md.String(), "| kv | invalid, else kv |") {
		t.Errorf("Markdown:\n%s", md.String())
	}
	records, err := csv.NewReader(&cs).ReadAll()
	if err != nil || strings.Join(records[2], ";") != "total_tps;tok/s;b|c;2469;1;;1" {
		t.Errorf("CSV: %v, %v", records[2], err)
	}
	var back Table
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || *back.Rows[0].Cells[0].Value != 1234.5 {
		t.Errorf("JSON: %v", err)
	}
	for v, want := range map[float64]string{0: "0", 12: "12", 0.01234: "0.0123", 1.5: "1.50", 99.96: "100.0",
		123.4: "123", 1234567: "1,234,567", -4321: "-4,321", 0.00001: "1e-05"} {
		if got := FormatNumber(v); got != want {
			t.Errorf("FormatNumber(%v) = %q, expected %q", v, got, want)
		}
	}
}

func TestDiff(t *testing.T) {
	base := t.TempDir()
	run, compare := filepath.Join(base, "run"), filepath.Join(base, "compare")
	if _, err := writeSmall(run, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := writeSmallCompare(compare, Options{}); err != nil {
		t.Fatal(err)
	}
	same, err := Diff(run, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range same.Rows {
		if len(r.Cells) != 2 {
			t.Errorf("%s has %d cells", r.Metric, len(r.Cells))
		} else if c := r.Cells[1].Change; c != nil && *c != 0 {
			t.Errorf("%s differs from itself by %v", r.Metric, *c)
		}
	}
	both, err := Diff(compare, compare)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(both.Columns, ";"); got != "sticky A;sticky B;l/metric A;l/metric B" {
		t.Errorf("columns %s", got)
	}
	mixed, err := Diff(run, compare)
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(mixed.Notes, "\n"); !strings.Contains(notes, "Only in B: l/metric") ||
		!strings.Contains(notes, "The scenarios differ.") || strings.Contains(notes, "The traces differ.") {
		t.Errorf("notes: %s", notes)
	}
	// values of different seeds do not mix: seed 1 is in both
	table := pair(armOf("a", 10, 20), armOf("a", 11))
	if a, b := table.Rows[0].Cells[0], table.Rows[0].Cells[1]; *a.Value != 10 || *b.Value != 11 || math.Abs(*b.Change-.1) > 1e-12 {
		t.Errorf("over the common seed: %v and %v, change %v", *a.Value, *b.Value, *b.Change)
	}
	if _, err := Diff(run, base); err == nil {
		t.Error("a folder without results compares")
	}
}
