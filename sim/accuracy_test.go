package sim

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// accuracy asks for everything; without it the closed loop is a sample, which keeps `go test` short.
var accuracy = flag.Bool("accuracy", false, "simulate every closed-loop measurement and write the tables of docs/accuracy.md")

const accuracyData = "testdata/accuracy"

// deployment is a vLLM server whose measured requests are replayed.
type deployment struct {
	setup         latency.Setup
	replicas      int
	maxSeqs       int32
	budget        int32 // max_num_batched_tokens
	kvTokens      int64 // 0 for what the capacity rule gives
	prefixCaching bool
	synchronous   bool // no async_scheduling
}

// measuredUtilization is gpu_memory_utilization where a run does not tell: vLLM's default in the versions measured.
const measuredUtilization = 0.9

// replay serves a trace through engine, law and clock.
func (d *deployment) replay(t testing.TB, tr *traces.Trace, arrivals Arrivals) (*served, *results.Totals) {
	t.Helper()
	law, err := latency.New(d.setup)
	if err != nil {
		t.Fatal(err)
	}
	tokens := d.kvTokens
	if tokens == 0 {
		o := latency.DefaultCapacityOptions()
		o.MemoryUtilization = measuredUtilization
		r, err := latency.Capacity(d.setup, o)
		if err != nil {
			t.Fatal(err)
		}
		tokens = r.Tokens()
	}
	e := engine.DefaultConfig()
	e.MaxNumSeqs, e.MaxBatchedTokens, e.PrefixCaching, e.Async = d.maxSeqs, d.budget, d.prefixCaching, !d.synchronous
	e.SlidingWindowTokens = law.Window()
	c := &Config{
		Seed: 1, Trace: tr, Arrivals: arrivals, Signals: Signals{ScrapePS: 1e11},
		Replicas: d.replicas, GPUsPerReplica: law.Setup().TensorParallel, Engine: e,
		KVBlocks: int32(tokens / int64(e.BlockTokens)), Law: law, MaxModelLen: e.MaxModelLen,
		Gate: policy(t, "gate", "none"), Router: policy(t, "router", "least-requests"),
		Capability: policies.Capability{
			KVTokens: tokens, BlockTokens: e.BlockTokens, PrefillTokensPerSec: law.PrefillRate(8192),
			AttentionDoubling: law.AttentionDoubling(), MaxBatchedTokens: e.MaxBatchedTokens,
		},
		IntervalPS: 1e13, MaxSamples: 100,
	}
	c.GateParams, c.RouterParams = c.Gate.Resolve(nil), c.Router.Resolve(nil)
	s := &served{}
	totals, err := Run(context.Background(), c, s)
	if err != nil {
		t.Fatal(err)
	}
	return s, totals
}

// served is how requests were served, in seconds: from arrival to first token, from first scheduling to first token,
// per output token after the first, and from arrival to last token.
type served struct{ ttft, prefill, tpot, e2e []float64 }

// take adds a request, of which it gets the moments.
func (s *served) take(arrived, scheduled, first, last, output float64) {
	s.ttft = append(s.ttft, first-arrived)
	s.prefill = append(s.prefill, first-scheduled)
	s.e2e = append(s.e2e, last-arrived)
	if output > 1 {
		s.tpot = append(s.tpot, (last-first)/(output-1))
	}
}

// Turn, Session and Sample make served the sink of a run.
func (s *served) Turn(t *results.Turn) error {
	s.take(results.Seconds(t.ArrivalPS), results.Seconds(t.ScheduledPS), results.Seconds(t.FirstTokenPS), results.Seconds(t.DonePS), float64(t.OutputTokens))
	return nil
}
func (s *served) Session(*results.Session) error { return nil }
func (s *served) Sample(*results.Sample) error   { return nil }

// requests is a trace of sessions of one turn each.
type requests struct {
	traces.Trace
	common prefix.Prefix // what all prompts begin with
}

