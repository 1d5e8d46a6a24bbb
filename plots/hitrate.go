package plots

import (
	"errors"
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-sim/sluice/results"
)

const (
	timeBins    = 60
	replicaMost = 8 // replicas drawn one by one
)

// hitBins sums hit, ceiling and prompt tokens by the time of first scheduling.
type hitBins struct{ hit, ceiling, prompt [timeBins]float64 }

func (b *hitBins) add(bin int, t *results.Turn) {
	b.hit[bin] += float64(t.HitGPU) + float64(t.HitCPU) + float64(t.HitGlobal)
	b.ceiling[bin] += float64(t.CeilingTokens)
	b.prompt[bin] += float64(t.PromptTokens)
}

// line is the rate in percent over time; bins without prompts are skipped.
func (b *hitBins) line(of *[timeBins]float64, seconds float64) plotter.XYs {
	var points plotter.XYs
	for i := range timeBins {
		if b.prompt[i] > 0 {
			points = append(points, plotter.XY{X: (float64(i) + 0.5) * seconds / timeBins, Y: 100 * of[i] / b.prompt[i]})
		}
	}
	return points
}

// drawHitRate shows the first run of every arm.
func drawHitRate(in *input, _ Options) (*chart, error) {
	end := 0.0
	for _, a := range in.arms {
		if w := a.Runs[0].Whole; w != nil {
			end = max(end, w.End)
		}
	}
	if end == 0 {
		return nil, errors.New("no turn finished")
	}
	p := newPanel("time [s]", "hit rate [% of prompt tokens]")
	grid(p)
	first := in.arms[0].Runs[0]
	c := &chart{title: "Hit rate over time", subtitle: fmt.Sprintf("%s, seed %d, by time of first scheduling in steps of %s s",
		first.Run, first.Seed, results.FormatNumber(end/timeBins)), width: cm(16), height: cm(9.5), panels: []*plot.Plot{p}}
	single := len(in.arms) == 1 && first.Cluster.Replicas > 1 && first.Cluster.Replicas <= replicaMost
	for i := range in.arms {
		all, replicas, err := in.arms[i].hitsOverTime(end)
		if err != nil {
			return nil, err
		}
		ceiling := ceilingStyle()
		if !single && len(in.arms) > 1 { // the mix of turns at a moment differs by arm, so the ceiling does
			ceiling.Color, ceiling.Width = lineStyle(i).Color, vg.Points(0.8)
		}
		p.Add(&plotter.Line{XYs: all.line(&all.ceiling, end), LineStyle: ceiling})
		if !single {
			c.addLine(p, all.line(&all.hit, end), in.arms[i].name, lineStyle(i))
			continue
		}
		for r := range replicas {
			style := lineStyle(r % (len(lineColors) - 1)) // black is for all replicas together
			style.Width = vg.Points(0.9)
			if r >= len(lineColors)-1 {
				style = dashed(style, 1)
			}
			c.addLine(p, replicas[r].line(&replicas[r].hit, end), fmt.Sprintf("replica %d", r), style)
		}
		c.addLine(p, all.line(&all.hit, end), "all replicas", draw.LineStyle{Color: black, Width: vg.Points(2)})
	}
	name := "ceiling"
	if len(in.arms) > 1 {
		name = "ceiling of each arm"
	}
	c.legend = append(c.legend, entry{name: name, line: ceilingStyle()})
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, end, 0, 100
	return c, nil
}

// addLine adds a line and its legend; an empty one is left out.
func (c *chart) addLine(p *plot.Plot, points plotter.XYs, name string, style draw.LineStyle) {
	if len(points) == 0 {
		return
	}
	p.Add(&plotter.Line{XYs: points, LineStyle: style})
	c.legend = append(c.legend, entry{name: name, line: style})
}

func (a *arm) hitsOverTime(end float64) (*hitBins, []hitBins, error) {
	run, err := a.run(0)
	if err != nil {
		return nil, nil, err
	}
	all := &hitBins{}
	replicas := make([]hitBins, min(run.Summary.Cluster.Replicas, replicaMost))
	err = run.Turns(func(t *results.Turn) error {
		if !t.Final || t.ScheduledPS == results.Missing {
			return nil
		}
		bin := min(int(results.Seconds(t.ScheduledPS)/end*timeBins), timeBins-1)
		all.add(bin, t)
		if r := int(t.Replica); r >= 0 && r < len(replicas) {
			replicas[r].add(bin, t)
		}
		return nil
	})
	return all, replicas, err
}
