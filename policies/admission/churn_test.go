package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
)

// churn plays turns of 16 threads of which a few run at a time, with a sample for each; most wait, and some are superseded.
type churn struct {
	c       *policies.Controller
	now     policies.Time
	next    policies.AttemptID
	running []policies.AttemptID
	holds   int
	facts   []policies.Fact
	out     []policies.Command
}

func (l *churn) step() {
	l.now += policies.Second
	l.out = l.c.Step(l.now, l.facts, l.out[:0])
	l.facts = l.facts[:0]
	for _, c := range l.out {
		switch c.Kind {
		case policies.Dispatch:
			l.running = append(l.running, c.Attempt)
		case policies.Hold:
			l.holds++
		case policies.ProbeUsage:
			l.facts = append(l.facts, policies.Fact{Kind: policies.UsageProbed, Attempt: c.Attempt, Replica: c.Replica, Usage: float64(l.next%10) / 10})
		case policies.ProbePrefix:
			l.facts = append(l.facts, policies.Fact{Kind: policies.PrefixProbed, Attempt: c.Attempt, Replica: c.Replica, HitTokens: int32(l.next % 100), PromptTokens: 100})
		}
	}
}

func (l *churn) turn() {
	l.next++
	l.facts = append(l.facts, turnOf(l.next, policies.ThreadID(l.next%16), 100), policies.Fact{Kind: policies.MetricsSampled, Sample: policies.Sample{
		At: l.now, Has: policies.HasWaiting | policies.HasUsage | policies.HasPrefixCounters, Usage: float64(l.next%10) / 10, QueryTokens: int64(l.next), HitTokens: int64(l.next / 10),
	}})
	l.step()
	if l.next%3 == 0 {
		for _, a := range l.running {
			l.facts = append(l.facts, policies.Fact{Kind: policies.Finished, Attempt: a, OutputTokens: 20})
		}
		l.running = l.running[:0]
	}
	if l.next%5 == 0 {
		thread := policies.ThreadID(l.next / 5 % 16)
		l.facts = append(l.facts, policies.Fact{Kind: policies.ThreadFinished, Thread: thread, Session: policies.SessionID(thread)}, policies.Fact{Kind: policies.SessionFinished, Session: policies.SessionID(thread)})
	}
	l.step()
}

// gateChurn is the loop with a gate whose limits two turns reach.
func gateChurn(t testing.TB, replicas int, gate string, texts map[string]string) *churn {
	knobs := map[string]float64{}
	switch gate {
	case "llm-d-saturation":
		knobs["stale_s"], knobs["max_requests"] = 5, 2
	case "max-requests", "max-sessions":
		knobs[strings.ReplaceAll(gate, "-", "_")] = 2
	case "aimd-kv":
		knobs["initial_requests"], knobs["max_requests"] = 2, 2
	}
	return &churn{c: newBench(t, replicas, 700, gate, knobs, texts).c}
}

func BenchmarkGates(b *testing.B) {
	for _, d := range catalog.Gates() {
		for _, replicas := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", d.Name, replicas), func(b *testing.B) {
				l := gateChurn(b, replicas, d.Name, nil)
				b.ReportAllocs()
				for b.Loop() {
					l.turn()
				}
			})
		}
	}
}

// In steady state no gate allocates, whether turns go at once or wait, are superseded or refused.
func TestGatesDoNotAllocate(t *testing.T) {
	for _, d := range catalog.Gates() {
		texts := []map[string]string{{}}
		switch d.Name {
		case "session":
			texts = []map[string]string{{"preset": "as-shipped"}, {"repair": "strict"}, {"repair": "demand"}, {"repair": "aging"}}
		case "llm-d-saturation":
			texts = []map[string]string{{"fairness": "program-aware"}, {"detector": "concurrency"}, {"ceilings": "soft-reflective"}, {"ceilings": "priority-holdback", "detector": "concurrency"}, {"ordering": "slo-deadline"}, {"ordering": "slo-deadline", "fairness": "program-aware"}}
		}
		for _, x := range texts {
			l := gateChurn(t, 1, d.Name, x)
			for range 4000 {
				l.turn()
			}
			if a := l.c.Audit(); a.Finished < 300 || d.Name != "none" && l.holds < 100 {
				t.Errorf("%s %v: the loop says nothing: %d holds, %+v", d.Name, x, l.holds, a)
			}
			if n := testing.AllocsPerRun(1000, l.turn); n != 0 {
				t.Errorf("%s %v: %v allocations for each turn", d.Name, x, n)
			}
		}
	}
}
