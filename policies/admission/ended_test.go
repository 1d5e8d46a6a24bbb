package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// Clients leave without a word, sessions end while their turns wait or run, numbers are given out again, replicas restart and
// gates are replaced. Once all sessions have ended and nothing runs, nobody waits; and new sessions, under old
// numbers or new ones, are treated as by a gate that has never seen a session: nothing is kept for those that have
// ended.
func TestSessionsThatEndLeaveNothing(t *testing.T) {
	number := func(x float64) policies.Value { return policies.Value{Number: x} }
	text := func(s string) policies.Value { return policies.Value{Text: s} }
	gates := []struct {
		name   string
		params policies.Params
	}{
		{"none", nil},
		{"max-sessions", policies.Params{"max_sessions": number(2)}},
		{"max-requests", policies.Params{"max_requests": number(2)}},
		{"aimd-kv", policies.Params{"initial_requests": number(2), "increase": number(0), "hard_usage": number(10)}},
		{"concur", policies.Params{"initial_window": number(2), "low_usage": number(0), "high_usage": number(1)}},
		{"concur", policies.Params{"initial_window": number(3), "max_window": number(3), "low_usage": number(.4), "high_usage": number(.6), "tick_s": number(1)}},
		{"thunderagent", policies.Params{"timeout_s": number(40)}},
		{"thunderagent", policies.Params{"timeout_s": number(1800), "tick_s": number(2), "mark_all": {Bool: true}}},
		{"dynamo-session-aware", policies.Params{"timeout_s": number(1800)}},
		{"dynamo-session-aware", policies.Params{"timeout_s": number(40), "max_programs": number(2)}},
		{"session", nil},
		{"session", policies.Params{"preset": text("as-shipped")}},
		{"session", policies.Params{"preset": text("as-shipped"), "scope": text("session"), "usage": text("max")}},
		{"session", policies.Params{"repair": text("strict"), "idle_grace_s": number(1)}},
		{"session", policies.Params{"repair": text("strict"), "preset": text("as-shipped")}},
		{"session", policies.Params{"repair": text("demand")}},
		{"session", policies.Params{"repair": text("demand"), "preset": text("as-shipped"), "idle_grace_s": number(3)}},
		{"session", policies.Params{"repair": text("expected")}},
		{"session", policies.Params{"repair": text("aging"), "max_wait_s": number(7)}},
		{"llm-d-saturation", policies.Params{"ttl_s": number(0), "stale_s": number(5)}},
		{"llm-d-saturation", policies.Params{"ttl_s": number(0), "detector": text("concurrency"), "max_requests": number(1), "fairness": text("program-aware")}},
		{"llm-d-saturation", policies.Params{"detector": text("concurrency"), "mode": text("hybrid"), "max_requests": number(1), "max_queued": number(3)}},
		{"llm-d-saturation", policies.Params{"ttl_s": number(0), "detector": text("concurrency"), "max_requests": number(2), "ceilings": text("priority-holdback")}},
	}
	tested := map[string]bool{}
	for _, gate := range gates {
		tested[gate.name] = true
		t.Run(fmt.Sprint(gate.name, gate.params), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newCareless(t, gate.name, gate.params)
				for range rapid.IntRange(1, 40).Draw(t, "acts") {
					w.act()
					w.pass(rapid.SampledFrom([]policies.Time{0, 1, policies.Second / 2, 3 * policies.Second}).Draw(t, "pass"))
				}
				w.settle()
				old := rapid.Bool().Draw(t, "old numbers")
				got := w.burst(old)
				fresh := newCareless(t, gate.name, gate.params)
				fresh.now, fresh.sessions = w.now, w.sessions
				fresh.up()
				if d := cmp.Diff(fresh.burst(old), got); d != "" {
					t.Fatalf("after sessions that have ended, 6 new ones are not treated as by a fresh gate:\n%s\nthe last commands: %v", d, w.log)
				}
			})
		})
	}
	for _, d := range catalog.Gates() {
		if !tested[d.Name] {
			t.Errorf("%s is not tested", d.Name)
		}
	}
}

// careless is a driver of two engines, sampled every second, whose clients and sessions end when they like. Session s has the
// threads 2s and 2s+1.
type careless struct {
	t        *rapid.T
	gate     func() policies.Gate
	c        *policies.Controller
	now      policies.Time
	next     policies.AttemptID
	turns    map[policies.AttemptID]policies.Turn // that wait
	running  map[policies.AttemptID]policies.ReplicaID
	sessions policies.SessionID
	open     map[policies.SessionID]bool
	numbers  map[policies.ThreadID]int32
	events   []answer
	log      []string
}

