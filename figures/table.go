package figures

import (
	"bytes"
	"encoding/csv"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/sluice-sim/sluice/scenarios"
)

// knobs are the varied paths, in the order of Vary.
func (f *Figure) knobs() []string {
	var paths []string
	for _, v := range f.Vary {
		path, _, _ := strings.Cut(v, "=")
		paths = append(paths, path)
	}
	return paths
}

// setting is the arm's value of a varied knob; "" where the knob has no effect.
func setting(a *scenarios.Arm, path string) string {
	for _, v := range a.Varied {
		if v.Path == path {
			return v.Value
		}
	}
	return ""
}

// mean averages a column over the runs that have it.
func (m *measured) mean(name string) (float64, bool) {
	sum, n := 0.0, 0
	for _, r := range m.runs {
		if v, ok := r[name]; ok {
			sum += v
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	return sum / float64(n), true
}

// base is the arm that m is compared to, nil for none.
func (f *Figure) base(arms []measured, m *measured) *measured {
	if len(f.Base) == 0 {
		return nil
	}
	i := slices.IndexFunc(arms, func(b measured) bool {
		return !slices.ContainsFunc(f.Base, func(s Setting) bool { return setting(&b.arm, s.Path) != s.Value }) &&
			!slices.ContainsFunc(f.Match, func(path string) bool { return setting(&b.arm, path) != setting(&m.arm, path) })
	})
	if i < 0 {
		return nil
	}
	return &arms[i]
}

// change is the mean of the differences by seed, relative to the base's mean, and the half width of its 95 % confidence
// interval by Student's t; half is NaN with fewer than two seeds.
func change(base, m *measured, name string) (mean, half float64, ok bool) {
	var differences []float64
	baseSum := 0.0
	for i := range min(len(base.runs), len(m.runs)) {
		b, okB := base.runs[i][name]
		v, okV := m.runs[i][name]
		if okB && okV {
			differences = append(differences, v-b)
			baseSum += b
		}
	}
	n := float64(len(differences))
	if n == 0 || baseSum == 0 {
		return 0, 0, false
	}
	for _, d := range differences {
		mean += d / n
	}
	scale := math.Abs(baseSum / n)
	if n < 2 {
		return mean / scale, math.NaN(), true
	}
	squares := 0.0
	for _, d := range differences {
		squares += float64((d - mean) * (d - mean))
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975)
	return mean / scale, t * math.Sqrt(squares/(n-1)/n) / scale, true
}

// outcome says in a word what a change comes to. A change below one percent is a tie even if it is sure: differences so
// small are within what a model of the engine gets wrong.
func outcome(mean, half float64) string {
	switch {
	case math.IsNaN(half):
		return "one seed"
	case math.Abs(mean) < .01 || math.Abs(mean) <= half:
		return "tie"
	case mean > 0:
		return "higher"
	}
	return "lower"
}

// table is the CSV: one row for each arm, knobs, means over the seeds, and for the paired columns the change.
func (f *Figure) table(arms []measured) [][]string {
	knobs := f.knobs()
	var head []string
	for _, k := range knobs {
		head = append(head, short(k))
	}
	head = append(head, f.Columns...)
	for _, c := range f.Paired {
		head = append(head, c+"_change", c+"_half_width", c+"_is")
	}
	if f.Tune != "" {
		head = append(head, "tuning_"+f.Columns[0], "tuned")
	}
	rows := [][]string{head}
	for i := range arms {
		m := &arms[i]
		var row []string
		for _, k := range knobs {
			row = append(row, setting(&m.arm, k))
		}
		for _, c := range f.Columns {
			v, ok := m.mean(c)
			row = append(row, cell(v, ok))
		}
		base := f.base(arms, m)
		for _, c := range f.Paired {
			row = append(row, pairedCells(base, m, c)...)
		}
		if f.Tune != "" {
			v, ok := m.tuning[f.Columns[0]]
			best := ""
			if setting(&m.arm, f.Tune) != "" && f.best(arms, m) == m {
				best = "best"
			}
			row = append(row, cell(v, ok), best)
		}
		rows = append(rows, row)
	}
	return rows
}

func pairedCells(base, m *measured, name string) []string {
	if base == nil || base == m {
		return []string{"", "", ""}
	}
	mean, half, ok := change(base, m, name)
	if !ok {
		return []string{"", "", ""}
	}
	return []string{fixed(mean), cell(math.Round(half*1e4)/1e4, !math.IsNaN(half)), outcome(mean, half)}
}

// cell prints four digits; an absent value is empty.
func cell(v float64, ok bool) string {
	if !ok {
		return ""
	}
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	if math.Abs(v) < 1e-4 { // a share or a wait that rounds to nothing
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }

func (f *Figure) writeCSV(path string, arms []measured) error {
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(f.table(arms)); err != nil {
		return err
	}
	return replace(path, b.Bytes())
}

// replace writes a file as a whole.
func replace(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".figure-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
