package plots

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-sim/sluice/results"
)

// lineColors are those of Okabe and Ito, which people with any colour vision tell apart; yellow is left out because it
// is too light for lines on white.
var lineColors = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x00, 0x00, 0x00, 0xff},
}

var (
	gray      = color.RGBA{0x70, 0x70, 0x70, 0xff}
	lightGray = color.RGBA{0xe2, 0xe2, 0xe2, 0xff}
	black     = color.RGBA{0, 0, 0, 0xff}
	white     = color.RGBA{0xff, 0xff, 0xff, 0xff}
)

// ceilingStyle is that of every hit rate ceiling.
func ceilingStyle() draw.LineStyle {
	return draw.LineStyle{Color: gray, Width: vg.Points(1.4), Dashes: dashes[3]}
}

var dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}}

// lineStyle is the style of the i-th series. A colour that comes again has another dash.
func lineStyle(i int) draw.LineStyle {
	return draw.LineStyle{Color: lineColors[i%len(lineColors)], Width: vg.Points(1.6),
		Dashes: dashes[i/len(lineColors)%len(dashes)]}
}

func dashed(l draw.LineStyle, dash int) draw.LineStyle {
	l.Dashes = dashes[dash%len(dashes)]
	return l
}

func cm(v float64) vg.Length { return vg.Length(v) * vg.Centimeter }

// textStyle is the figures' font at a size in points.
func textStyle(size float64, c color.Color) text.Style {
	font := plot.DefaultFont
	font.Variant = "Sans"
	font.Size = vg.Points(size)
	return text.Style{Color: c, Font: font, Handler: plot.DefaultTextHandler}
}

// newPanel is a plot in the house style.
func newPanel(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = textStyle(10, black).Font
		a.Tick.Label.Font = textStyle(9, black).Font
		a.LineStyle.Width = vg.Points(0.7)
		a.Tick.LineStyle.Width = vg.Points(0.7)
		a.Label.Padding = vg.Points(3)
		a.Tick.Marker = linearTicks{}
		a.Padding = 0
	}
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	return p
}

// grid goes below the data.
func grid(p *plot.Plot) {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = lightGray, lightGray
	g.Vertical.Width, g.Horizontal.Width = vg.Points(0.5), vg.Points(0.5)
	p.Add(g)
}

// linearTicks has about five labelled ticks at multiples of 1, 2 or 5 of a decade.
type linearTicks struct{}

// Ticks implements plot.Ticker.
func (linearTicks) Ticks(lo, hi float64) []plot.Tick {
	step := roundLog((hi-lo)/6, true)
	var ticks []plot.Tick
	for k := math.Ceil(lo/step-1e-9) + 0; k*step <= hi+step*1e-9; k++ { // + 0 makes -0 to 0
		ticks = append(ticks, plot.Tick{Value: k * step, Label: tickLabel(k * step)})
	}
	return ticks
}

// tickLabel prints a tick without digits that round numbers do not need.
func tickLabel(v float64) string {
	rounded := math.Round(v*1e9) / 1e9
	if a := math.Abs(rounded); a >= 1000 || a == 0 {
		return results.FormatNumber(rounded)
	}
	return formatShort(rounded)
}

// logTicks marks 1, 2 and 5 of every decade, and labels them as far as there is room.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(lo, hi float64) []plot.Tick {
	decades := math.Log10(hi / lo)
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, e)
			if v < lo*(1-1e-9) || v > hi*(1+1e-9) {
				continue
			}
			label := ""
			if m == 1 || (m == 2 || m == 5) && decades <= 3 || decades <= 0.7 {
				label = tickLabel(v)
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// logAxis makes an axis logarithmic, from 1, 2 or 5 of a decade to another.
func logAxis(a *plot.Axis, lo, hi float64) {
	a.Scale = plot.LogScale{}
	a.Tick.Marker = logTicks{}
	a.Min, a.Max = roundLog(lo, false), roundLog(hi, true)
	if a.Min >= a.Max {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// roundLog rounds to the next of 1, 2 and 5 of a decade, up or down.
func roundLog(v float64, up bool) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	steps := []float64{1, 2, 5, 10}
	for i := range steps {
		if up && v <= steps[i]*decade*(1+1e-9) {
			return steps[i] * decade
		}
		if !up && i+1 < len(steps) && v < steps[i+1]*decade*(1-1e-9) {
			return steps[i] * decade
		}
	}
	return steps[len(steps)-1] * decade
}

// roundUp is the smallest of 1, 2, 2.5, 5 and 10 of a decade that is at least v.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8} {
		if v <= m*decade {
			return m * decade
		}
	}
	return 10 * decade
}

// viridis is the perceptually even, colour-blind-safe scale of that name at nine points.
var viridis = []color.RGBA{
	{68, 1, 84, 255}, {71, 45, 123, 255}, {59, 82, 139, 255}, {44, 114, 142, 255}, {33, 145, 140, 255},
	{40, 174, 128, 255}, {94, 201, 98, 255}, {173, 220, 48, 255}, {253, 231, 37, 255},
}

// heat is the colour at share t of the scale, 0 to 1.
func heat(t float64) color.RGBA {
	t = min(max(t, 0), 1) * float64(len(viridis)-1)
	i := min(int(t), len(viridis)-2)
	mix := func(a, b uint8) uint8 {
		return uint8(math.Round(float64(a) + (float64(b)-float64(a))*(t-float64(i))))
	}
	a, b := viridis[i], viridis[i+1]
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}

// inkOn is black or white, whichever reads better on c.
func inkOn(c color.RGBA) color.RGBA {
	if 0.299*float64(c.R)+0.587*float64(c.G)+0.114*float64(c.B) > 140 {
		return black
	}
	return white
}
