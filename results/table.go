package results

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"
)

// Table is a comparison side by side: one column per arm, one row per metric, differences to the first column.
type Table struct {
	Columns  []string `json:"columns"`
	Rows     []Row    `json:"rows"`
	ByClass  []Row    `json:"by_class"` // rows for each service class; empty if the runs have one class only
	Notes    []string `json:"notes"`    // what the numbers are of
	Verdicts []string `json:"verdicts"` // in words, arms with equal ones together
}

// Row is one metric over the columns.
type Row struct {
	Metric string `json:"metric"` // name in summary.json; "verdict" for the last row
	Label  string `json:"label"`
	Unit   string `json:"unit"`
	Cells  []Cell `json:"cells"`
	kind   rowKind
}

// Cell is the value of one arm: the mean over its runs. Change is the paired difference to the first column, relative to
// the first column's mean, or absolute for shares (a difference of percentages). HalfWidth is that of the 95 % confidence
// interval of Change over the seeds; it needs two seeds. All are nil where they do not exist.
type Cell struct {
	Value     *float64 `json:"value"`
	Text      string   `json:"text,omitempty"` // instead of a value
	Change    *float64 `json:"change"`
	HalfWidth *float64 `json:"change_half_width"`
	Runs      int      `json:"runs"`
}

type rowKind uint8

const (
	rateRow  rowKind = iota // also counts and seconds: differences are relative
	shareRow                // printed in percent: differences are absolute
)

type rowSpec struct {
	metric, label, unit string
	kind                rowKind
	when                func(*Comparison) bool // nil: always
}

// tableRows keeps the table within 25 lines: at most 21 rows, the verdict, two lines of heading and a note.
var tableRows = []rowSpec{
	{"total_tps", "TPS total (input incl. cached + output)", "tok/s", rateRow, nil},
	{"output_tps", "TPS output", "tok/s", rateRow, nil},
	{"computed_prefill_tps", "TPS prefill computed", "tok/s", rateRow, nil},
	{"slo.good_total_tps", "TPS total within SLO", "tok/s", rateRow, hasSLO},
	{"slo.attainment", "SLO attainment", "%", shareRow, hasSLO},
	{"hit_rate", "Hit rate", "%", shareRow, nil},
	{"hit_ceiling", "Hit rate ceiling", "%", shareRow, nil},
	{"thrash_index", "Recomputed prefill", "%", shareRow, nil},
	{"ttft_s.p50", "TTFT p50", "s", rateRow, nil},
	{"ttft_s.p95", "TTFT p95", "s", rateRow, nil},
	{"tpot_s.p50", "TPOT p50", "s", rateRow, nil},
	{"itl_s.p99", "ITL p99", "s", rateRow, nil},
	{"e2el_s.p50", "Turn latency p50", "s", rateRow, nil},
	{"e2el_s.p99", "Turn latency p99", "s", rateRow, nil},
	{"session_time_s.p50", "Session time p50", "s", rateRow, notRollout},
	{"milestones.t50_s", "50 % of sessions done", "s", rateRow, isRollout},
	{"milestones.makespan_s", "All sessions done", "s", rateRow, isRollout},
	{"held_turns", "Turns held at the gate", "", rateRow, nil},
	{"gate_wait_s.mean", "Gate wait mean", "s", rateRow, nil},
	{"work.max_mean", "Work max/mean of replicas", "", rateRow, nil},
	{"busy_share", "Replicas busy", "%", shareRow, nil},
	{"engine.preemptions", "Engine preemptions", "", rateRow, nil},
}

func hasSLO(c *Comparison) bool {
	return anyRun(c, func(s *Summary) bool { return s.SLO != nil })
}

func isRollout(c *Comparison) bool {
	return anyRun(c, func(s *Summary) bool { return s.Mode == ModeRollout })
}

func notRollout(c *Comparison) bool { return !isRollout(c) }

func anyRun(c *Comparison, f func(*Summary) bool) bool {
	for _, arm := range c.Arms {
		for _, s := range arm.Runs {
			if f(s) {
				return true
			}
		}
	}
	return false
}

// Table compares the arms to the first.
func (c *Comparison) Table() *Table {
	t := &Table{Columns: []string{}, Rows: []Row{}, Verdicts: c.verdicts()}
	for _, arm := range c.Arms {
		t.Columns = append(t.Columns, arm.Name)
	}
	for _, spec := range tableRows {
		if spec.when == nil || spec.when(c) {
			t.Rows = append(t.Rows, compareArms(c.Arms, spec))
		}
	}
	verdict := Row{Metric: "verdict", Label: "Verdict"}
	for i := range c.Arms {
		verdict.Cells = append(verdict.Cells, Cell{Text: c.Arms[i].verdictCode(), Runs: len(c.Arms[i].Runs)})
	}
	t.Rows = append(t.Rows, verdict)
	t.ByClass = c.byClass()
	t.Notes = append([]string{c.windowNote()}, c.leakNotes()...)
	return t
}

