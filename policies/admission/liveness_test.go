package admission_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// A small closed loop: threads of several turns on two engines whose usage is the number of turns that they run over
// their room, and whose prefixes last until others push them out. They are sampled once a second. Whatever the gate and
// its knobs, every turn finishes, and the log replays.
func TestEveryTurnFinishes(t *testing.T) {
	for _, gate := range []string{"none", "max-sessions", "documented", "as-shipped", "max-requests", "aimd-kv", "concur", "thunderagent", "dynamo-session-aware", "llm-d-saturation"} {
		t.Run(gate, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				name, p := gate, policies.Params{}
				switch gate {
				case "max-sessions":
					p["max_sessions"] = policies.Value{Number: float64(rapid.IntRange(1, 3).Draw(t, "slots"))}
				case "documented", "as-shipped":
					name = "session"
					p["preset"] = policies.Value{Text: gate}
					p["usage"] = policies.Value{Text: rapid.SampledFrom([]string{"owner", "mean", "max"}).Draw(t, "usage")}
					p["repair"] = policies.Value{Text: rapid.SampledFrom([]string{"none", "strict", "demand", "expected", "aging"}).Draw(t, "repair")}
					p["idle_grace_s"] = policies.Value{Number: float64(rapid.IntRange(0, 3).Draw(t, "grace"))}
				case "max-requests":
					p["max_requests"] = policies.Value{Number: float64(rapid.IntRange(1, 3).Draw(t, "slots"))}
				case "aimd-kv":
					p["initial_requests"] = policies.Value{Number: float64(rapid.IntRange(1, 3).Draw(t, "slots"))}
				case "thunderagent", "dynamo-session-aware":
					p["tick_s"] = policies.Value{Number: float64(rapid.IntRange(1, 7).Draw(t, "tick"))}
					p["timeout_s"] = policies.Value{Number: 100}
				case "llm-d-saturation":
					p["detector"] = policies.Value{Text: rapid.SampledFrom([]string{"utilization", "concurrency"}).Draw(t, "detector")}
					p["fairness"] = policies.Value{Text: rapid.SampledFrom([]string{"global-strict", "program-aware"}).Draw(t, "fairness")}
					p["max_requests"] = policies.Value{Number: float64(rapid.IntRange(1, 2).Draw(t, "requests"))}
					p["max_queued"] = policies.Value{Number: float64(rapid.IntRange(1, 3).Draw(t, "queued"))}
					p["ceilings"] = policies.Value{Text: rapid.SampledFrom([]string{"static", "priority-holdback", "soft-reflective"}).Draw(t, "ceilings")}
					p["ttl_s"] = policies.Value{Number: float64(rapid.IntRange(0, 4).Draw(t, "ttl"))}
				case "concur":
					p["initial_window"] = policies.Value{Number: float64(rapid.IntRange(1, 4).Draw(t, "window"))}
					p["high_usage"] = policies.Value{Number: .3}
				}
				router := rapid.SampledFrom([]string{"sticky", "round-robin"}).Draw(t, "router")
				kv := int64(rapid.IntRange(500, 4000).Draw(t, "kv"))
				w := &tiny{t: t, room: rapid.IntRange(1, 3).Draw(t, "room"), turns: 3, c: buildTiny(t, name, p, router, kv)}
				w.run(rapid.IntRange(1, 6).Draw(t, "threads"))
				if err := policies.Replay(buildTiny(t, name, p, router, kv), w.entries); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func buildTiny(t *rapid.T, gate string, p policies.Params, router string, kv int64) *policies.Controller {
	g, err := catalog.BuildGate(gate, policies.Env{}, p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := catalog.BuildRouter(router, policies.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := &prefix.Tree{}
	tree.Root()
	return policies.NewController(policies.ControllerConfig{
		Tree: tree, Replicas: 2, Capabilities: []policies.Capability{{KVTokens: kv}, {KVTokens: kv}}, Gate: g, Router: r,
	})
}

type tiny struct {
	t       *rapid.T
	c       *policies.Controller
	room    int
	turns   int32
	running [2]int
	recent  [2][]policies.ThreadID // the last threads that ran there, newest last
	next    policies.AttemptID
	events  []answer
	thread  map[policies.AttemptID]policies.ThreadID
	number  map[policies.ThreadID]int32
	log     []string
	entries []policies.Entry
}

func (w *tiny) at(d, now policies.Time, f policies.Fact) {
	w.events = append(w.events, answer{now + d, f})
	for i := len(w.events) - 1; i > 0 && w.events[i].at < w.events[i-1].at; i-- {
		w.events[i], w.events[i-1] = w.events[i-1], w.events[i]
	}
}

func (w *tiny) arrive(d, now policies.Time, th policies.ThreadID) {
	w.number[th]++
	w.at(d, now, policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{
		Thread: th, Session: policies.SessionID(th), Number: w.number[th], Prompt: prefix.Prefix{Tokens: 1000},
	}})
}

func (w *tiny) run(threads int) {
	w.thread, w.number = map[policies.AttemptID]policies.ThreadID{}, map[policies.ThreadID]int32{}
	now := policies.Time(0)
	w.step(now, []policies.Fact{{Kind: policies.ReplicaUp, Replica: 0}, {Kind: policies.ReplicaUp, Replica: 1}})
	for th := range policies.ThreadID(threads) {
		w.arrive(policies.Time(rapid.IntRange(0, 3).Draw(w.t, "start"))*policies.Second, now, th)
	}
	for r := range policies.ReplicaID(2) {
		w.at(0, now, policies.Fact{Kind: policies.MetricsSampled, Replica: r})
	}
	finished := 0
	for steps := 0; finished < threads*int(w.turns); steps++ {
		next := w.c.NextWake()
		if len(w.events) > 0 {
			next = min(next, w.events[0].at)
		}
		if next == policies.Never || steps > 20000 {
			w.t.Fatalf("%d turns of %d finished after %d steps, %v s; the last: %v", finished, threads*int(w.turns), steps, now/policies.Second, w.log)
		}
		now = next
		var facts []policies.Fact
		for len(w.events) > 0 && w.events[0].at == now {
			f := w.events[0].fact
			w.events = w.events[1:]
			if f.Kind == policies.TurnArrived { // attempts are numbered in order of arrival
				w.next++
				f.Turn.Attempt = w.next
				w.thread[w.next] = f.Turn.Thread
			}
			if f.Kind == policies.MetricsSampled {
				f.Sample = policies.Sample{At: now, Has: policies.HasUsage | policies.HasWaiting | policies.HasPrefixCounters, Usage: min(1, float64(w.running[f.Replica])/float64(w.room)),
					QueryTokens: int64(now / 1e6), HitTokens: int64(now / 1e7)}
				w.at(policies.Second, now, f)
			}
			facts = append(facts, f)
			if f.Kind == policies.Finished {
				finished++
				facts = append(facts, w.ended(now, f)...)
			}
		}
		w.step(now, facts)
	}
	if a := w.c.Audit(); a.Live != 0 || a.Waiting != 0 || a.Finished != int64(finished) {
		w.t.Fatalf("audit %+v", a)
	}
}

func (w *tiny) ended(now policies.Time, f policies.Fact) []policies.Fact {
	th := w.thread[f.Attempt]
	w.running[f.Replica]--
	if w.number[th] < w.turns {
		w.arrive(policies.Time(rapid.IntRange(0, 4).Draw(w.t, "gap"))*policies.Second, now, th)
		return nil
	}
	return []policies.Fact{{Kind: policies.ThreadFinished, Thread: th, Session: policies.SessionID(th)}, {Kind: policies.SessionFinished, Session: policies.SessionID(th)}}
}

func (w *tiny) step(now policies.Time, facts []policies.Fact) {
	out := w.c.Step(now, facts, nil)
	w.entries = append(w.entries, policies.Entry{Now: now, Facts: facts, Commands: out})
	w.act(now, out)
}

func (w *tiny) act(now policies.Time, out []policies.Command) {
	for _, c := range out {
		w.log = append(w.log, fmt.Sprint(now/1e6, c))
		w.log = w.log[max(0, len(w.log)-10):]
		switch c.Kind {
		case policies.Reject:
			th := w.thread[c.Attempt]
			w.number[th]--
			w.arrive(c.RetryAfter+1, now, th)
		case policies.Dispatch:
			w.running[c.Replica]++
			w.recent[c.Replica] = append(w.recent[c.Replica], w.thread[c.Attempt])
			w.at(policies.Time(rapid.IntRange(1, 5).Draw(w.t, "takes"))*policies.Second, now, policies.Fact{Kind: policies.Finished, Attempt: c.Attempt, Replica: c.Replica, OutputTokens: 1})
		case policies.ProbeUsage:
			w.at(probeTime, now, policies.Fact{Kind: policies.UsageProbed, Attempt: c.Attempt, Replica: c.Replica, Usage: float64(w.running[c.Replica]) / float64(w.room)})
		case policies.ProbePrefix:
			hit := int32(0)
			for _, th := range w.recent[c.Replica][max(0, len(w.recent[c.Replica])-w.room):] {
				if th == w.thread[c.Attempt] {
					hit = 900
				}
			}
			w.at(probeTime, now, policies.Fact{Kind: policies.PrefixProbed, Attempt: c.Attempt, Replica: c.Replica, HitTokens: hit, PromptTokens: 1000})
		}
	}
}
