package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// column of a sheet. Key is its name in JSON and CSV, with the unit as a suffix; Title is its name in text.
type column struct {
	Key   string
	Title string // "": Key
}

// sheet is a table. Cells are string, bool, int, int32, int64, uint64, float64, *float64 or nil; nil is a missing value, not
// zero.
type sheet struct {
	columns []column
	rows    [][]any
	right   bool // all columns but the first are aligned right
}

func (s *sheet) add(cells ...any) { s.rows = append(s.rows, cells) }

// outputFlags are --json and --csv.
type outputFlags struct{ json, csv bool }

func (o *outputFlags) register(cmd *cobra.Command) {
	o.registerAs(cmd, "print a JSON array with one object per row")
}

// registerAs is register for a command whose JSON is no array of rows; usage says what it is.
func (o *outputFlags) registerAs(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&o.json, "json", false, usage)
	cmd.Flags().BoolVar(&o.csv, "csv", false, "print CSV")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
}

// text tells whether output is for people.
func (o *outputFlags) text() bool { return !o.json && !o.csv }

// write prints the sheet in the format that the flags ask for.
func (o *outputFlags) write(w io.Writer, s *sheet) error {
	switch {
	case o.json:
		return s.writeJSON(w)
	case o.csv:
		return s.writeCSV(w)
	}
	return s.writeText(w)
}

func (s *sheet) writeJSON(w io.Writer) error {
	var b strings.Builder
	b.WriteString("[")
	for i, row := range s.rows {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  {")
		for j, cell := range row {
			if j > 0 {
				b.WriteString(", ")
			}
			value, err := json.Marshal(plainCell(cell))
			if err != nil {
				return err
			}
			key, err := json.Marshal(s.columns[j].Key)
			if err != nil {
				return err
			}
			b.Write(key)
			b.WriteString(": ")
			b.Write(value)
		}
		b.WriteString("}")
	}
	b.WriteString("\n]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *sheet) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	record := make([]string, len(s.columns))
	for i, col := range s.columns {
		record[i] = col.Key
	}
	if err := c.Write(record); err != nil {
		return err
	}
	for _, row := range s.rows {
		for i, cell := range row {
			record[i] = exactCell(cell)
		}
		if err := c.Write(record); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func (s *sheet) writeText(w io.Writer) error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	header := make(table.Row, len(s.columns))
	configs := make([]table.ColumnConfig, len(s.columns))
	for i, col := range s.columns {
		header[i] = col.Key
		if col.Title != "" {
			header[i] = col.Title
		}
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMax: 72, WidthMaxEnforcer: text.WrapSoft}
		if s.numeric(i) || s.right && i > 0 {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	for _, row := range s.rows {
		cells := make(table.Row, len(row))
		for i, cell := range row {
			cells[i] = textCell(cell)
		}
		t.AppendRow(cells)
	}
	for _, line := range strings.Split(t.Render(), "\n") {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// numeric tells whether a column has numbers and no text.
func (s *sheet) numeric(i int) bool {
	found := false
	for _, row := range s.rows {
		switch plainCell(row[i]).(type) {
		case string, bool:
			return false
		case nil:
		default:
			found = true
		}
	}
	return found
}

// plainCell resolves pointers; what is not a number is missing.
func plainCell(cell any) any {
	if p, ok := cell.(*float64); ok {
		if p == nil {
			return nil
		}
		cell = *p
	}
	if x, ok := cell.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
		return nil
	}
	return cell
}

// exactCell loses nothing; a missing value is empty.
func exactCell(cell any) string {
	switch v := plainCell(cell).(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// textCell rounds for the eye: floats to four digits, integers with separators. A missing value is a dash.
func textCell(cell any) string {
	switch v := plainCell(cell).(type) {
	case nil:
		return "-"
	case float64:
		return shortFloat(v)
	case int:
		return thousands(int64(v))
	case int32:
		return thousands(int64(v))
	case int64:
		return thousands(v)
	default:
		return fmt.Sprint(v)
	}
}

// shortFloat has four significant digits, or all digits before the point.
func shortFloat(x float64) string {
	a := math.Abs(x)
	switch {
	case x == 0:
		return "0"
	case a >= 1000 && a < 1e15:
		return thousands(int64(math.Round(x)))
	case a < 1e-4 || a >= 1e15:
		return strconv.FormatFloat(x, 'e', 3, 64)
	}
	digits := 3 - int(math.Floor(math.Log10(a)))
	return strconv.FormatFloat(x, 'f', digits, 64)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// without is the sheet without one column.
func (s *sheet) without(key string) *sheet {
	at := slices.IndexFunc(s.columns, func(c column) bool { return c.Key == key })
	out := &sheet{columns: slices.Delete(slices.Clone(s.columns), at, at+1)}
	for _, row := range s.rows {
		out.add(slices.Delete(slices.Clone(row), at, at+1)...)
	}
	return out
}

// writeVertical prints the first row with one line for each column.
func (s *sheet) writeVertical(w io.Writer) error {
	for i, cell := range s.rows[0] {
		if _, err := fmt.Fprintf(w, "  %-24s %s\n", s.columns[i].Key, textCell(cell)); err != nil {
			return err
		}
	}
	return nil
}
