package figures

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-sim/sluice/plots"
)

// draw draws the chart from the means.
func (f *Figure) draw(path string, arms []measured) error {
	subtitle := "one seed"
	if n := len(arms[0].runs); n > 1 {
		subtitle = fmt.Sprintf("means of %d seeds", n)
	}
	switch f.Chart.Kind {
	case Lines:
		return plots.DrawLines(path, f.Question, subtitle, f.lines(arms))
	case Map:
		return plots.DrawMaps(path, f.Question, subtitle, f.maps(arms))
	}
	return fmt.Errorf("unknown kind of chart %d", f.Chart.Kind)
}

func (f *Figure) lines(arms []measured) []plots.LinePanel {
	var panels []plots.LinePanel
	for _, name := range f.Chart.Panels {
		c, _ := findColumn(name)
		panel := plots.LinePanel{X: f.Chart.XLabel, Y: c.label, LogX: f.Chart.LogX}
		for i := range arms {
			m := &arms[i]
			x, err := strconv.ParseFloat(setting(&m.arm, f.Chart.X), 64)
			v, ok := m.mean(name)
			if err != nil || !ok || f.Tune != "" && setting(&m.arm, f.Tune) != "" && f.best(arms, m) != m {
				continue
			}
			panel.Add(f.series(m), x, v)
		}
		panels = append(panels, panel)
	}
	return panels
}

// series names the line that an arm belongs to by its knobs other than x.
func (f *Figure) series(m *measured) string {
	var parts []string
	for _, v := range m.arm.Varied {
		switch v.Path {
		case f.Chart.X:
		case f.Tune:
			parts = append(parts, "best "+short(v.Path))
		case "policy.gate.name", "policy.gate.repair", "policy.gate.preset":
			parts = append(parts, v.Value)
		default:
			parts = append(parts, short(v.Path)+" "+v.Value)
		}
	}
	return strings.Join(parts, ", ")
}

// best is the arm that differs from m at most in the tuned knob and has the highest tuning value.
func (f *Figure) best(arms []measured, m *measured) *measured {
	var best *measured
	for i := range arms {
		a := &arms[i]
		same := !slices.ContainsFunc(f.knobs(), func(path string) bool {
			return path != f.Tune && setting(&a.arm, path) != setting(&m.arm, path)
		})
		if same && (best == nil || a.tuning[f.Columns[0]] > best.tuning[f.Columns[0]]) {
			best = a
		}
	}
	return best
}

func (f *Figure) maps(arms []measured) []plots.MapPanel {
	var panels []plots.MapPanel
	shown := slices.DeleteFunc(slices.Clone(arms), func(m measured) bool {
		return slices.ContainsFunc(f.Chart.Only, func(s Setting) bool { return setting(&m.arm, s.Path) != s.Value })
	})
	xs, ys := values(shown, f.Chart.X), values(shown, f.Chart.Y)
	for _, name := range f.Chart.Panels {
		c, _ := findColumn(name)
		panel := plots.MapPanel{Title: c.label, X: f.Chart.XLabel, Y: f.Chart.YLabel, Xs: xs, Ys: ys}
		for range ys {
			panel.Values = append(panel.Values, slices.Repeat([]float64{math.NaN()}, len(xs)))
		}
		for i := range shown {
			m := &shown[i]
			if v, ok := m.mean(name); ok {
				panel.Values[slices.Index(ys, setting(&m.arm, f.Chart.Y))][slices.Index(xs, setting(&m.arm, f.Chart.X))] = v
			}
		}
		panels = append(panels, panel)
	}
	return panels
}

// values are the values of a knob, in the order of the arms.
func values(arms []measured, path string) []string {
	var all []string
	for i := range arms {
		if v := setting(&arms[i].arm, path); v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}