const burstSessions = 6

func newCareless(t *rapid.T, gate string, p policies.Params) *careless {
	w := &careless{
		t: t, sessions: 5, turns: map[policies.AttemptID]policies.Turn{}, running: map[policies.AttemptID]policies.ReplicaID{},
		open: map[policies.SessionID]bool{}, numbers: map[policies.ThreadID]int32{},
	}
	w.gate = func() policies.Gate {
		g, err := catalog.BuildGate(gate, policies.Env{}, p)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	r, err := catalog.BuildRouter("sticky", policies.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := &prefix.Tree{}
	tree.Root()
	kv := policies.Capability{KVTokens: 2500}
	w.c = policies.NewController(policies.ControllerConfig{
		Tree: tree, Replicas: 2, Capabilities: []policies.Capability{kv, kv}, Gate: w.gate(), Router: r,
	})
	w.up()
	return w
}

// up has both replicas up and sampled every second.
func (w *careless) up() {
	w.events = w.events[:0]
	for r := range policies.ReplicaID(2) {
		w.events = append(w.events, answer{w.now, policies.Fact{Kind: policies.MetricsSampled, Replica: r}})
	}
	w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: 0}, policies.Fact{Kind: policies.ReplicaUp, Replica: 1})
}

func (w *careless) usage(r policies.ReplicaID) float64 {
	n := 0
	for _, at := range w.running {
		if at == r {
			n++
		}
	}
	return min(1, float64(n)/2)
}

func (w *careless) arrive(s policies.SessionID, thread policies.ThreadID, class int32) policies.Fact {
	w.next++
	w.numbers[thread]++
	w.open[s] = true
	u := policies.Turn{Attempt: w.next, Session: s, Thread: thread, Number: w.numbers[thread], Prompt: prefix.Prefix{Tokens: 1000}, Class: class}
	w.turns[u.Attempt] = u
	return policies.Fact{Kind: policies.TurnArrived, Turn: u}
}

// end is the facts of a session's end.
func (w *careless) end(s policies.SessionID) []policies.Fact {
	delete(w.open, s)
	var facts []policies.Fact
	for thread := policies.ThreadID(2 * s); thread < policies.ThreadID(2*s+2); thread++ {
		delete(w.numbers, thread)
		facts = append(facts, policies.Fact{Kind: policies.ThreadFinished, Thread: thread, Session: s})
	}
	return append(facts, policies.Fact{Kind: policies.SessionFinished, Session: s})
}

func (w *careless) act() {
	s := policies.SessionID(rapid.IntRange(0, int(w.sessions)-1).Draw(w.t, "session"))
	thread := policies.ThreadID(2*s) + policies.ThreadID(rapid.IntRange(0, 1).Draw(w.t, "thread"))
	switch kind := rapid.IntRange(0, 12).Draw(w.t, "act"); kind {
	case 0, 1:
		if w.open[s] {
			w.step(w.end(s)...)
		}
	case 2:
		if w.open[s] {
			w.step(append(w.end(s), w.arrive(s, thread, 0))...)
		}
	case 3:
		if w.open[s] {
			w.step(policies.Fact{Kind: policies.ThreadFinished, Thread: thread, Session: s})
		}
	case 4:
		for _, a := range slices.Sorted(maps.Keys(w.turns)) {
			if w.turns[a].Thread == thread {
				delete(w.turns, a)
				w.step(policies.Fact{Kind: policies.ClientGone, Attempt: a})
				return
			}
		}
	case 5:
		w.lose(policies.ReplicaRestarted, policies.ReplicaID(s%2))
	case 6:
		w.lose(policies.ReplicaDown, policies.ReplicaID(s%2))
	case 7:
		w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: policies.ReplicaID(s % 2)})
	case 8:
		w.c.Replace(w.gate(), nil)
		w.step()
	default:
		w.step(w.arrive(s, thread, int32(kind%2)))
	}
}

// lose ends what runs on r.
func (w *careless) lose(kind policies.FactKind, r policies.ReplicaID) {
	var facts []policies.Fact
	for _, a := range slices.Sorted(maps.Keys(w.running)) {
		if w.running[a] == r {
			delete(w.running, a)
			facts = append(facts, policies.Fact{Kind: policies.Failed, Attempt: a, Replica: r})
		}
	}
	w.step(append(facts, policies.Fact{Kind: kind, Replica: r})...)
}

