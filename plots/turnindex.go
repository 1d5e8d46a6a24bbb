package plots

import (
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-sim/sluice/results"
)

// drawTurnIndex has three panels over the turn number: TTFT p50, turn latency p50, hit rate with its ceiling. Values are
// means over the runs of an arm.
func drawTurnIndex(in *input, _ Options) (*chart, error) {
	c := &chart{title: "Latency and hits by turn number within the thread", subtitle: in.subtitle(), width: cm(16),
		height: cm(17)}
	ranges := in.turnRanges()
	if len(ranges) == 0 {
		return nil, errors.New("no turn finished")
	}
	panels := []struct {
		label string
		log   bool
		of    func(*results.Bucket) *float64
	}{
		{"TTFT p50 [s]", true, func(b *results.Bucket) *float64 { return b.TTFT.P50 }},
		{"latency p50 [s]", true, func(b *results.Bucket) *float64 { return b.E2EL.P50 }},
		{"hit rate [%]", false, func(b *results.Bucket) *float64 { return b.HitRate }},
	}
	for k, spec := range panels {
		p := newPanel("", spec.label)
		grid(p)
		p.X.Tick.Marker = categoryTicks(ranges, k == len(panels)-1)
		lo, hi := 0.0, 0.0
		add := func(points plotter.XYs, style draw.LineStyle) {
			if len(points) == 0 {
				return
			}
			glyph := draw.GlyphStyle{Color: style.Color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
			p.Add(&plotter.Line{XYs: points, LineStyle: style}, &plotter.Scatter{XYs: points, GlyphStyle: glyph})
			for _, pt := range points {
				if hi == 0 || pt.Y < lo {
					lo = pt.Y
				}
				hi = max(hi, pt.Y)
			}
		}
		if !spec.log {
			add(in.arms[0].byTurn(ranges, func(b *results.Bucket) *float64 { return percent(b.Ceiling) }),
				ceilingStyle())
		}
		for i := range in.arms {
			of := spec.of
			if !spec.log {
				of = func(b *results.Bucket) *float64 { return percent(spec.of(b)) }
			}
			add(in.arms[i].byTurn(ranges, of), lineStyle(i))
		}
		p.X.Min, p.X.Max = -0.3, float64(len(ranges))-0.7
		if spec.log && lo > 0 {
			logAxis(&p.Y, lo, hi)
		} else if !spec.log {
			p.Y.Min, p.Y.Max = 0, 100
		}
		c.panels = append(c.panels, p)
	}
	c.panels[len(c.panels)-1].X.Label.Text = "turn number (from)"
	for i := range in.arms {
		c.legend = append(c.legend, entry{name: in.arms[i].name, line: lineStyle(i)})
	}
	c.legend = append(c.legend, entry{name: "hit rate ceiling", line: ceilingStyle()})
	return c, nil
}

func percent(v *float64) *float64 {
	if v == nil {
		return nil
	}
	p := *v * 100
	return &p
}

// turnRange is a range of turn numbers, both ends included; to is 0 in the open last one.
type turnRange struct{ from, to int64 }

// String is the first turn of the range, with a plus where more follow; whole ranges would run into each other.
func (r turnRange) String() string {
	if r.from == r.to {
		return fmt.Sprint(r.from)
	}
	return fmt.Sprintf("%d+", r.from)
}

// turnRanges are the ranges that any run has.
func (in *input) turnRanges() []turnRange {
	var ranges []turnRange
	for _, a := range in.arms {
		for _, s := range a.Runs {
			for _, b := range s.ByTurn {
				if r := (turnRange{b.From, b.To}); !slices.Contains(ranges, r) {
					ranges = append(ranges, r)
				}
			}
		}
	}
	slices.SortFunc(ranges, func(a, b turnRange) int { return int(a.from - b.from) })
	return ranges
}

// byTurn averages a value over the runs, range by range; ranges without a value are skipped.
func (a *arm) byTurn(ranges []turnRange, of func(*results.Bucket) *float64) plotter.XYs {
	var points plotter.XYs
	for x, r := range ranges {
		sum, n := 0.0, 0
		for _, s := range a.Runs {
			for i := range s.ByTurn {
				b := &s.ByTurn[i]
				if b.From != r.from {
					continue
				}
				if v := of(b); v != nil {
					sum += *v
					n++
				}
			}
		}
		if n > 0 {
			points = append(points, plotter.XY{X: float64(x), Y: sum / float64(n)})
		}
	}
	return points
}

// categoryTicks label the positions 0, 1, 2, ... by name.
func categoryTicks[T fmt.Stringer](names []T, labelled bool) plot.ConstantTicks {
	ticks := make(plot.ConstantTicks, len(names))
	for i, n := range names {
		ticks[i] = plot.Tick{Value: float64(i), Label: " "}
		if labelled {
			ticks[i].Label = n.String()
		}
	}
	return ticks
}
