package load

import (
	"flag"
	"fmt"
	"os"
	"slices"
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
	clear []turn // those of turns that met no stall
}

func (f *figures) add(g figures) {
	f.turns, f.clear = append(f.turns, g.turns...), append(f.clear, g.clear...)
	f.took, f.cpu, f.peak, f.kept, f.steps = f.took+g.took, f.cpu+g.cpu, f.peak+g.peak, f.kept+g.kept, f.steps+g.steps
}

// latencies are those of the table, in milliseconds.
func (f *figures) latencies() (l [6]float64) {
	for i, of := range []func(turn) time.Duration{turn.firstToken, turn.whole} {
		l[3*i], l[3*i+1], l[3*i+2] = quantile(f.turns, .5, of), quantile(f.clear, .99, of), quantile(f.turns, .99, of)
	}
	return l
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
				t.Logf("%s, %s: %.2f ms", ways[i].name, []string{"gateway", "proxy"}[j], f.latencies())
			}
			all[i][0].add(gateway)
			all[i][1].add(proxy)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d sessions of %d turns through the gateway and as many through the proxy, started within %.0f s: prompts of %d KiB and %d KiB more each turn, answers of %d tokens in %.0f s, tools of %.0f s\n\n",
		w.sessions, w.turns, w.ramp.Seconds(), w.bytes>>10, w.more>>10, p.Tokens, p.length().Seconds(), w.gap.Seconds())
	b.WriteString("| way, added latency in ms | first token p50 | p99, no stall | p99 | whole turn p50 | p99, no stall | p99 | turns without a stall |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for i := range all {
		gateway, proxy := &all[i][0], &all[i][1]
		x, y := gateway.latencies(), proxy.latencies()
		fmt.Fprintf(&b, "| %s |", ways[i].name)
		for _, v := range x {
			fmt.Fprintf(&b, " %.2f |", v)
		}
		fmt.Fprintf(&b, " %.0f %% |\n| proxy without policy, meanwhile |", 100*float64(len(gateway.clear))/float64(len(gateway.turns)))
		for _, v := range y {
			fmt.Fprintf(&b, " %.2f |", v)
		}
		fmt.Fprintf(&b, " %.0f %% |\n| *added by the gateway* |", 100*float64(len(proxy.clear))/float64(len(proxy.turns)))
		for j := range x {
			fmt.Fprintf(&b, " *%+.2f* |", x[j]-y[j])
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n| way | CPU microseconds a turn | peak KiB a session | kept KiB a session | turns/s | steps of the core/s |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: |\n")
	each := float64(w.sessions**rounds) * 1024
	for i := range all {
		for j, name := range []string{ways[i].name, "proxy without policy, meanwhile"} {
			f := &all[i][j]
			fmt.Fprintf(&b, "| %s | %d | %.0f | %.0f | %.0f |", name,
				f.cpu.Microseconds()/int64(len(f.turns)), float64(f.peak)/each, float64(f.kept)/each, float64(len(f.turns))/f.took.Seconds())
			if j == 0 {
				fmt.Fprintf(&b, " %.0f |\n", float64(f.steps)/f.took.Seconds())
			} else {
				b.WriteString(" |\n")
			}
		}
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
	machine, _ := launch(t, "watch", part{})
	var both sync.WaitGroup
	both.Go(func() {
		gateway = w.through(t, "gateway", part{Config: configure(strings.ReplaceAll(ways[way].config, "DIR", dir), es.URLs)})
	})
	both.Go(func() { proxy = w.through(t, "proxy", part{Engines: es.URLs}) })
	both.Wait()
	stalls := machine.end().Stalls
	for _, f := range []*figures{&gateway, &proxy} {
		f.clear = slices.DeleteFunc(slices.Clone(f.turns), func(x turn) bool { return x.stalled(stalls) })
	}
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
	f.cpu, f.peak, f.kept = after.CPU-before.CPU, after.Peak-before.Peak, after.Heap-before.Heap
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
