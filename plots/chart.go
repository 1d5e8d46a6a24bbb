package plots

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a figure before it is drawn: a title, panels from top to bottom with a common left edge, and a legend below
// the data, where it hides nothing.
type chart struct {
	title, subtitle string
	panels          []*plot.Plot
	legend          []entry
	scale           *colorScale
	width, height   vg.Length
}

// entry is one line of the legend.
type entry struct {
	name  string
	line  draw.LineStyle
	glyph *draw.GlyphStyle
}

// colorScale is the legend of a heat map.
type colorScale struct {
	low, high float64
	label     string
}

const (
	margin    = 8 // points
	entryGap  = 16
	thumbnail = 24
	thumbPad  = 4
)

var pngDPI = 160

// fixedDates makes the PDF library write no time of day.
var fixedDates = sync.OnceFunc(func() {
	epoch := time.Unix(0, 0).UTC()
	fpdf.SetDefaultCreationDate(epoch)
	fpdf.SetDefaultModificationDate(epoch)
	fpdf.SetDefaultCatalogSort(true)
})

func (c *chart) render(w io.Writer, format string) error {
	var canvas vg.CanvasWriterTo
	switch format {
	case "svg":
		canvas = vgsvg.New(c.width, c.height)
	case "png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(c.width, c.height), vgimg.UseDPI(pngDPI))}
	case "pdf":
		fixedDates()
		canvas = vgpdf.New(c.width, c.height)
	default:
		return fmt.Errorf("unknown format %q", format)
	}
	dc := draw.New(canvas)
	fill(dc, white, dc.Rectangle)
	c.drawOn(draw.Crop(dc, margin, -margin, margin, -margin))
	if format != "svg" {
		_, err := canvas.WriteTo(w)
		return err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte(svgFont), []byte(svgFont+", Arial, Helvetica, sans-serif")))
	return err
}

// svgFont is how the library names the font; machines without it have one of the same widths.
const svgFont = "font-family:Liberation Sans"

func fill(dc draw.Canvas, color interface{ RGBA() (r, g, b, a uint32) }, r vg.Rectangle) {
	dc.FillPolygon(color, []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}})
}

func (c *chart) drawOn(dc draw.Canvas) {
	dc = c.drawTitle(dc)
	if c.scale != nil {
		dc = c.scale.draw(dc)
	}
	dc = c.drawLegend(dc)
	c.drawPanels(dc)
}

// drawPanels stacks the panels with aligned data areas of equal height.
func (c *chart) drawPanels(dc draw.Canvas) {
	const gap = 8
	var left, right, around vg.Length
	data := make([]vg.Rectangle, len(c.panels)) // margins around the data, as a rectangle
	for i, p := range c.panels {
		inner := p.DataCanvas(dc)
		data[i].Min = vg.Point{X: inner.Min.X - dc.Min.X, Y: inner.Min.Y - dc.Min.Y}
		data[i].Max = vg.Point{X: dc.Max.X - inner.Max.X, Y: dc.Max.Y - inner.Max.Y}
		left, right = max(left, data[i].Min.X), max(right, data[i].Max.X)
		around += data[i].Min.Y + data[i].Max.Y
	}
	right += 8 // half the last tick's label
	n := vg.Length(len(c.panels))
	height := (dc.Max.Y - dc.Min.Y - around - gap*(n-1)) / n
	top := dc.Max.Y
	for i, p := range c.panels {
		bottom := top - data[i].Max.Y - height - data[i].Min.Y
		p.Draw(draw.Crop(dc, left-data[i].Min.X, data[i].Max.X-right, bottom-dc.Min.Y, top-dc.Max.Y))
		top = bottom - gap
	}
}

// drawTitle returns the canvas below the title.
func (c *chart) drawTitle(dc draw.Canvas) draw.Canvas {
	top := dc.Max.Y
	for _, line := range []struct {
		text  string
		style text.Style
	}{{c.title, textStyle(12, black)}, {c.subtitle, textStyle(9, gray)}} {
		if line.text == "" {
			continue
		}
		style := line.style
		style.YAlign = text.YTop
		dc.FillText(style, vg.Point{X: dc.Min.X, Y: top}, fit(line.text, style, dc.Max.X-dc.Min.X))
		top -= style.Font.Size * 1.35
	}
	return draw.Crop(dc, 0, 0, 0, top-dc.Max.Y-vg.Points(4))
}

// fit shortens a text to a width.
func fit(s string, style text.Style, width vg.Length) string {
	runes := []rune(s)
	for len(runes) > 1 && style.Width(s) > width {
		runes = runes[:len(runes)-1]
		s = string(runes) + "…"
	}
	return s
}

// drawLegend sets the entries in rows at the bottom, as many as fit a row, and returns the canvas above.
func (c *chart) drawLegend(dc draw.Canvas) draw.Canvas {
	if len(c.legend) == 0 {
		return dc
	}
	style := textStyle(9, black)
	style.YAlign = text.YCenter
	width := dc.Max.X - dc.Min.X
	var rows [][]entry
	used := vg.Length(0)
	for _, e := range c.legend {
		e.name = fit(e.name, style, width-thumbnail-thumbPad)
		need := thumbnail + thumbPad + style.Width(e.name) + entryGap
		if len(rows) == 0 || used+need-entryGap > width {
			rows = append(rows, nil)
			used = 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		used += need
	}
	lineHeight := style.Font.Size * 1.5
	y := dc.Min.Y + lineHeight*(vg.Length(len(rows))-0.5)
	for _, row := range rows {
		x := dc.Min.X
		for _, e := range row {
			e.drawThumbnail(dc, x, y)
			x += thumbnail + thumbPad
			dc.FillText(style, vg.Point{X: x, Y: y}, e.name)
			x += style.Width(e.name) + entryGap
		}
		y -= lineHeight
	}
	return draw.Crop(dc, 0, 0, lineHeight*vg.Length(len(rows))+vg.Points(5), 0)
}

func (e entry) drawThumbnail(dc draw.Canvas, x, y vg.Length) {
	dc.StrokeLine2(e.line, x, y, x+thumbnail, y)
	if e.glyph != nil {
		dc.DrawGlyphNoClip(*e.glyph, vg.Point{X: x + thumbnail/2, Y: y})
	}
}

// draw sets the scale along the bottom and returns the canvas above.
func (s *colorScale) draw(dc draw.Canvas) draw.Canvas {
	style := textStyle(9, black)
	style.YAlign = text.YCenter
	height := vg.Points(12)
	middle := dc.Min.Y + height/2
	x := dc.Min.X
	put := func(t string) {
		dc.FillText(style, vg.Point{X: x, Y: middle}, t)
		x += style.Width(t) + vg.Points(6)
	}
	put(s.label + ":")
	put(formatValue(s.low))
	const steps = 64
	bar := (dc.Max.X - x - style.Width(formatValue(s.high)) - vg.Points(6)) / steps
	bar = min(bar, vg.Points(4))
	for i := range steps {
		left := x + bar*vg.Length(i)
		fill(dc, heat((float64(i)+0.5)/steps), vg.Rectangle{Min: vg.Point{X: left, Y: dc.Min.Y},
			Max: vg.Point{X: x + bar*steps, Y: dc.Min.Y + height}}) // over the rest, so that no seam shows
	}
	x += bar*steps + vg.Points(6)
	put(formatValue(s.high))
	return draw.Crop(dc, 0, 0, height+vg.Points(8), 0)
}

// formatShort prints v with as few digits as it needs.
func formatShort(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
