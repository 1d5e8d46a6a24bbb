package plots

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// cells is a grid of values by [y][x]; NaN where there is none.
type cells struct {
	values    [][]float64
	low, high float64
}

// Plot implements plot.Plotter.
func (h *cells) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for j, row := range h.values {
		for i, v := range row {
			box := vg.Rectangle{Min: vg.Point{X: x(float64(i) - 0.5), Y: y(float64(j) - 0.5)},
				Max: vg.Point{X: x(float64(i) + 0.5), Y: y(float64(j) + 0.5)}}
			ink, label := lightGray, "-"
			if !math.IsNaN(v) {
				ink, label = heat(h.share(v)), formatValue(v)
			}
			fill(c, ink, box)
			style := textStyle(9, color.Color(inkOn(ink)))
			style.XAlign, style.YAlign = text.XCenter, text.YCenter
			if style.Width(label) < box.Max.X-box.Min.X && style.Height(label) < box.Max.Y-box.Min.Y {
				c.FillText(style, vg.Point{X: x(float64(i)), Y: y(float64(j))}, label)
			}
		}
	}
}

func (h *cells) share(v float64) float64 {
	if h.high <= h.low {
		return 0.5
	}
	return (v - h.low) / (h.high - h.low)
}

// drawHeatmap colours a metric over two varied knobs.
func drawHeatmap(in *input, opts Options) (*chart, error) {
	metric := opts.Metric
	if metric == "" {
		metric = "total_tps"
	}
	xPath, yPath, err := in.twoKnobs(opts)
	if err != nil {
		return nil, err
	}
	xs, ys := in.values(xPath), in.values(yPath)
	h := &cells{low: math.Inf(1), high: math.Inf(-1)}
	for range ys {
		row := make([]float64, len(xs))
		for i := range row {
			row[i] = math.NaN()
		}
		h.values = append(h.values, row)
	}
	owner := map[[2]int]string{}
	for k := range in.arms {
		a := &in.arms[k]
		xv, _ := a.Setting(xPath)
		yv, _ := a.Setting(yPath)
		at := [2]int{slices.Index(ys, yv), slices.Index(xs, xv)}
		if at[0] < 0 || at[1] < 0 {
			continue
		}
		if other := owner[at]; other != "" {
			return nil, fmt.Errorf("arms %q and %q have the same %s and %s: a third knob varies; draw a comparison where it does not", other, a.name, xPath, yPath)
		}
		owner[at] = a.name
		v, ok, err := a.mean(metric)
		if err != nil {
			return nil, err
		}
		if ok {
			h.values[at[0]][at[1]] = v
			h.low, h.high = min(h.low, v), max(h.high, v)
		}
	}
	if math.IsInf(h.low, 0) {
		return nil, fmt.Errorf("no arm has a value of %s", metric)
	}
	p := newPanel(xPath, yPath)
	p.Add(h)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(len(xs))-0.5, -0.5, float64(len(ys))-0.5
	p.X.Tick.Marker, p.Y.Tick.Marker = categoryTicks(asNamed(xs), true), categoryTicks(asNamed(ys), true)
	return &chart{title: metricLabel(metric), subtitle: in.subtitle() + windowText(in.arms[0].Runs[0].TableWindow),
		panels: []*plot.Plot{p}, scale: &colorScale{h.low, h.high, metricLabel(metric)},
		width: cm(5) + cm(1.8)*vg.Length(max(len(xs), 5)), height: cm(4) + cm(1.1)*vg.Length(max(len(ys), 3))}, nil
}

func asNamed(values []string) []named {
	out := make([]named, len(values))
	for i, v := range values {
		out[i] = named(v)
	}
	return out
}

// knobs are the paths of the varied knobs, in order of appearance.
func (in *input) knobs() []string {
	var paths []string
	for _, a := range in.arms {
		for _, s := range a.Settings {
			if !slices.Contains(paths, s.Path) {
				paths = append(paths, s.Path)
			}
		}
	}
	return paths
}

// values are the values of a knob, in order of appearance, or ascending when all are numbers.
func (in *input) values(path string) []string {
	var values []string
	numeric := true
	for _, a := range in.arms {
		v, ok := a.Setting(path)
		if !ok || slices.Contains(values, v) {
			continue
		}
		values = append(values, v)
		_, err := strconv.ParseFloat(v, 64)
		numeric = numeric && err == nil
	}
	if numeric {
		slices.SortStableFunc(values, func(a, b string) int {
			x, _ := strconv.ParseFloat(a, 64)
			y, _ := strconv.ParseFloat(b, 64)
			return cmp.Compare(x, y)
		})
	}
	return values
}

func (in *input) twoKnobs(opts Options) (x, y string, err error) {
	knobs := in.knobs()
	free := slices.DeleteFunc(slices.Clone(knobs), func(k string) bool { return k == opts.X || k == opts.Y })
	take := func(asked string) string {
		if asked != "" || len(free) == 0 {
			return asked
		}
		k := free[0]
		free = free[1:]
		return k
	}
	x = take(opts.X)
	y = take(opts.Y)
	for _, k := range []string{x, y} {
		if !slices.Contains(knobs, k) || x == y {
			return "", "", fmt.Errorf("two varied knobs are needed: %s", knobList(knobs))
		}
	}
	return x, y, nil
}

func knobList(knobs []string) string {
	if len(knobs) == 0 {
		return "no knob varies in these folders"
	}
	return "these folders vary " + strings.Join(knobs, ", ")
}
