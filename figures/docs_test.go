package figures

import (
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of the docs pages from their CSV files")

const docsFolder = "../docs"

// TestDocsTables holds the tables of docs/SET.md equal to the CSV files in docs/figures/SET. A table stands between
// "<!-- table FILE: COLUMNS | KNOB=VALUE ... -->" or "<!-- map FILE: X Y COLUMN | ... -->" and "<!-- end -->"; of the rows
// only those with the given values are shown. After the CSV files have been made anew, -update writes the tables.
func TestDocsTables(t *testing.T) {
	for _, set := range Sets() {
		page := filepath.Join(docsFolder, set.Name+".md")
		got, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		want, tables, err := withTables(string(got), filepath.Join(docsFolder, "figures", set.Name))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		if tables < len(set.Figures) {
			t.Errorf("%s has %d tables for %d figures", page, tables, len(set.Figures))
		}
		if *update {
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if want != string(got) {
			t.Errorf("the tables of %s are not those of its CSV files; run: go test ./figures -update", page)
		}
		for _, f := range set.Figures {
			if !strings.Contains(want, "(figures/"+set.Name+"/"+f.Name+".svg)") {
				t.Errorf("%s does not show figure %s", page, f.Name)
			}
			if svg, err := os.Stat(filepath.Join(docsFolder, "figures", set.Name, f.Name+".svg")); err != nil || svg.Size() == 0 {
				t.Errorf("figure %s: %v", f.Name, err)
			}
		}
	}
}

// TestDocsRowsAreTheGrid notices CSV files of another grid than the one declared.
func TestDocsRowsAreTheGrid(t *testing.T) {
	for _, set := range Sets() {
		for i := range set.Figures {
			f := &set.Figures[i]
			w := work{tasks: map[string]*task{}}
			p, err := w.plan(set.Scenario, f, nil, set.Seeds)
			if err != nil {
				t.Fatal(err)
			}
			want := f.table(p.measured())
			got, err := readCSV(filepath.Join(docsFolder, "figures", set.Name, f.Name+".csv"))
			if err != nil {
				t.Fatal(err)
			}
			n := len(f.knobs())
			if !slices.Equal(got[0], want[0]) || len(got) != len(want) {
				t.Errorf("%s.csv is of another grid; make the folder anew", f.Name)
				continue
			}
			for k := range got {
				if !slices.Equal(got[k][:n], want[k][:n]) {
					t.Errorf("%s.csv, row %d: %v, want %v", f.Name, k, got[k][:n], want[k][:n])
				}
			}
		}
	}
}

func readCSV(path string) ([][]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return csv.NewReader(file).ReadAll()
}

func withTables(page, dir string) (string, int, error) {
	var b strings.Builder
	n := 0
	for {
		before, rest, ok := strings.Cut(page, "<!-- table ")
		kind := "table"
		if m, r, found := strings.Cut(page, "<!-- map "); found && (!ok || len(m) < len(before)) {
			before, rest, ok, kind = m, r, true, "map"
		}
		if !ok {
			b.WriteString(page)
			return b.String(), n, nil
		}
		spec, rest, ok := strings.Cut(rest, " -->")
		_, after, ended := strings.Cut(rest, "<!-- end -->")
		if !ok || !ended {
			return "", 0, fmt.Errorf("table %q does not end", spec)
		}
		table, err := render(kind, spec, dir)
		if err != nil {
			return "", 0, fmt.Errorf("table %q: %w", spec, err)
		}
		b.WriteString(before + "<!-- " + kind + " " + spec + " -->\n" + table + "<!-- end -->")
		page = after
		n++
	}
}

func render(kind, spec, dir string) (string, error) {
	parts := strings.Split(spec, " | ")
	file, columns, _ := strings.Cut(parts[0], ": ")
	rows, err := readCSV(filepath.Join(dir, file))
	if err != nil {
		return "", err
	}
	head := rows[0]
	names := strings.Fields(columns)
	for _, name := range names {
		if !slices.Contains(head, name) {
			return "", fmt.Errorf("no column %s in %s", name, file)
		}
	}
	get := func(row []string, name string) string {
		v := row[slices.Index(head, name)]
		half := strings.TrimSuffix(name, "_change") + "_half_width"
		if strings.HasSuffix(name, "_change") && v != "" {
			is := row[slices.Index(head, strings.TrimSuffix(name, "_change")+"_is")]
			return percent(v, "+") + " ± " + percent(row[slices.Index(head, half)], "") + " " + is
		}
		return v
	}
	var shown [][]string
	for _, row := range rows[1:] {
		keep := true
		for _, condition := range parts[1:] {
			k, values, _ := strings.Cut(condition, "=")
			if !slices.Contains(head, k) {
				return "", fmt.Errorf("no column %s in %s", k, file)
			}
			keep = keep && slices.Contains(strings.Split(values, ","), get(row, k))
		}
		if keep {
			shown = append(shown, row)
		}
	}
	if len(shown) == 0 {
		return "", fmt.Errorf("no row of %s is left", file)
	}
	var lines [][]string
	if kind == "map" {
		lines = pivot(names, shown, get)
	} else {
		lines = [][]string{names}
		for _, row := range shown {
			var line []string
			for _, name := range names {
				line = append(line, get(row, name))
			}
			lines = append(lines, line)
		}
	}
	var b strings.Builder
	for i, line := range lines {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(line)) + "|\n")
		}
	}
	return b.String(), nil
}

// pivot has a column for each value of the first knob and a row for each value of the second.
func pivot(names []string, rows [][]string, get func([]string, string) string) [][]string {
	xName, yName, value := names[0], names[1], names[2]
	head := []string{yName + " \\ " + xName}
	lines := [][]string{nil}
	var ys []string
	for _, row := range rows {
		x, y := get(row, xName), get(row, yName)
		if !slices.Contains(head[1:], x) {
			head = append(head, x)
		}
		if !slices.Contains(ys, y) {
			ys = append(ys, y)
			lines = append(lines, []string{y})
		}
		at := 1 + slices.Index(ys, y)
		lines[at] = append(lines[at], get(row, value))
	}
	lines[0] = head
	return lines
}

func percent(v, plus string) string {
	x, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%"+plus+".1f %%", 100*x)
}
