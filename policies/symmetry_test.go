package policies_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// orderly makes one moment's facts as a careful driver would: at most one about each attempt, thread and replica.
func orderly(t *rapid.T, now policies.Time, next *policies.AttemptID, replicas int, running []policies.AttemptID) []policies.Fact {
	var facts []policies.Fact
	for r := range policies.ReplicaID(replicas) {
		switch rapid.IntRange(0, 5).Draw(t, "of replica") {
		case 0:
			facts = append(facts, policies.Fact{Kind: policies.BlocksStored, Replica: r, Lo: 0, Hi: int32(rapid.IntRange(1, 6).Draw(t, "hi")), BlockTokens: 16})
		case 1:
			facts = append(facts, policies.Fact{Kind: policies.BlocksEvicted, Replica: r, Lo: int32(rapid.IntRange(0, 3).Draw(t, "lo")), Hi: 6, BlockTokens: 16})
		case 2:
			facts = append(facts, policies.Fact{Kind: policies.MetricsSampled, Replica: r, Sample: policies.Sample{
				At: now, Has: policies.HasRunning | policies.HasWaiting, Running: int32(rapid.IntRange(0, 4).Draw(t, "running")), Waiting: int32(rapid.IntRange(0, 4).Draw(t, "waiting")),
			}})
		}
	}
	for _, a := range running {
		switch rapid.IntRange(0, 3).Draw(t, "of attempt") {
		case 0:
			facts = append(facts, policies.Fact{Kind: policies.Finished, Attempt: a, OutputTokens: 10})
		case 1:
			facts = append(facts, policies.Fact{Kind: policies.FirstToken, Attempt: a})
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "arrivals") {
		*next++
		facts = append(facts, policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{
			Attempt: *next, Thread: policies.ThreadID(*next), Session: policies.SessionID(*next), Number: int32(rapid.IntRange(1, 3).Draw(t, "number")),
			Prompt: prefix.Prefix{Tokens: int32(rapid.IntRange(1, 120).Draw(t, "tokens"))},
		}})
	}
	return facts
}

// runningOf is what the commands and facts so far leave running, in order.
func runningOf(running []policies.AttemptID, facts []policies.Fact, out []policies.Command) []policies.AttemptID {
	for _, f := range facts {
		if f.Kind == policies.Finished {
			running = slices.DeleteFunc(running, func(a policies.AttemptID) bool { return a == f.Attempt })
		}
	}
	for _, c := range out {
		if c.Kind == policies.Dispatch {
			running = append(running, c.Attempt)
		}
	}
	slices.Sort(running)
	return running
}

func upAll(replicas int) []policies.Fact {
	var facts []policies.Fact
	for r := range policies.ReplicaID(replicas) {
		facts = append(facts, up(r))
	}
	return facts
}

// Facts of one moment that are about different things may come in any order. (Gates that probe learn the order of
// arrival from the order of answers, so their answers are not shuffled here.)
func TestOrderOfFactsDoesNotMatter(t *testing.T) {
	const replicas = 3
	for _, a := range arms() {
		if a.gate == "session" {
			continue // it probes
		}
		t.Run(a.name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				tree := &prefix.Tree{}
				tree.Root()
				one, two := a.build(tree, replicas), a.build(tree, replicas)
				one.Step(0, upAll(replicas), nil)
				two.Step(0, upAll(replicas), nil)
				var next policies.AttemptID
				var running []policies.AttemptID
				for now := range policies.Time(rapid.IntRange(1, 15).Draw(t, "steps")) {
					facts := orderly(t, now, &next, replicas, running)
					out := one.Step(now, facts, nil)
					shuffled := rapid.Permutation(facts).Draw(t, "order")
					if d := cmp.Diff(out, two.Step(now, shuffled, nil)); d != "" {
						t.Fatalf("order matters (-given +shuffled):\n%s", d)
					}
					running = runningOf(running, facts, out)
				}
			})
		})
	}
}

// In steady state a Step allocates nothing: arrivals, KV events, samples, first tokens and ends of 64 threads in turn.
func TestStepDoesNotAllocate(t *testing.T) {
	for _, d := range catalog.Routers() {
		router := d.Name
		for _, gate := range []string{"none", "max-sessions", "session"} {
			tree := &prefix.Tree{}
			tree.Root()
			for range 64 {
				tree.Fork(prefix.Prefix{Stream: 0, Tokens: 1000})
			}
			c := arm{gate: gate, router: router}.build(tree, 8)
			c.Step(0, upAll(8), nil)
			l := &loop{c: c, gate: gate}
			for range 5000 {
				l.turn()
			}
			if n := testing.AllocsPerRun(2000, l.turn); n != 0 {
				t.Errorf("%s with %s: %v allocations for each turn", gate, router, n)
			}
		}
	}
}

// loop plays whole turns, one after another.
type loop struct {
	c     *policies.Controller
	gate  string
	now   policies.Time
	next  policies.AttemptID
	facts []policies.Fact
	out   []policies.Command
}

func (l *loop) step(f ...policies.Fact) {
	l.now += 1e6
	l.facts = append(l.facts[:0], f...)
	l.out = l.c.Step(l.now, l.facts, l.out[:0])
}

func (l *loop) turn() {
	l.next++
	thread := policies.ThreadID(l.next % 64)
	stream := prefix.StreamID(1 + thread)
	l.step(policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{
		Attempt: l.next, Thread: thread, Session: policies.SessionID(thread), Number: 2, Prompt: prefix.Prefix{Stream: stream, Tokens: 5000},
	}})
	if l.gate == "session" {
		l.step(policies.Fact{Kind: policies.UsageProbed, Attempt: l.next, Replica: l.out[0].Replica, Usage: .9})
		if l.out[0].Kind == policies.ProbePrefix {
			l.step(policies.Fact{Kind: policies.PrefixProbed, Attempt: l.next, Replica: l.out[0].Replica, HitTokens: 4800, PromptTokens: 5000})
		}
	}
	to := l.out[len(l.out)-1].Replica
	l.step(policies.Fact{Kind: policies.FirstToken, Attempt: l.next},
		policies.Fact{Kind: policies.BlocksStored, Replica: to, Stream: stream, Lo: 62, Hi: 312, BlockTokens: 16})
	l.step(policies.Fact{Kind: policies.MetricsSampled, Replica: to, Sample: policies.Sample{At: l.now, Has: policies.HasRunning | policies.HasWaiting, Running: 2}})
	l.step(policies.Fact{Kind: policies.Finished, Attempt: l.next, OutputTokens: 100},
		policies.Fact{Kind: policies.BlocksEvicted, Replica: to, Stream: stream, Lo: 62, Hi: 312, BlockTokens: 16},
		policies.Fact{Kind: policies.SessionFinished, Session: policies.SessionID(thread)})
}

func BenchmarkTurn(b *testing.B) {
	for _, router := range []string{"round-robin", "sticky", "lmetric", "smetric"} {
		for _, gate := range []string{"none", "session"} {
			b.Run(fmt.Sprintf("%s/%s", gate, router), func(b *testing.B) {
				tree := &prefix.Tree{}
				tree.Root()
				for range 64 {
					tree.Fork(prefix.Prefix{Stream: 0, Tokens: 1000})
				}
				c := arm{gate: gate, router: router}.build(tree, 8)
				c.Step(0, upAll(8), nil)
				l := &loop{c: c, gate: gate}
				b.ReportAllocs()
				for b.Loop() {
					l.turn()
				}
			})
		}
	}
}
