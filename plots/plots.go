// Package plots draws figures from result folders: nothing but what a run left on disk goes into a figure, so every
// figure can be drawn again. The same folders give the same bytes.
package plots

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Figure is one kind of figure.
type Figure struct {
	Name string
	Doc  string // one line
	draw func(*input, Options) (*chart, error)
}

// Figures is the table of all figures.
func Figures() []Figure {
	return []Figure{
		{"cdf-ttft", "distribution of TTFT (gate wait included) by arm", drawCDF(ttftCDF)},
		{"cdf-e2el", "distribution of turn latency by arm", drawCDF(e2elCDF)},
		{"cdf-session", "distribution of session completion time by arm", drawCDF(sessionCDF)},
		{"hit-rate", "hit rate and its ceiling over time, by arm, or by replica for a single run", drawHitRate},
		{"turn-index", "TTFT, turn latency and hit rate by turn number", drawTurnIndex},
		{"tps", "tokens per second by arm, with 95 % intervals over the seeds; --metric draws another metric", drawBars},
		{"heatmap", "a metric over two varied knobs", drawHeatmap},
		{"cliff", "TTFT percentiles, hit rate and TPS over a varied knob such as the number of sessions", drawCliff},
	}
}

// Options adjust a figure. The zero value is the default of every figure.
type Options struct {
	Title    string
	Metric   string  // name of a metric of summary.json, for tps, heatmap and cliff
	X, Y     string  // paths of varied knobs, for heatmap and cliff
	WidthCM  float64 // 0: the figure's own
	HeightCM float64
}

// Draw draws a figure from the result folders in dirs, of runs or of comparisons, to the file out, whose extension is
// .svg, .png or .pdf. The file appears only when the figure is complete.
func Draw(figure string, dirs []string, out string, opts Options) (err error) {
	figures := Figures()
	at := slices.IndexFunc(figures, func(f Figure) bool { return f.Name == figure })
	if at < 0 {
		names := make([]string, len(figures))
		for i, f := range figures {
			names[i] = f.Name
		}
		return fmt.Errorf("unknown figure %q: expected one of %s", figure, strings.Join(names, ", "))
	}
	format := strings.TrimPrefix(strings.ToLower(filepath.Ext(out)), ".")
	if !slices.Contains([]string{"svg", "png", "pdf"}, format) {
		return fmt.Errorf("figure file %q: expected a name that ends in .svg, .png or .pdf", out)
	}
	if size := max(opts.WidthCM, opts.HeightCM); size > 200 || min(opts.WidthCM, opts.HeightCM) < 0 {
		return fmt.Errorf("figure size of %g by %g cm: expected at most 200", opts.WidthCM, opts.HeightCM)
	}
	in, err := load(dirs)
	if err != nil {
		return err
	}
	defer func() { // the plotting library panics on what it cannot draw
		if p := recover(); p != nil {
			err = fmt.Errorf("figure %s: %v", figure, p)
		}
	}()
	c, err := figures[at].draw(in, opts)
	if err != nil {
		return fmt.Errorf("figure %s: %w", figure, err)
	}
	if opts.Title != "" {
		c.title = opts.Title
	}
	if opts.WidthCM > 0 {
		c.width = cm(opts.WidthCM)
	}
	if opts.HeightCM > 0 {
		c.height = cm(opts.HeightCM)
	}
	var b bytes.Buffer
	if err := c.render(&b, format); err != nil {
		return fmt.Errorf("figure %s: %w", figure, err)
	}
	return writeFile(out, b.Bytes())
}

// writeFile replaces a file at once.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".figure-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
