package results

import (
	"fmt"
	"slices"
	"strings"
)

// Diff compares two result folders of the same kind of work: arms of the same name side by side, or the only arms of
// both. Columns are A and B per arm; the table's rows are those of a comparison.
func Diff(dirA, dirB string) (*Table, error) {
	a, err := Load(dirA)
	if err != nil {
		return nil, err
	}
	b, err := Load(dirB)
	if err != nil {
		return nil, err
	}
	table := &Table{Columns: []string{}, Rows: []Row{}, Notes: []string{}, Verdicts: []string{}}
	var onlyA, onlyB []string
	for _, arm := range a.Arms {
		other := slices.IndexFunc(b.Arms, func(o Arm) bool { return o.Name == arm.Name })
		if other < 0 && len(a.Arms) == 1 && len(b.Arms) == 1 {
			other = 0
		}
		if other < 0 {
			onlyA = append(onlyA, arm.Name)
			continue
		}
		table.append(pair(arm, b.Arms[other]))
	}
	for _, arm := range b.Arms {
		if !slices.ContainsFunc(a.Arms, func(o Arm) bool { return o.Name == arm.Name }) && len(b.Arms) > 1 {
			onlyB = append(onlyB, arm.Name)
		}
	}
	if len(table.Columns) == 0 {
		return nil, fmt.Errorf("no arm is in both: %s has %s, %s has %s", dirA, strings.Join(onlyA, ", "), dirB,
			strings.Join(onlyB, ", "))
	}
	table.Notes = append(table.Notes, fmt.Sprintf("A: %s (version %s). B: %s (version %s).", dirA, a.Version, dirB, b.Version))
	if a.TraceDigest != b.TraceDigest {
		table.Notes = append(table.Notes, "The traces differ.")
	}
	if a.ScenarioDigest != b.ScenarioDigest {
		table.Notes = append(table.Notes, "The scenarios differ.")
	}
	if !slices.Equal(a.Seeds, b.Seeds) {
		table.Notes = append(table.Notes, "The seeds differ: where both have a seed, only the common ones count; otherwise there is no paired difference.")
	}
	if len(onlyA) > 0 {
		table.Notes = append(table.Notes, "Only in A: "+strings.Join(onlyA, ", "))
	}
	if len(onlyB) > 0 {
		table.Notes = append(table.Notes, "Only in B: "+strings.Join(onlyB, ", "))
	}
	return table, nil
}

// pair is the table of one arm in both folders, over the seeds that both have where there are any.
func pair(a, b Arm) *Table {
	runsA, runsB := sameSeeds(a.Runs, b.Runs), sameSeeds(b.Runs, a.Runs)
	if len(runsA) > 0 {
		a.Runs, b.Runs = runsA, runsB
	}
	a.Name, b.Name = strings.TrimSpace(a.Name+" A"), strings.TrimSpace(b.Name+" B")
	c := &Comparison{Arms: []Arm{a, b}}
	t := c.Table()
	t.Notes, t.Verdicts = nil, nil
	return t
}

// sameSeeds is the runs whose seed others have too.
func sameSeeds(runs, others []*Summary) []*Summary {
	var same []*Summary
	for _, r := range runs {
		if slices.ContainsFunc(others, func(o *Summary) bool { return o.Seed == r.Seed }) {
			same = append(same, r)
		}
	}
	return same
}

// append adds the columns of other; a row that only some pairs have has empty cells elsewhere.
func (t *Table) append(other *Table) {
	width := len(t.Columns)
	t.Columns = append(t.Columns, other.Columns...)
	for i := range other.Rows {
		r := other.Rows[i]
		at := slices.IndexFunc(t.Rows, func(o Row) bool { return o.Metric == r.Metric })
		if at < 0 {
			at = min(i, len(t.Rows))
			cells := make([]Cell, width)
			t.Rows = slices.Insert(t.Rows, at, Row{r.Metric, r.Label, r.Unit, cells, r.kind})
		}
		t.Rows[at].Cells = append(t.Rows[at].Cells, r.Cells...)
	}
	for i := range t.Rows {
		if short := len(t.Columns) - len(t.Rows[i].Cells); short > 0 {
			t.Rows[i].Cells = append(t.Rows[i].Cells, make([]Cell, short)...)
		}
	}
}
