package load

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	measured = flag.Bool("measure", false, "measure the gateway under load and print the tables of docs/benchmarks.md")
	sessions = flag.Int("sessions", 2000, "sessions at once through the gateway, and as many through the proxy beside it")
	rounds   = flag.Int("rounds", 3, "measurements of each row; latencies are over the turns of all, other figures are means")
)

// ways are the gateways that are measured.
var ways = []struct{ name, config string }{
	{"none, sticky", "policy: {gate: none, router: sticky}\n"},
	{"session, lmetric", "policy: {gate: session, router: lmetric}\n"},
	{"session, lmetric, decision log, recorder", "policy: {gate: session, router: lmetric}\ndecision_log: {path: DIR/decisions.jsonl}\nrecorder: {dir: DIR/trace}\n"},
}

// figures are those of one way from clients to engines.
type figures struct {
	turns []turn
	took  time.Duration
	cpu   time.Duration
	peak  int64 // bytes above those at the start
	kept  int64
	steps int64
	stall time.Duration
}

func (f *figures) add(g figures) {
	f.turns = append(f.turns, g.turns...)
	f.took, f.cpu, f.peak, f.kept, f.steps, f.stall = f.took+g.took, f.cpu+g.cpu, f.peak+g.peak, f.kept+g.kept, f.steps+g.steps, max(f.stall, g.stall)
}

// TestMeasure prints what a gateway adds to the turns of many sessions, beyond what a proxy without a policy does. The two
// run at the same time, each with its own sessions and to the same engines: what else the machine does meets both.
func TestMeasure(t *testing.T) {
	if !*measured {
		t.Skip("measured with -measure only")
	}
	p := pace{First: time.Second, Every: time.Second, Tokens: 9}
	w := workload{sessions: *sessions, turns: 3, ramp: 10 * time.Second, gap: 2 * time.Second, bytes: 16 << 10, more: 2 << 10}
	all := make([][2]figures, len(ways))
	for range *rounds {
		for i := range ways {
			gateway, proxy := w.beside(t, i, p)
			for j, f := range []*figures{&gateway, &proxy} {
				t.Logf("%s, %s: first token p50 %.2f, p99 %.1f ms; longest stall %v", ways[i].name, []string{"gateway", "proxy"}[j],
					quantile(f.turns, .5, turn.firstToken), quantile(f.turns, .99, turn.firstToken), f.stall)
			}
			all[i][0].add(gateway)
			all[i][1].add(proxy)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d sessions of %d turns through the gateway and as many through the proxy, started within %.0f s: prompts of %d KiB and %d KiB more each turn, answers of %d tokens in %.0f s, tools of %.0f s\n\n",
		w.sessions, w.turns, w.ramp.Seconds(), w.bytes>>10, w.more>>10, p.Tokens, p.length().Seconds(), w.gap.Seconds())
	b.WriteString("| way | first token p50, ms | p99 | whole turn p50, ms | p99 | CPU microseconds a turn | peak KiB a session | kept KiB a session | turns/s | steps/s |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	each := float64(w.sessions**rounds) * 1024
	for i, x := range all {
		for j, name := range []string{ways[i].name, "proxy without policy, meanwhile"} {
			f := &x[j]
			fmt.Fprintf(&b, "| %s | %.2f | %.1f | %.2f | %.1f | %d | %.0f | %.0f | %.0f |", name,
				quantile(f.turns, .5, turn.firstToken), quantile(f.turns, .99, turn.firstToken), quantile(f.turns, .5, turn.whole), quantile(f.turns, .99, turn.whole),
				f.cpu.Microseconds()/int64(len(f.turns)), float64(f.peak)/each, float64(f.kept)/each, float64(len(f.turns))/f.took.Seconds())
			if j == 0 {
				fmt.Fprintf(&b, " %.0f |\n", float64(f.steps)/f.took.Seconds())
			} else {
				b.WriteString(" |\n")
			}
		}
	}
	b.WriteString("\n| added | first token p50, ms | p99 | whole turn p50, ms | p99 | CPU microseconds a turn | longest stall of the machine, ms |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for i, x := range all {
		more := func(q float64, of func(turn) time.Duration) float64 {
			return quantile(x[0].turns, q, of) - quantile(x[1].turns, q, of)
		}
		fmt.Fprintf(&b, "| %s | %+.2f | %+.1f | %+.2f | %+.1f | %+d | %.0f |\n", ways[i].name, more(.5, turn.firstToken), more(.99, turn.firstToken),
			more(.5, turn.whole), more(.99, turn.whole), (x[0].cpu-x[1].cpu).Microseconds()/int64(len(x[0].turns)), max(x[0].stall, x[1].stall).Seconds()*1000)
	}
	fmt.Print(b.String())
}

// beside measures one gateway and, beside it, the proxy.
func (w *workload) beside(t *testing.T, way int, p pace) (gateway, proxy figures) {
	dir, err := os.MkdirTemp("", "load")
	check(t, err)
	defer os.RemoveAll(dir)
	e, es := launch(t, "engines", part{Pace: p, Count: 4})
	defer e.end()
	var both sync.WaitGroup
	both.Go(func() {
		gateway = w.through(t, "gateway", part{Config: configure(strings.ReplaceAll(ways[way].config, "DIR", dir), es.URLs)})
	})
	both.Go(func() { proxy = w.through(t, "proxy", part{Engines: es.URLs}) })
	both.Wait()
	return gateway, proxy
}

// through measures one process.
func (w *workload) through(t *testing.T, role string, p part) (f figures) {
	x, before := launch(t, role, p)
	client := newClient(w.sessions)
	defer client.CloseIdleConnections()
	began := time.Now()
	turns, err := w.run(t.Context(), client, before.URLs[0])
	if err != nil {
		t.Error(err)
		return f
	}
	f.turns, f.took = turns, time.Since(began)
	after := x.state()
	f.cpu, f.peak, f.kept, f.stall = after.CPU-before.CPU, after.Peak-before.Peak, after.Heap-before.Heap, after.Late
	client.CloseIdleConnections()
	last := x.end()
	if a := last.Audit; a != nil {
		f.steps = after.Audit.Steps
		if n := int64(len(turns)); a.Finished != n || a.Live != 0 || last.Imbalance != 0 {
			t.Errorf("accounts at the end: %+v, expected %d finished turns", a, n)
		}
	}
	return f
}
