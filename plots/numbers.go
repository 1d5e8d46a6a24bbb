package plots

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// LinePanel is one panel of lines over numbers.
type LinePanel struct {
	X, Y  string // labels
	LogX  bool   // ignored where an x is not positive
	Lines []Line
}

// Line is one line; its points may be in any order.
type Line struct {
	Name   string
	Points []Point
}

// Point is one point of a line.
type Point struct{ X, Y float64 }

// Add adds a point to the line called name, which is made if there is none.
func (p *LinePanel) Add(name string, x, y float64) {
	i := slices.IndexFunc(p.Lines, func(l Line) bool { return l.Name == name })
	if i < 0 {
		i = len(p.Lines)
		p.Lines = append(p.Lines, Line{Name: name})
	}
	p.Lines[i].Points = append(p.Lines[i].Points, Point{x, y})
}

// DrawLines draws panels of lines below each other, with one legend, to an SVG file. All panels have the x range of all
// points; y begins at 0.
func DrawLines(out, title, subtitle string, panels []LinePanel) error {
	c := &chart{title: title, subtitle: subtitle, width: cm(16), height: cm(2.5 + 5*float64(len(panels)))}
	lo, hi := math.Inf(1), math.Inf(-1)
	styles := map[string]int{}
	for _, panel := range panels {
		for _, l := range panel.Lines {
			if _, ok := styles[l.Name]; !ok {
				styles[l.Name] = len(styles)
				c.legend = append(c.legend, entry{name: l.Name, line: lineStyle(styles[l.Name])})
			}
			for _, pt := range l.Points {
				lo, hi = min(lo, pt.X), max(hi, pt.X)
			}
		}
	}
	if math.IsInf(lo, 0) {
		return errors.New("no arm has a value")
	}
	for i, panel := range panels {
		p := newPanel("", panel.Y)
		grid(p)
		top := 0.0
		for _, l := range panel.Lines {
			points := make(plotter.XYs, len(l.Points))
			for k, pt := range l.Points {
				points[k] = plotter.XY(pt)
				top = max(top, pt.Y)
			}
			slices.SortStableFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
			style := lineStyle(styles[l.Name])
			glyph := draw.GlyphStyle{Color: style.Color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
			p.Add(&plotter.Line{XYs: points, LineStyle: style}, &plotter.Scatter{XYs: points, GlyphStyle: glyph})
		}
		p.Y.Min, p.Y.Max = 0, roundUp(top)
		if panel.LogX && lo > 0 && hi > lo {
			logAxis(&p.X, lo, hi)
		} else {
			pad := max((hi-lo)*0.03, 1e-9)
			p.X.Min, p.X.Max = lo-pad, hi+pad
		}
		if i < len(panels)-1 {
			p.X.Tick.Marker = unlabelled{p.X.Tick.Marker}
		} else {
			p.X.Label.Text = panel.X
		}
		c.panels = append(c.panels, p)
	}
	return c.write(out)
}

// MapPanel is one map of colours: Values by [y][x], NaN where there is none.
type MapPanel struct {
	Title  string
	X, Y   string // labels
	Xs, Ys []string
	Values [][]float64
}

// DrawMaps draws maps below each other to an SVG file. Each has colours of its own, from its least to its largest value.
func DrawMaps(out, title, subtitle string, panels []MapPanel) error {
	c := &chart{title: title, subtitle: subtitle, width: cm(16)}
	rows := 0
	for _, m := range panels {
		h := &cells{values: m.Values, low: math.Inf(1), high: math.Inf(-1)}
		for _, row := range m.Values {
			for _, v := range row {
				if !math.IsNaN(v) {
					h.low, h.high = min(h.low, v), max(h.high, v)
				}
			}
		}
		if math.IsInf(h.low, 0) {
			return fmt.Errorf("no arm has a value of %s", m.Title)
		}
		p := newPanel(m.X, m.Y)
		p.Title.Text = m.Title
		p.Title.TextStyle.Font = textStyle(10, black).Font
		p.Add(h)
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(len(m.Xs))-0.5, -0.5, float64(len(m.Ys))-0.5
		p.X.Tick.Marker, p.Y.Tick.Marker = categoryTicks(asNamed(m.Xs), true), categoryTicks(asNamed(m.Ys), true)
		c.panels = append(c.panels, p)
		rows += len(m.Ys)
	}
	c.height = cm(2) + cm(2)*vg.Length(len(panels)) + cm(0.75)*vg.Length(rows)
	return c.write(out)
}

// write renders a chart to an SVG file, which appears only when it is complete.
func (c *chart) write(out string) (err error) {
	if filepath.Ext(out) != ".svg" {
		return fmt.Errorf("figure file %q: expected a name that ends in .svg", out)
	}
	defer func() { // the plotting library panics on what it cannot draw
		if p := recover(); p != nil {
			err = fmt.Errorf("figure %s: %v", out, p)
		}
	}()
	var b bytes.Buffer
	if err := c.render(&b, "svg"); err != nil {
		return err
	}
	return writeFile(out, b.Bytes())
}
