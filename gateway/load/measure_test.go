package load

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	measured = flag.Bool("measure", false, "measure the gateway under load and print the table of docs/benchmarks.md")
	sessions = flag.Int("sessions", 2000, "sessions at once")
	rounds   = flag.Int("rounds", 3, "measurements of each row, one after another in turn; each figure is the median")
)

// ways are the rows of the table: from the client to the engine.
var ways = []struct{ name, policy string }{
	{"no proxy", ""},
	{"proxy without policy", ""},
	{"gateway, none and sticky", "policy: {gate: none, router: sticky}\n"},
	{"gateway, session and lmetric", "policy: {gate: session, router: lmetric}\n"},
	{"the same, decision log and recorder", "policy: {gate: session, router: lmetric}\ndecision_log: {path: DIR/decisions.jsonl}\nrecorder: {dir: DIR/trace}\n"},
}

// figures are those of one row.
type figures struct {
	firstP50, firstP99, wholeP50, wholeP99 float64 // ms
	cpu                                    float64 // microseconds a turn
	peak, kept                             float64 // KiB a session
	turns, steps                           float64 // a second
}

// TestMeasure prints what a gateway adds to the turns of many sessions.
func TestMeasure(t *testing.T) {
	if !*measured {
		t.Skip("measured with -measure only")
	}
	p := pace{First: time.Second, Every: 250 * time.Millisecond, Tokens: 9}
	w := workload{sessions: *sessions, turns: 4, ramp: 5 * time.Second, gap: 2 * time.Second, bytes: 16 << 10, more: 2 << 10}
	sleep := watchStalls()
	defer sleep.close()
	all := make([][]figures, len(ways))
	for range *rounds {
		for i := range ways {
			all[i] = append(all[i], w.through(t, i, p, sleep))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d sessions of %d turns, started within %.0f s: prompts of %d KiB and %d KiB more each turn, answers of %d tokens in %.0f s, tools of %.0f s; median of %d\n\n",
		w.sessions, w.turns, w.ramp.Seconds(), w.bytes>>10, w.more>>10, p.Tokens, p.length().Seconds(), w.gap.Seconds(), *rounds)
	b.WriteString("| way | first token p50, ms | p99 | whole turn p50, ms | p99 | CPU microseconds a turn | peak KiB a session | kept KiB a session | turns/s | steps/s |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	median := make([]figures, len(ways))
	for i, x := range all {
		m := &median[i]
		for _, f := range []func(*figures) *float64{
			func(f *figures) *float64 { return &f.firstP50 }, func(f *figures) *float64 { return &f.firstP99 },
			func(f *figures) *float64 { return &f.wholeP50 }, func(f *figures) *float64 { return &f.wholeP99 },
			func(f *figures) *float64 { return &f.cpu }, func(f *figures) *float64 { return &f.peak }, func(f *figures) *float64 { return &f.kept },
			func(f *figures) *float64 { return &f.turns }, func(f *figures) *float64 { return &f.steps },
		} {
			var values []float64
			for j := range x {
				values = append(values, *f(&x[j]))
			}
			slices.Sort(values)
			*f(m) = values[len(values)/2]
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.1f | %.2f | %.1f | %s | %s | %s | %.0f | %s |\n", ways[i].name, m.firstP50, m.firstP99, m.wholeP50, m.wholeP99,
			orNone(m.cpu), orNone(m.peak), orNone(m.kept), m.turns, orNone(m.steps))
	}
	b.WriteString("\n| added to the proxy without policy | first token p50, ms | p99 | whole turn p50, ms | p99 | CPU microseconds a turn |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for i := 2; i < len(ways); i++ {
		m, base := &median[i], &median[1]
		fmt.Fprintf(&b, "| %s | %+.2f | %+.1f | %+.2f | %+.1f | %+.0f |\n", ways[i].name, m.firstP50-base.firstP50, m.firstP99-base.firstP99,
			m.wholeP50-base.wholeP50, m.wholeP99-base.wholeP99, m.cpu-base.cpu)
	}
	fmt.Print(b.String())
}

func orNone(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", math.Round(x))
}

// through measures one way.
func (w *workload) through(t *testing.T, way int, p pace, sleep *stalls) (f figures) {
	runtime.GC()
	const engines = 4
	e, es := launch(t, "engines", part{Pace: p, Count: engines})
	defer e.end()
	url := es.URLs[0]
	var middle *process
	var before state
	role := "gateway"
	switch way {
	case 0:
		role = ""
	case 1:
		role = "proxy"
	}
	if role != "" {
		dir, err := os.MkdirTemp("", "load")
		check(t, err)
		defer os.RemoveAll(dir)
		middle, before = launch(t, role, part{Engines: es.URLs, Config: configure(strings.ReplaceAll(ways[way].policy, "DIR", dir), es.URLs)})
		url = before.URLs[0]
	}
	client := newClient(w.sessions)
	began := time.Now()
	sleep.take()
	turns, err := w.run(t.Context(), client, url)
	check(t, err)
	took := time.Since(began)
	f = figures{
		firstP50: quantile(turns, .5, turn.firstToken), firstP99: quantile(turns, .99, turn.firstToken),
		wholeP50: quantile(turns, .5, turn.whole), wholeP99: quantile(turns, .99, turn.whole), turns: float64(len(turns)) / took.Seconds(),
	}
	if middle == nil {
		client.CloseIdleConnections()
		return f
	}
	after := middle.state()
	f.cpu = float64((after.CPU - before.CPU).Microseconds()) / float64(len(turns))
	f.peak, f.kept = float64(after.Peak-before.Peak)/1024/float64(w.sessions), float64(after.Heap-before.Heap)/1024/float64(w.sessions)
	client.CloseIdleConnections()
	last := middle.end()
	t.Logf("%s: first token p50 %.2f, p99 %.1f ms, %.0f microseconds of CPU a turn; a sleep was longer by up to %v in it and by %v at the clients", ways[way].name, f.firstP50, f.firstP99, f.cpu, after.Late, sleep.take())
	if a := last.Audit; a != nil {
		f.steps = float64(after.Audit.Steps) / took.Seconds()
		if n := int64(len(turns)); a.Finished != n || a.Live != 0 || last.Imbalance != 0 {
			t.Errorf("accounts at the end: %+v, expected %d finished turns", a, n)
		}
	}
	return f
}