// leakNotes names the arms whose lease audit found leaks.
func (c *Comparison) leakNotes() []string {
	var notes []string
	for _, arm := range c.Arms {
		var lost, leaked int64
		for _, s := range arm.Runs {
			lost += s.Leases.Lost
			leaked += s.Leases.Lost - s.Leases.Abandoned
		}
		if lost > 0 {
			notes = append(notes, fmt.Sprintf("%s: the lease audit finds %d leases whose end a fault kept from the policies; %d of them are alive at the end.", arm.Name, lost, leaked))
		}
	}
	return notes
}

// verdictCode is the verdict that most runs have, the first of equals: such as "kv" or "invalid, else kv".
func (a *Arm) verdictCode() string { return verdictCode(a.typical()) }

func verdictCode(s *Summary) string {
	code := s.Verdict.Code
	if code != s.Verdict.Bottleneck {
		code += ", else " + s.Verdict.Bottleneck
	}
	return code
}

// typical is the first run whose verdict is the one that most runs have.
func (a *Arm) typical() *Summary {
	counts := map[string]int{}
	var first []*Summary
	for _, s := range a.Runs {
		code := verdictCode(s)
		if counts[code] == 0 {
			first = append(first, s)
		}
		counts[code]++
	}
	best := first[0]
	for _, s := range first {
		if counts[verdictCode(s)] > counts[verdictCode(best)] {
			best = s
		}
	}
	return best
}

// verdicts holds what the verdicts say in words, arms with equal ones together. The numbers in it are one run's: where the
// runs of an arm say different things, its seed is named.
func (c *Comparison) verdicts() []string {
	var texts []string
	names := map[string][]string{}
	for i := range c.Arms {
		arm := &c.Arms[i]
		s := arm.typical()
		text := s.Verdict.Text
		if slices.ContainsFunc(arm.Runs, func(x *Summary) bool { return x.Verdict.Text != s.Verdict.Text }) {
			text = fmt.Sprintf("seed %d: %s", c.Seeds[slices.Index(arm.Runs, s)], text)
		}
		if names[text] == nil {
			texts = append(texts, text)
		}
		names[text] = append(names[text], arm.Name)
	}
	for i, text := range texts {
		texts[i] = strings.Join(names[text], " | ") + ": " + text
	}
	return texts
}

func (c *Comparison) windowNote() string {
	window := "steady window"
	if anyRun(c, func(s *Summary) bool { return s.TableWindow == "whole" }) {
		window = "whole run"
		if anyRun(c, func(s *Summary) bool { return s.TableWindow == "steady" }) {
			window = "steady window where there is one, else whole run"
		}
	}
	note := "Measured over the " + window + "; ITL, milestones and engine counters over the whole run."
	if len(c.Seeds) > 1 {
		note += fmt.Sprintf(" Means over %d seeds, paired differences with 95 %% intervals.", len(c.Seeds))
	}
	return note
}

func compareArms(arms []Arm, spec rowSpec) Row {
	row := Row{Metric: spec.metric, Label: spec.label, Unit: spec.unit, kind: spec.kind}
	for i := range arms {
		cell := Cell{Runs: len(arms[i].Runs)}
		values := valuesBySeed(&arms[i], spec.metric)
		cell.Value = meanOf(values)
		if i > 0 {
			cell.Change, cell.HalfWidth = pairedChange(valuesBySeed(&arms[0], spec.metric), values, spec.kind)
		}
		row.Cells = append(row.Cells, cell)
	}
	return row
}

type seedValue struct {
	seed  uint64
	value float64
}

func valuesBySeed(a *Arm, metric string) []seedValue {
	var values []seedValue
	for _, s := range a.Runs {
		if v, err := s.Metric(metric); err == nil && v != nil {
			values = append(values, seedValue{s.Seed, *v})
		}
	}
	return values
}

func meanOf(values []seedValue) *float64 {
	sum := 0.0
	for _, v := range values {
		sum += v.value
	}
	return ratio(sum, float64(len(values)))
}

// pairedChange averages the differences of the seeds that both arms have.
func pairedChange(base, arm []seedValue, kind rowKind) (change, halfWidth *float64) {
	var differences []float64
	baseSum := 0.0
	for _, b := range base {
		for _, a := range arm {
			if a.seed == b.seed {
				differences = append(differences, a.value-b.value)
				baseSum += b.value
			}
		}
	}
	n := float64(len(differences))
	mean, half := interval(differences)
	scale := 1.0
	if kind == rateRow {
		scale = baseSum / n
	}
	if n == 0 || scale == 0 {
		return nil, nil
	}
	if half != nil {
		half = some(*half / math.Abs(scale))
	}
	return some(mean / math.Abs(scale)), half
}

// interval is the mean of values and the half width of its 95 % confidence interval by Student's t; nil below two.
func interval(values []float64) (mean float64, halfWidth *float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	if n < 2 {
		return mean, nil
	}
	squares := 0.0
	for _, v := range values {
		squares += float64((v - mean) * (v - mean))
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975)
	return mean, some(t * math.Sqrt(squares/(n-1)/n))
}

