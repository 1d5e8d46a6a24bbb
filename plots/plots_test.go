package plots

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// figureDir keeps the figures of a test run for looking at when FIGURES names a folder.
func figureDir(t *testing.T) string {
	if dir := os.Getenv("FIGURES"); dir != "" {
		return dir
	}
	return t.TempDir()
}

func TestFigures(t *testing.T) {
	routers, seeds := fake(t, fakeRouters(1)), fake(t, fakeRouters(3))
	one, two, grid := fake(t, fakeSweep("smetric")), fake(t, fakeSweep("smetric", "round-robin")), fake(t, fakeGrid())
	single := filepath.Join(routers, "arms", "02-sticky-seed1")
	out := figureDir(t)
	for _, c := range []struct {
		file, figure, dir string
		opts              Options
		want              []string // texts that the SVG holds
	}{
		{"cdf-ttft", "cdf-ttft", routers, Options{}, []string{"TTFT, gate wait included [s]", "round-robin", "smetric", "share of turns [%]"}},
		{"cdf-e2el", "cdf-e2el", routers, Options{}, []string{"Turn latency"}},
		{"cdf-session", "cdf-session", routers, Options{Title: "My title"}, []string{"My title", "complete sessions"}},
		{"hit-rate", "hit-rate", routers, Options{}, []string{"hit rate [% of prompt tokens]", "time [s]", "ceiling of each arm"}},
		{"hit-rate-one", "hit-rate", single, Options{}, []string{"replica 3", "all replicas", "ceiling"}},
		{"turn-index", "turn-index", routers, Options{}, []string{"TTFT p50 [s]", "latency p50 [s]", "hit rate [%]", "turn number (from)", "21+"}},
		{"tps", "tps", routers, Options{}, []string{"output TPS [tok/s]", "computed prefill TPS [tok/s]", "lmetric"}},
		{"tps-seeds", "tps", seeds, Options{}, []string{"±", "3 seeds"}},
		{"tps-hit", "tps", routers, Options{Metric: "hit_rate"}, []string{"hit rate [share of prompt tokens]"}},
		{"heatmap", "heatmap", grid, Options{}, []string{"policy.gate.high_watermark", "policy.gate.hit_threshold", "0.65", "total TPS"}},
		{"heatmap-xy", "heatmap", grid, Options{Metric: "ttft_s.p95", Y: "policy.gate.high_watermark"}, []string{"TTFT p95 [s]"}},
		{"cliff", "cliff", one, Options{}, []string{"arrivals.sessions", "TTFT p99", "hit rate [%]", "total TPS per GPU [tok/s]"}},
		{"cliff-two", "cliff", two, Options{}, []string{"router smetric", "router round-robin", "TTFT p95"}},
	} {
		svg := filepath.Join(out, c.file+".svg")
		if err := Draw(c.figure, []string{c.dir}, svg, c.opts); err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		first, err := os.ReadFile(svg)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.want {
			if !strings.Contains(string(first), text) {
				t.Errorf("%s: the SVG does not hold %q", c.file, text)
			}
		}
		if strings.Contains(string(first), "NaN") {
			t.Errorf("%s: the SVG holds NaN", c.file)
		}
		if err := Draw(c.figure, []string{c.dir}, svg, c.opts); err != nil {
			t.Fatal(err)
		}
		if second, _ := os.ReadFile(svg); !bytes.Equal(first, second) {
			t.Errorf("%s: drawn twice, the bytes differ", c.file)
		}
		if os.Getenv("FIGURES") != "" {
			if err := Draw(c.figure, []string{c.dir}, filepath.Join(out, c.file+".png"), c.opts); err != nil {
				t.Error(err)
			}
		}
	}
}

// PNG and PDF are files of their kind, and as repeatable as SVG.
func TestFormats(t *testing.T) {
	dir := fake(t, fakeRouters(1))
	for ext, magic := range map[string]string{"png": "\x89PNG", "pdf": "%PDF-", "svg": "<?xml"} {
		var files [2][]byte
		for i := range files {
			out := filepath.Join(t.TempDir(), "figure."+ext)
			if err := Draw("tps", []string{dir}, out, Options{WidthCM: 12, HeightCM: 9}); err != nil {
				t.Fatal(err)
			}
			files[i], _ = os.ReadFile(out)
		}
		if !strings.HasPrefix(string(files[0]), magic) {
			t.Errorf("%s begins with %q", ext, files[0][:8])
		}
		if !bytes.Equal(files[0], files[1]) {
			t.Errorf("%s: drawn twice, the bytes differ", ext)
		}
	}
}

func TestBadRequests(t *testing.T) {
	dir := fake(t, fakeRouters(1)[:1])
	out := t.TempDir()
	for _, c := range []struct {
		figure, dir, file string
		opts              Options
		want              string
	}{
		{"pie", dir, "a.svg", Options{}, "cdf-ttft"},
		{"tps", dir, "a.gif", Options{}, ".pdf"},
		{"tps", dir, "a.svg", Options{Metric: "nothing"}, "unknown metric"},
		{"tps", dir, "a.svg", Options{WidthCM: 1e6}, "at most"},
		{"tps", out, "a.svg", Options{}, "summary.json"},
		{"heatmap", dir, "a.svg", Options{}, "two varied knobs"},
		{"cliff", dir, "a.svg", Options{}, "knob"},
		{"cliff", dir, "a.svg", Options{X: "policy.router.name"}, "not numbers"},
		{"tps", dir, "no/such/folder/a.svg", Options{}, "no such"},
	} {
		err := Draw(c.figure, []string{c.dir}, filepath.Join(out, c.file), c.opts)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %+v: error %v, expected one with %q", c.figure, c.file, c.opts, err, c.want)
		}
	}
	if entries, _ := os.ReadDir(out); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// The library's log axis hides the data when its ends are wrong.
func TestAxisEnds(t *testing.T) {
	for _, c := range []struct{ v, down, up float64 }{
		{1, 1, 1}, {1.1, 1, 2}, {3, 2, 5}, {9.5, 5, 10}, {0.012, 0.01, 0.02}, {0.5, 0.5, 0.5}, {700, 500, 1000},
	} {
		if d, u := roundLog(c.v, false), roundLog(c.v, true); d < c.down*(1-1e-9) || d > c.down*(1+1e-9) || u < c.up*(1-1e-9) || u > c.up*(1+1e-9) {
			t.Errorf("roundLog(%v) = %v, %v, expected %v, %v", c.v, d, u, c.down, c.up)
		}
	}
	for v, want := range map[float64]float64{0: 1, 1: 1, 11: 12, 0.9: 1, 45: 50, 810: 1000} {
		if got := roundUp(v); got < want*(1-1e-9) || got > want*(1+1e-9) {
			t.Errorf("roundUp(%v) = %v, expected %v", v, got, want)
		}
	}
}

func TestCDFLine(t *testing.T) {
	points := cdfLine([]float64{1, 2, 4, 8})
	if len(points) != 5 || points[0].Y != 0 || points[1].Y != 25 || points[4].X != 8 || points[4].Y != 100 {
		t.Errorf("points %v", points)
	}
	long := make([]float64, 12345)
	for i := range long {
		long[i] = float64(i)
	}
	points = cdfLine(long)
	if last := points[len(points)-1]; len(points) != cdfPoints+1 || last.X != 12344 || last.Y != 100 {
		t.Errorf("%d points, last %v", len(points), last)
	}
}
