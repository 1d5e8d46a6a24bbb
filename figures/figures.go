// Package figures declares the figure sets: each is a list of questions, and for each question which arms are simulated,
// what is measured and how it is drawn. Running a set leaves a folder of CSV files and of figures drawn from the same
// numbers. The package simulates nothing itself; the caller brings the simulator.
package figures

import (
	"fmt"
	"strings"

	"github.com/sluice-sim/sluice/policies"
)

// Set is the figures about one subject.
type Set struct {
	Name     string
	Doc      string   // one line
	Scenario string   // name of the bundled scenario that every figure starts from
	Seeds    int      // runs of each arm, with seeds counted up from the scenario's
	Quick    []string // overrides of a quick run, which also has one seed only
	Figures  []Figure
}

// Figure is one question: a grid of arms, what is measured of each, and a chart.
type Figure struct {
	Name     string // of its files
	Question string
	Set      []string // overrides of the scenario, as --set takes them
	Vary     []string // the grid, as --vary takes it
	Columns  []string // measured, names of Columns

	// Base and Match pair every arm with the arm that has all settings of Base and the same values of the knobs in Match.
	// For each column of Paired the difference by seed is reported. Without Base there are no differences.
	Base   []Setting
	Match  []string
	Paired []string

	// Tune is a knob that only a baseline has. The chart shows the value of it with the highest Columns[0], chosen for each
	// x on one seed more than the means are of.
	Tune string

	Chart Chart
}

// Setting is the value of a varied knob.
type Setting struct{ Path, Value string }

// Chart says how a figure is drawn, one panel for each of Panels.
type Chart struct {
	Kind   ChartKind
	X, Y   string // paths of varied knobs; Y is for maps
	XLabel string
	YLabel string
	LogX   bool      // lines: logarithmic x
	Panels []string  // columns
	Only   []Setting // maps: the arms that are shown
}

// ChartKind is lines over a knob, one for each setting of the others, or a map over two knobs.
type ChartKind uint8

// The kinds of charts.
const (
	Lines ChartKind = iota + 1
	Map
)

// Sets lists all figure sets.
func Sets() []Set { return []Set{SessionGate()} }

// Find is the set called name; the error of an unknown name says which there are.
func Find(name string) (Set, error) {
	var names []string
	for _, s := range Sets() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Set{}, fmt.Errorf("no figure set %q%s", name, policies.Suggestion(name, names))
}

// short is the last part of a path, or the part before it where that is "name": what people call a knob.
func short(path string) string {
	parts := strings.Split(path, ".")
	if n := len(parts); n > 1 && parts[n-1] == "name" {
		return parts[n-2]
	}
	return parts[len(parts)-1]
}