func newRequests(commonTokens int32) *requests {
	r := &requests{Trace: traces.Trace{Name: "requests", Tree: &prefix.Tree{}, Models: []string{"m"}}}
	if commonTokens > 0 {
		r.common = prefix.Prefix{Stream: r.Tree.Root(), Tokens: commonTokens}
	}
	return r
}

// add appends a request that arrives at a moment.
func (r *requests) add(atNS int64, prompt, output int32) {
	s := prefix.None
	if r.common.Tokens > 0 {
		s = r.Tree.Fork(r.common)
	} else {
		s = r.Tree.Root()
	}
	r.Sessions = append(r.Sessions, traces.Session{
		Name: strconv.Itoa(len(r.Sessions)), StartNS: atNS, Group: -1, Threads: 1,
		Turns: []traces.Turn{{Number: 1, Prompt: prefix.Prefix{Stream: s, Tokens: prompt}, OutputTokens: output, DurationNS: traces.Unknown}},
	})
}

// measurements is a CSV file, read row by row.
type measurements struct {
	t       testing.TB
	columns map[string]int
	rows    [][]string
	row     []string
}

func readMeasurements(t testing.TB, path string) *measurements {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	x := &measurements{t: t, columns: map[string]int{}, rows: all[1:]}
	for i, name := range all[0] {
		x.columns[name] = i
	}
	return x
}

func (x *measurements) text(name string) string {
	i, ok := x.columns[name]
	if !ok {
		x.t.Fatalf("no column %s", name)
	}
	return x.row[i]
}

func (x *measurements) number(name string) float64 {
	v, err := strconv.ParseFloat(x.text(name), 64)
	if err != nil {
		x.t.Fatalf("column %s: %v", name, err)
	}
	return v
}

func (x *measurements) model() *latency.Model {
	m, err := latency.FindModel(x.text("model"))
	if err != nil {
		x.t.Fatal(err)
	}
	return m
}

func (x *measurements) gpu() *latency.GPU {
	g, err := latency.FindGPU(x.text("gpu"))
	if err != nil {
		x.t.Fatal(err)
	}
	return g
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// quantile interpolates linearly between ranks.
func quantile(v []float64, q float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	h := float64(q * float64(len(s)-1))
	lo := int(math.Floor(h))
	return s[lo] + float64((s[min(lo+1, len(s)-1)]-s[lo])*(h-float64(lo)))
}

func absolute(v []float64) []float64 {
	w := slices.Clone(v)
	for i := range w {
		w[i] = math.Abs(w[i])
	}
	return w
}

// off is the error of a simulated number in percent of the measured one.
func off(simulated, measured float64) float64 { return 100 * (simulated/measured - 1) }

// spread prints errors as mean of the absolute values, their median, and the median with its sign.
func spread(errors []float64) string {
	return fmt.Sprintf("%.1f / %.1f / %+.1f", mean(absolute(errors)), quantile(absolute(errors), 0.5), quantile(errors, 0.5))
}

// within fails the test when an error is outside a band, both in percent.
func within(t *testing.T, what string, err, band float64) {
	t.Helper()
	if !(math.Abs(err) <= band) {
		t.Errorf("%s: error %+.1f %%, want at most %g %% either way: the engine, the law or the clock has changed", what, err, band)
	}
}

// publish prints a table and holds the accuracy page to it.
func publish(t *testing.T, name string, lines []string) {
	t.Helper()
	table := strings.Join(lines, "\n") + "\n"
	if testing.Verbose() {
		fmt.Printf("\n%s", table)
	}
	page := filepath.Join("..", "docs", "accuracy.md")
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	head, rest, ok := strings.Cut(string(raw), begin)
	was, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no section between %q and %q", page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	switch {
	case was == table:
	case *accuracy:
		if err := os.WriteFile(page, []byte(head+begin+table+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: table %s is not what the simulator gives now; `make accuracy` writes it", page, name)
	}
}
