package plots

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/sluice-sim/sluice/results"
)

// cdfSpec is one of the three distributions.
type cdfSpec struct {
	title, xLabel, yLabel string
	of                    func(*results.Latencies) []float64
}

var (
	ttftCDF = cdfSpec{"Time to first token", "TTFT, gate wait included [s]", "share of turns [%]",
		func(l *results.Latencies) []float64 { return l.TTFT }}
	e2elCDF = cdfSpec{"Turn latency", "arrival to last token [s]", "share of turns [%]",
		func(l *results.Latencies) []float64 { return l.E2EL }}
	sessionCDF = cdfSpec{"Session completion time", "first arrival to last token [s]", "share of complete sessions [%]",
		func(l *results.Latencies) []float64 { return l.SessionTime }}
)

// cdfPoints bounds the points of a line; a longer sample is drawn through evenly spaced ranks and both ends.
const cdfPoints = 1000

func drawCDF(spec cdfSpec) func(*input, Options) (*chart, error) {
	return func(in *input, _ Options) (*chart, error) {
		p := newPanel(spec.xLabel, spec.yLabel)
		grid(p)
		c := &chart{title: spec.title, subtitle: in.subtitle(), width: cm(15), height: cm(10)}
		lo, hi := math.Inf(1), math.Inf(-1)
		for i := range in.arms {
			values, err := in.arms[i].pooled(spec.of)
			if err != nil {
				return nil, err
			}
			if len(values) == 0 {
				continue
			}
			style := lineStyle(i)
			line := &plotter.Line{XYs: cdfLine(values), StepStyle: plotter.PostStep, LineStyle: style}
			p.Add(line)
			c.legend = append(c.legend, entry{name: in.arms[i].name, line: style})
			lo, hi = min(lo, values[0]), max(hi, values[len(values)-1])
		}
		if len(c.legend) == 0 {
			return nil, errors.New("no turn or session of this kind finished")
		}
		p.Y.Min, p.Y.Max = 0, 100
		if lo > 0 {
			logAxis(&p.X, lo, hi)
		} else {
			p.X.Min, p.X.Max = 0, roundUp(hi)
		}
		c.panels = append(c.panels, p)
		return c, nil
	}
}

// pooled is the samples of all runs of the arm, ascending.
func (a *arm) pooled(of func(*results.Latencies) []float64) ([]float64, error) {
	var values []float64
	for i := range a.Runs {
		run, err := a.run(i)
		if err != nil {
			return nil, err
		}
		l, err := run.Latencies()
		if err != nil {
			return nil, err
		}
		values = append(values, of(l)...)
	}
	slices.Sort(values)
	return values, nil
}

// cdfLine runs from 0 % at the smallest value to 100 % at the largest.
func cdfLine(sorted []float64) plotter.XYs {
	n := len(sorted)
	points := plotter.XYs{{X: sorted[0], Y: 0}}
	for k := range min(n, cdfPoints) {
		i := k
		if n > cdfPoints {
			i = k * (n - 1) / (cdfPoints - 1)
		}
		points = append(points, plotter.XY{X: sorted[i], Y: 100 * float64(i+1) / float64(n)})
	}
	return points
}
