package plots

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNumberFigures(t *testing.T) {
	dir := t.TempDir()
	var panel LinePanel
	panel.X, panel.Y, panel.LogX = "sessions", "TPS", true
	for i, y := range []float64{1, 3, 2} {
		panel.Add("with", float64(i+1), y)
		panel.Add("without", float64(i+1), 2*y)
	}
	if len(panel.Lines) != 2 || len(panel.Lines[1].Points) != 3 || panel.Lines[1].Points[1] != (Point{2, 6}) {
		t.Errorf("lines %+v", panel.Lines)
	}
	maps := []MapPanel{{Title: "hit rate", X: "sessions", Y: "gap", Xs: []string{"8", "16"}, Ys: []string{"1"}, Values: [][]float64{{.5, math.NaN()}}}}
	for name, c := range map[string]struct {
		draw func(string) error
		has  []string
	}{
		"lines": {func(out string) error { return DrawLines(out, "A title", "3 seeds", []LinePanel{panel, panel}) }, []string{"A title", "3 seeds", "with", "without", "TPS", "sessions"}},
		"maps":  {func(out string) error { return DrawMaps(out, "A title", "3 seeds", maps) }, []string{"A title", "hit rate", "gap", "16", "0.500"}},
	} {
		out := filepath.Join(dir, name+".svg")
		if err := c.draw(out); err != nil {
			t.Fatal(err)
		}
		first, _ := os.ReadFile(out)
		for _, text := range c.has {
			if !strings.Contains(string(first), ">"+text+"<") {
				t.Errorf("%s does not say %q", name, text)
			}
		}
		if err := c.draw(out); err != nil {
			t.Fatal(err)
		}
		if second, _ := os.ReadFile(out); string(second) != string(first) {
			t.Errorf("%s is not the same twice", name)
		}
		if err := c.draw(filepath.Join(dir, name+".gif")); err == nil {
			t.Errorf("%s drew a .gif", name)
		}
	}
	if err := DrawLines(filepath.Join(dir, "none.svg"), "", "", []LinePanel{{}}); err == nil {
		t.Error("a figure without points")
	}
	maps[0].Values[0][0] = math.NaN()
	if err := DrawMaps(filepath.Join(dir, "none.svg"), "", "", maps); err == nil {
		t.Error("a map without values")
	}
}

// The order in which points were added does not show.
func TestLinesGoFromLeftToRight(t *testing.T) {
	draw := func(xs ...float64) string {
		var panel LinePanel
		for _, x := range xs {
			panel.Add("line", x, x*x)
		}
		out := filepath.Join(t.TempDir(), "x.svg")
		if err := DrawLines(out, "t", "s", []LinePanel{panel}); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(out)
		return string(data)
	}
	if draw(1, 2, 3) != draw(3, 1, 2) {
		t.Error("another order of points gives another figure")
	}
}
