package main

import (
	"fmt"
	"io"

	"github.com/sluice-sim/sluice/results"
)

// comparisonJSON is what --json prints of a comparison.
const comparisonJSON = "print one JSON object: the arms, and each metric with its value in every arm"

// writeComparison prints a comparison's table: one column for each arm, then the verdicts and what the numbers are of.
func (o *outputFlags) writeComparison(w io.Writer, t *results.Table) error {
	switch {
	case o.json:
		return t.JSON(w)
	case o.csv:
		return t.CSV(w)
	}
	if err := stringSheet(t.Strings()).writeText(w); err != nil {
		return err
	}
	if heading, rows := t.ClassStrings(); len(rows) > 0 {
		if err := stringSheet(heading, rows).writeText(w); err != nil {
			return err
		}
	}
	for _, text := range append(t.Verdicts, t.Notes...) {
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

func stringSheet(heading []string, rows [][]string) *sheet {
	s := &sheet{right: true}
	for _, title := range heading {
		s.columns = append(s.columns, column{Key: title})
	}
	for _, row := range rows {
		cells := make([]any, len(row))
		for i, cell := range row {
			cells[i] = cell
		}
		s.add(cells...)
	}
	return s
}
