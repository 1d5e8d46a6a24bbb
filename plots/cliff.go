package plots

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// sweep is the arms that differ only in the knob on the x axis, by its value.
type sweep struct {
	name   string
	points []sweepPoint
}

type sweepPoint struct {
	x   float64
	arm *arm
}

// drawCliff has three panels over a varied knob: TTFT p50, p95 and p99; hit rate; TPS per GPU or the metric asked for.
func drawCliff(in *input, opts Options) (*chart, error) {
	path, err := in.sweptKnob(opts.X)
	if err != nil {
		return nil, err
	}
	sweeps := in.sweeps(path)
	metric := opts.Metric
	if metric == "" {
		metric = "total_tps_per_gpu"
	}
	c := &chart{title: "Latency, hits and throughput over " + path,
		subtitle: in.subtitle() + windowText(in.arms[0].Runs[0].TableWindow), width: cm(16), height: cm(17)}
	quantiles := []string{"p50", "p95", "p99"}
	ttft := &lines{panel: newPanel("", "TTFT [s]")}
	hits := &lines{panel: newPanel("", "hit rate [%]")}
	tps := &lines{panel: newPanel(path, metricLabel(metric))}
	for _, l := range []*lines{ttft, hits, tps} {
		grid(l.panel)
		c.panels = append(c.panels, l.panel)
	}
	for i, s := range sweeps {
		for q, name := range quantiles {
			style := dashed(lineStyle(i), q)
			if len(sweeps) == 1 {
				style = lineStyle(q)
				c.legend = append(c.legend, entry{name: "TTFT " + name, line: style})
			}
			if err := ttft.add(s, "ttft_s."+name, 1, style); err != nil {
				return nil, err
			}
		}
		style := lineStyle(i)
		if len(sweeps) == 1 {
			style.Color = black
		}
		name := s.name
		if name == "" {
			name = "hit rate and TPS"
		}
		c.legend = append(c.legend, entry{name: name, line: style})
		if err := hits.add(s, "hit_rate", 100, style); err != nil {
			return nil, err
		}
		if err := tps.add(s, metric, 1, style); err != nil {
			return nil, err
		}
	}
	ceiling := ceilingStyle()
	if err := hits.add(sweeps[0], "hit_ceiling", 100, ceiling); err != nil {
		return nil, err
	}
	if len(sweeps) > 1 {
		for q, name := range quantiles {
			c.legend = append(c.legend, entry{name: "TTFT " + name, line: dashed(draw.LineStyle{Color: gray, Width: vg.Points(1.6)}, q)})
		}
	}
	c.legend = append(c.legend, entry{name: "hit rate ceiling", line: ceiling})
	if ttft.n == 0 && tps.n == 0 {
		return nil, fmt.Errorf("no arm has a value")
	}
	if ttft.n > 0 && ttft.low > 0 {
		logAxis(&ttft.panel.Y, ttft.low, ttft.high)
	}
	hits.panel.Y.Min, hits.panel.Y.Max = 0, 100
	tps.panel.Y.Min, tps.panel.Y.Max = 0, roundUp(tps.high)
	sweepAxis(sweeps, c.panels)
	return c, nil
}

// lines collects lines of one panel and their range.
type lines struct {
	panel     *plot.Plot
	low, high float64
	n         int
}

func (l *lines) add(s sweep, metric string, scale float64, style draw.LineStyle) error {
	var points plotter.XYs
	for _, pt := range s.points {
		v, ok, err := pt.arm.mean(metric)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		v *= scale
		points = append(points, plotter.XY{X: pt.x, Y: v})
		if l.n == 0 || v < l.low {
			l.low = v
		}
		if l.n == 0 || v > l.high {
			l.high = v
		}
		l.n++
	}
	if len(points) > 0 {
		glyph := draw.GlyphStyle{Color: style.Color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
		l.panel.Add(&plotter.Line{XYs: points, LineStyle: style}, &plotter.Scatter{XYs: points, GlyphStyle: glyph})
	}
	return nil
}

// sweepAxis gives all panels the same x axis, logarithmic over more than a factor of 50.
func sweepAxis(sweeps []sweep, panels []*plot.Plot) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, s := range sweeps {
		for _, pt := range s.points {
			lo, hi = min(lo, pt.x), max(hi, pt.x)
		}
	}
	for i, p := range panels {
		if lo > 0 && hi/lo > 50 {
			logAxis(&p.X, lo, hi)
		} else {
			pad := (hi - lo) * 0.03
			if pad == 0 {
				pad = 1
			}
			p.X.Min, p.X.Max = lo-pad, hi+pad
		}
		if i < len(panels)-1 {
			p.X.Tick.Marker = unlabelled{p.X.Tick.Marker}
		}
	}
}

// unlabelled keeps the ticks of panels above the last without their numbers.
type unlabelled struct{ plot.Ticker }

// Ticks implements plot.Ticker.
func (u unlabelled) Ticks(lo, hi float64) []plot.Tick {
	ticks := u.Ticker.Ticks(lo, hi)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = " "
		}
	}
	return ticks
}

// sweptKnob is the knob asked for, or the first whose values are all numbers.
func (in *input) sweptKnob(asked string) (string, error) {
	knobs := in.knobs()
	for _, k := range knobs {
		values := in.values(k)
		numeric := !slices.ContainsFunc(values, func(v string) bool { _, err := strconv.ParseFloat(v, 64); return err != nil })
		switch {
		case k == asked && !numeric:
			return "", fmt.Errorf("knob %s has values that are not numbers: %s", k, strings.Join(values, ", "))
		case k == asked, asked == "" && numeric && len(values) > 1:
			return k, nil
		}
	}
	if asked != "" {
		return "", fmt.Errorf("knob %s does not vary: %s", asked, knobList(knobs))
	}
	return "", fmt.Errorf("a varied knob with numbers is needed: %s", knobList(knobs))
}

// sweeps groups the arms by their other knobs, in order of appearance.
func (in *input) sweeps(path string) []sweep {
	var out []sweep
	for k := range in.arms {
		a := &in.arms[k]
		value, ok := a.Setting(path)
		if !ok {
			continue
		}
		x, _ := strconv.ParseFloat(value, 64)
		var rest []string
		for _, s := range a.Settings {
			if s.Path != path {
				rest = append(rest, shortPath(s.Path)+" "+s.Value)
			}
		}
		name := strings.Join(rest, ", ")
		i := slices.IndexFunc(out, func(s sweep) bool { return s.name == name })
		if i < 0 {
			i = len(out)
			out = append(out, sweep{name: name})
		}
		out[i].points = append(out[i].points, sweepPoint{x, a})
	}
	for _, s := range out {
		slices.SortStableFunc(s.points, func(a, b sweepPoint) int { return cmp.Compare(a.x, b.x) })
	}
	return out
}

// shortPath names a knob as people do: the router for policy.router.name, else the last part.
func shortPath(path string) string {
	parts := strings.Split(path, ".")
	if n := len(parts); n > 1 && parts[n-1] == "name" {
		return parts[n-2]
	}
	return parts[len(parts)-1]
}