// Interval is the mean of a metric over the arm's runs and the half width of its 95 % confidence interval, nil with fewer
// than two runs; n is the number of runs that have the metric.
func (a *Arm) Interval(metric string) (mean float64, halfWidth *float64, n int, err error) {
	var values []float64
	for _, s := range a.Runs {
		v, err := s.Metric(metric)
		if err != nil {
			return 0, nil, 0, err
		}
		if v != nil {
			values = append(values, *v)
		}
	}
	mean, halfWidth = interval(values)
	return mean, halfWidth, len(values), nil
}

// Strings is the table as text: a heading, then a row per metric. Cells hold the value and the difference to the first
// column.
func (t *Table) Strings() (heading []string, rows [][]string) { return t.strings(t.Rows) }

// ClassStrings is Strings of the rows for each service class; rows is empty if there are none.
func (t *Table) ClassStrings() (heading []string, rows [][]string) { return t.strings(t.ByClass) }

func (t *Table) strings(of []Row) (heading []string, rows [][]string) {
	heading = append([]string{""}, t.Columns...)
	for i := range of {
		r := &of[i]
		label := r.Label
		if r.Unit != "" {
			label += " [" + r.Unit + "]"
		}
		line := []string{label}
		for _, c := range r.Cells {
			line = append(line, c.format(r.kind))
		}
		rows = append(rows, line)
	}
	return heading, rows
}

func (c *Cell) format(kind rowKind) string {
	if c.Text != "" {
		return c.Text
	}
	if c.Value == nil {
		return "-"
	}
	if kind == shareRow {
		text := fmt.Sprintf("%.1f", *c.Value*100)
		return text + c.formatChange("")
	}
	return FormatNumber(*c.Value) + c.formatChange("%")
}

// formatChange prints shares in percentage points without a sign of percent, so that the two kinds cannot be confused.
func (c *Cell) formatChange(unit string) string {
	if c.Change == nil {
		return ""
	}
	text := fmt.Sprintf("%+.1f", *c.Change*100)
	if c.HalfWidth != nil {
		text += fmt.Sprintf("±%.1f", *c.HalfWidth*100)
	}
	return " (" + text + unit + ")"
}

// FormatNumber prints v with three significant digits, whole numbers in full and thousands separated.
func FormatNumber(v float64) string {
	if math.Abs(v) < 1000 && v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	if math.Abs(v) >= 100 {
		digits := fmt.Sprintf("%.0f", math.Abs(v))
		for i := len(digits) - 3; i > 0; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		if v < 0 {
			return "-" + digits
		}
		return digits
	}
	if math.Abs(v) < 1e-4 {
		return fmt.Sprintf("%.2g", v)
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", decimals, v)
}

// Markdown writes the table as a pipe table with the notes below it.
func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, c := range cells {
			b.WriteString(" " + strings.ReplaceAll(c, "|", `\|`) + " |")
		}
		b.WriteString("\n")
	}
	for _, part := range []func() ([]string, [][]string){t.Strings, t.ClassStrings} {
		heading, rows := part()
		if len(rows) == 0 {
			continue
		}
		line(heading)
		b.WriteString("|---|" + strings.Repeat("---:|", len(t.Columns)) + "\n")
		for _, row := range rows {
			line(row)
		}
		b.WriteString("\n")
	}
	for _, note := range slices.Concat(t.Verdicts, t.Notes) {
		b.WriteString("- " + note + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// CSV writes one record per metric and arm: metric, unit, arm, value, change, change_half_width, runs. Numbers are not
// rounded; an empty field is a missing number.
func (t *Table) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"metric", "unit", "arm", "value", "change", "change_half_width", "runs"})
	exact := func(v *float64) string {
		if v == nil {
			return ""
		}
		return fmt.Sprint(*v)
	}
	for _, r := range slices.Concat(t.Rows, t.ByClass) {
		unit := r.Unit
		if r.kind == shareRow {
			unit = "share"
		}
		for i, c := range r.Cells {
			value := c.Text
			if value == "" {
				value = exact(c.Value)
			}
			_ = out.Write([]string{r.Metric, unit, t.Columns[i], value, exact(c.Change), exact(c.HalfWidth), fmt.Sprint(c.Runs)})
		}
	}
	out.Flush()
	return out.Error()
}

// JSON writes the table as one object; shares are fractions.
func (t *Table) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(&Table{t.Columns, sharesNamed(t.Rows), sharesNamed(t.ByClass), t.Notes, t.Verdicts})
}

// sharesNamed is rows with the unit of shares by name.
func sharesNamed(rows []Row) []Row {
	out := make([]Row, len(rows))
	for i, r := range rows {
		if r.kind == shareRow {
			r.Unit = "share"
		}
		out[i] = r
	}
	return out
}
