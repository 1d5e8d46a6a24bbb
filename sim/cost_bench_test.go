package sim

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// crowd is sessions of the same shape behind one system prompt: turns that each add new tokens to a prompt that begins
// with first tokens of their own. Outputs are drawn between half and one and a half times output, so that sessions do not
// go in step, and tool gaps between 0 and twice gapS.
func crowd(sessions, turns int, system, first, added, output int32, gapS float64) *traces.Trace {
	tr := &traces.Trace{Name: "crowd", Tree: &prefix.Tree{}}
	root := tr.Tree.Root()
	for i := range sessions {
		own := tr.Tree.Fork(prefix.Prefix{Stream: root, Tokens: system})
		s := traces.Session{Name: fmt.Sprint(i), Group: -1, StartNS: traces.Unknown, Threads: 1}
		prompt := system + first
		for j := range turns {
			draw := exact.Hash2(1, uint64(i), uint64(j))
			out := output/2 + int32(exact.UniformInt(draw, int64(output)))
			t := traces.Turn{Number: int32(j + 1), Prompt: prefix.Prefix{Stream: own, Tokens: prompt}, OutputTokens: out, DepLo: int32(len(s.Deps))}
			gap := int64(exact.Uniform(exact.Hash1(1, draw)) * 2e9 * gapS)
			if j > 0 {
				s.Deps = append(s.Deps, traces.Dep{Turn: int32(j - 1), On: traces.OnCompletion, DelayNS: gap})
			} else {
				t.StartNS = gap
			}
			t.DepHi = int32(len(s.Deps))
			s.Turns = append(s.Turns, t)
			prompt += out + added
		}
		tr.Sessions = append(tr.Sessions, s)
	}
	return tr
}

// perTurn runs c again and again and reports nanoseconds and engine steps a turn.
func perTurn(b *testing.B, c *Config) {
	b.Helper()
	var totals *results.Totals
	begin := cpuNS(b)
	for b.Loop() {
		var err error
		if totals, err = Run(context.Background(), c, nothing{}); err != nil {
			b.Fatal(err)
		}
	}
	turns := float64(c.Trace.Turns())
	b.ReportMetric(float64(cpuNS(b)-begin)/float64(b.N)/turns, "cpu-ns/turn")
	b.ReportMetric(float64(totals.Steps)/turns, "steps/turn")
	b.ReportMetric(float64(totals.Events)/turns, "events/turn")
	b.ReportMetric(float64(totals.PolicySteps)/turns, "decisions/turn")
}

// cpuNS is the CPU time, user and system, that the process has used.
func cpuNS(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// peakMiB is the most memory that the process ever had.
func peakMiB(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Maxrss) / 1024
}

// BenchmarkContext is the cost of a turn at growing contexts: the same turns and outputs, a KV cache that holds the same
// number of contexts, and prompts that are computed in one step whatever their length.
func BenchmarkContext(b *testing.B) {
	for _, context := range []int32{4 << 10, 32 << 10, 128 << 10, 512 << 10} {
		b.Run(fmt.Sprintf("tokens=%d", context), func(b *testing.B) {
			const turns, added, output = 20, 32, 64
			tr := crowd(256, turns, 1024, context-1024-turns*(added+output), added, output, 0)
			c := world(b, tr, "none", "sticky")
			c.Check, c.Replicas = false, 8
			c.Engine.MaxBatchedTokens = 1 << 24
			c.KVBlocks = 24 * context / 16
			c.Arrivals = Arrivals{Process: Concurrent, Sessions: 128}
			perTurn(b, c)
		})
	}
}

// BenchmarkReplicas is the cost of a turn with growing numbers of replicas at the same load on each: smetric, which reads
// KV events, and sessions that share one system prompt. The sessions are the same, so that nothing but the cluster grows.
func BenchmarkReplicas(b *testing.B) {
	const most = 4096
	tr := crowd(16*most, 10, 4096, 4096, 512, 128, .5)
	for _, replicas := range []int{8, 64, 512, most} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			c := world(b, tr, "none", "smetric")
			c.Check, c.Replicas = false, replicas
			c.KVBlocks = 16 * 16384 / 16
			c.Arrivals = Arrivals{Process: Concurrent, Sessions: 8 * replicas}
			perTurn(b, c)
		})
	}
}
