package plots

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-sim/sluice/results"
)

// bar is the value of one arm; half is the half width of its interval, 0 for none.
type bar struct {
	value, half float64
	ok          bool
}

// bars draws horizontal bars from top to bottom with the value at their end.
type bars struct {
	bars   []bar
	colors []color.RGBA
}

// Plot implements plot.Plotter.
func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := textStyle(9, black)
	style.YAlign = text.YCenter
	for i, v := range b.bars {
		middle := float64(len(b.bars) - 1 - i)
		if !v.ok {
			c.FillText(style, vg.Point{X: x(0) + vg.Points(4), Y: y(middle)}, "no value")
			continue
		}
		fill(c, b.colors[i], vg.Rectangle{Min: vg.Point{X: x(0), Y: y(middle - 0.36)}, Max: vg.Point{X: x(v.value), Y: y(middle + 0.36)}})
		label := formatValue(v.value)
		if v.half > 0 {
			line := draw.LineStyle{Color: black, Width: vg.Points(1)}
			low, high := max(v.value-v.half, 0), v.value+v.half
			c.StrokeLine2(line, x(low), y(middle), x(high), y(middle))
			for _, end := range []float64{low, high} {
				if end > 0 { // an interval that passes zero is cut there, without an end mark
					c.StrokeLine2(line, x(end), y(middle-0.15), x(end), y(middle+0.15))
				}
			}
			label += " ± " + formatValue(v.half)
		}
		c.FillText(style, vg.Point{X: x(v.value+v.half) + vg.Points(4), Y: y(middle)}, label)
	}
}

// formatValue prints a value beside a bar or in a cell.
func formatValue(v float64) string { return results.FormatNumber(v) }

// drawBars has one panel per metric: total, output and computed prefill TPS, or the metric asked for.
func drawBars(in *input, opts Options) (*chart, error) {
	metrics := []string{"total_tps", "output_tps", "computed_prefill_tps"}
	if opts.Metric != "" {
		metrics = []string{opts.Metric}
	}
	window := in.arms[0].Runs[0].TableWindow
	c := &chart{title: "Throughput by arm", subtitle: in.subtitle() + windowText(window), width: cm(16)}
	if opts.Metric != "" {
		c.title = metricLabel(opts.Metric)
	}
	names := make([]named, len(in.arms))
	for i := range in.arms {
		names[len(in.arms)-1-i] = named(in.arms[i].name)
	}
	for _, metric := range metrics {
		b := &bars{}
		largest := 0.0
		for i := range in.arms {
			mean, half, n, err := in.arms[i].Interval(metric)
			if err != nil {
				return nil, err
			}
			v := bar{value: mean, ok: n > 0}
			if half != nil && *half > 1e-9*mean { // less is rounding
				v.half = *half
			}
			b.bars = append(b.bars, v)
			b.colors = append(b.colors, lineColors[i%(len(lineColors)-1)])
			largest = max(largest, mean+v.half)
		}
		p := newPanel(metricLabel(metric), "")
		p.Add(b)
		p.X.Min, p.X.Max = 0, roundUp(largest*1.25)
		p.Y.Min, p.Y.Max = -0.6, float64(len(in.arms))-0.4
		p.Y.Tick.Marker = categoryTicks(names, true)
		p.Y.Tick.Length = 0
		c.panels = append(c.panels, p)
	}
	c.height = cm(2) + vg.Length(len(metrics))*(cm(1.6)+cm(0.65)*vg.Length(len(in.arms)))
	return c, nil
}

type named string

// String implements fmt.Stringer.
func (n named) String() string { return string(n) }

func windowText(window string) string {
	if window == "steady" {
		return ", steady window"
	}
	return ", whole run"
}

// metricLabels are readable names of the metrics that figures show most.
var metricLabels = map[string]string{
	"total_tps":               "total TPS, input incl. cached + output [tok/s]",
	"input_tps":               "input TPS, incl. cached [tok/s]",
	"output_tps":              "output TPS [tok/s]",
	"computed_prefill_tps":    "computed prefill TPS [tok/s]",
	"total_tps_per_gpu":       "total TPS per GPU [tok/s]",
	"slo.good_total_tps":      "total TPS within SLO [tok/s]",
	"hit_rate":                "hit rate [share of prompt tokens]",
	"ttft_s.p50":              "TTFT p50 [s]",
	"ttft_s.p95":              "TTFT p95 [s]",
	"ttft_s.p99":              "TTFT p99 [s]",
	"e2el_s.p50":              "turn latency p50 [s]",
	"e2el_s.p99":              "turn latency p99 [s]",
	"tpot_s.p50":              "TPOT p50 [s]",
	"session_time_s.p50":      "session time p50 [s]",
	"milestones.makespan_s":   "time until all sessions are done [s]",
	"gate_wait_s.mean":        "mean gate wait [s]",
	"thrash_index":            "recomputed share of prefill",
	"work.max_mean":           "work of the busiest replica / mean",
	"busy_share":              "busy share of replicas",
	"slo.attainment":          "SLO attainment [share of turns]",
	"engine.preemptions":      "engine preemptions",
	"complete_sessions_per_h": "complete sessions per hour",
}

func metricLabel(metric string) string {
	if label, ok := metricLabels[metric]; ok {
		return label
	}
	return fmt.Sprintf("%s (unit in the name)", metric)
}