// pass lets time pass.
func (w *careless) pass(d policies.Time) {
	for end := w.now + d; ; {
		next := w.c.NextWake()
		if len(w.events) > 0 {
			next = min(next, w.events[0].at)
		}
		if next > end {
			w.now = end
			return
		}
		w.now = next
		var facts []policies.Fact
		for len(w.events) > 0 && w.events[0].at <= w.now {
			f := w.events[0].fact
			w.events = w.events[1:]
			switch f.Kind {
			case policies.MetricsSampled:
				f.Sample = policies.Sample{At: w.now, Has: policies.HasUsage | policies.HasWaiting | policies.HasPrefixCounters, Usage: w.usage(f.Replica), QueryTokens: int64(w.now / 1e6)}
				w.at(policies.Second, f)
			case policies.UsageProbed:
				f.Usage = w.usage(f.Replica)
			case policies.Finished:
				if _, ok := w.running[f.Attempt]; !ok {
					continue
				}
				delete(w.running, f.Attempt)
			}
			facts = append(facts, f)
		}
		w.step(facts...)
	}
}

func (w *careless) at(d policies.Time, f policies.Fact) {
	w.events = append(w.events, answer{w.now + d, f})
	slices.SortStableFunc(w.events, func(a, b answer) int { return int(a.at - b.at) })
}

func (w *careless) step(facts ...policies.Fact) {
	for _, c := range w.c.Step(w.now, facts, nil) {
		w.log = append(w.log, fmt.Sprint(float64(w.now)/1e9, c))
		w.log = w.log[max(0, len(w.log)-20):]
		switch c.Kind {
		case policies.Reject, policies.Abort:
			delete(w.turns, c.Attempt)
		case policies.Dispatch:
			delete(w.turns, c.Attempt)
			w.running[c.Attempt] = c.Replica
			w.at(policies.Time(1+c.Attempt%4)*policies.Second, policies.Fact{Kind: policies.Finished, Attempt: c.Attempt, Replica: c.Replica, OutputTokens: 10})
		case policies.ProbeUsage:
			w.at(probeTime, policies.Fact{Kind: policies.UsageProbed, Attempt: c.Attempt, Replica: c.Replica})
		case policies.ProbePrefix:
			w.at(probeTime, policies.Fact{Kind: policies.PrefixProbed, Attempt: c.Attempt, Replica: c.Replica, PromptTokens: 1000})
		}
	}
}

// settle ends every session and lets time pass until nothing waits and nothing runs, and then for as long as a gate may
// remember.
func (w *careless) settle() {
	w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: 0}, policies.Fact{Kind: policies.ReplicaUp, Replica: 1})
	for _, s := range slices.Sorted(maps.Keys(w.open)) {
		w.step(w.end(s)...)
	}
	for spent := 0; len(w.turns)+len(w.running) > 0; spent++ {
		if spent == 60 {
			w.t.Fatalf("after ten minutes %d turns wait whose sessions have ended, and %d run: %+v; the last commands: %v", len(w.turns), len(w.running), w.turns, w.log)
		}
		w.pass(10 * policies.Second)
	}
	if a := w.c.Audit(); a.Waiting != 0 || a.Live != 0 {
		w.t.Fatalf("audit %+v", a)
	}
	w.pass(300 * policies.Second)
	for w.c.NextWake() <= w.now+10*probeTime {
		w.pass(10 * probeTime)
	}
}

// burst has new sessions arrive and is what happens to them until their probes are answered.
func (w *careless) burst(oldNumbers bool) []string {
	w.pass(1)
	first := w.sessions
	if oldNumbers {
		first = 0
	}
	w.log = w.log[:0]
	base, began := w.next, w.now
	var facts []policies.Fact
	for s := first; s < first+burstSessions; s++ {
		facts = append(facts, w.arrive(s, policies.ThreadID(2*s), 0))
	}
	var seen []string
	look := func() {
		for _, a := range slices.Sorted(maps.Keys(w.running)) {
			seen = append(seen, fmt.Sprintf("%d runs at %d", a-base, w.now-began))
		}
	}
	w.step(facts...)
	look()
	w.pass(5 * probeTime)
	look()
	return seen
}
