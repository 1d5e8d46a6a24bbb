package admission_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
)

// queueWorld draws arrivals, ends and departures, and follows who waits and who runs.
type queueWorld struct {
	t       *rapid.T
	c       *policies.Controller
	now     policies.Time
	next    policies.AttemptID
	waiting []policies.AttemptID
	running []policies.AttemptID
	class   map[policies.AttemptID]int32
	tokens  map[policies.AttemptID]int32
	arrived map[policies.AttemptID]policies.Time
}

// step plays one moment and returns the attempts that were let go, in order.
func (w *queueWorld) step(pass policies.Time) (went []policies.AttemptID) {
	w.now += pass
	var facts []policies.Fact
	for range rapid.IntRange(0, 2).Draw(w.t, "ends") {
		if len(w.running) == 0 {
			break
		}
		i := rapid.IntRange(0, len(w.running)-1).Draw(w.t, "which")
		facts = append(facts, policies.Fact{Kind: policies.Finished, Attempt: w.running[i], OutputTokens: 1})
		w.running = slices.Delete(w.running, i, i+1)
	}
	if len(w.waiting) > 0 && rapid.IntRange(0, 3).Draw(w.t, "leaves") == 0 {
		i := rapid.IntRange(0, len(w.waiting)-1).Draw(w.t, "who")
		facts = append(facts, policies.Fact{Kind: policies.ClientGone, Attempt: w.waiting[i]})
		w.waiting = slices.Delete(w.waiting, i, i+1)
	}
	for range rapid.IntRange(0, 3).Draw(w.t, "arrivals") {
		w.next++
		f := turnOf(w.next, policies.ThreadID(w.next), 100)
		f.Turn.Class = int32(rapid.IntRange(-1, 1).Draw(w.t, "class"))
		f.Turn.Prompt.Tokens = rapid.SampledFrom([]int32{100, 1000, 40_000}).Draw(w.t, "tokens")
		w.class[w.next], w.tokens[w.next], w.arrived[w.next] = f.Turn.Class, f.Turn.Prompt.Tokens, w.now
		w.waiting = append(w.waiting, w.next)
		facts = append(facts, f)
	}
	for _, c := range w.c.Step(w.now, facts, nil) {
		if c.Kind == policies.Admit {
			went = append(went, c.Attempt)
			w.waiting = slices.DeleteFunc(w.waiting, func(a policies.AttemptID) bool { return a == c.Attempt })
			w.running = append(w.running, c.Attempt)
		}
	}
	return went
}

func newQueueWorld(t *rapid.T, outer *testing.T, gate string, knobs map[string]float64, texts map[string]string) *queueWorld {
	return &queueWorld{t: t, c: newBench(outer, 2, 0, gate, knobs, texts).c, class: map[policies.AttemptID]int32{},
		tokens: map[policies.AttemptID]int32{}, arrived: map[policies.AttemptID]policies.Time{}}
}

// max-requests is a list: whoever waits goes, in order of arrival, as long as a slot is free.
func TestMaxRequestsAgainstAList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(rt, "limit")
		w := newQueueWorld(rt, t, "max-requests", map[string]float64{"max_requests": float64(limit)}, nil)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			went := w.step(policies.Second)
			if len(w.running) > limit || len(w.running) < limit && len(w.waiting) > 0 {
				rt.Fatalf("%d run of %d while %v wait", len(w.running), limit, w.waiting)
			}
			if !slices.IsSorted(went) || len(went) > 0 && len(w.waiting) > 0 && w.waiting[0] < went[len(went)-1] {
				rt.Fatalf("%v went before %v", went, w.waiting)
			}
		}
	})
}

// llm-d-saturation keeps to its limit and lets nobody go before a turn of its class that is first by arrival or, under
// slo-deadline, by its deadline, or before a turn of a more important class.
func TestSaturationOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 3).Draw(rt, "limit")
		ordering := rapid.SampledFrom([]string{"fcfs", "slo-deadline"}).Draw(rt, "ordering")
		w := newQueueWorld(rt, t, "llm-d-saturation", map[string]float64{"max_requests": float64(limit), "ttl_s": 0, "ttft_per_1k_prompt_s": .001},
			map[string]string{"detector": "concurrency", "ordering": ordering})
		// before tells whether b goes before a. A millisecond of budget for each 1,000 tokens is a step of the world.
		before := func(b, a policies.AttemptID) bool {
			dueA, dueB := int64(w.arrived[a]), int64(w.arrived[b])
			if ordering == "slo-deadline" {
				dueA, dueB = dueA+int64(w.tokens[a])*1000, dueB+int64(w.tokens[b])*1000
			}
			return w.class[b] < w.class[a] || w.class[b] == w.class[a] && (dueB < dueA || dueB == dueA && b < a)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			went := w.step(policies.Second / 1000)
			if len(w.running) > 2*limit {
				rt.Fatalf("%d run, the limit is %d", len(w.running), 2*limit)
			}
			for _, a := range went {
				for _, b := range w.waiting {
					// A turn that came after a's cycle may wait; it is a later attempt of this moment.
					if (b < a || w.arrived[b] < w.now) && before(b, a) {
						rt.Fatalf("%d of class %d went, %d of class %d waits", a, w.class[a], b, w.class[b])
					}
				}
			}
		}
		for range 50 { // cycles without facts: whoever fits has gone by then
			for _, c := range w.c.Step(w.now+policies.Second, nil, nil) {
				if c.Kind == policies.Admit {
					w.running, w.waiting = append(w.running, c.Attempt), w.waiting[1:]
				}
			}
			w.now += policies.Second
		}
		if len(w.running) < 2*limit && len(w.waiting) > 0 {
			rt.Fatalf("%d run of %d while %d wait", len(w.running), 2*limit, len(w.waiting))
		}
	})
}

// concur never has more sessions with a running turn than the largest window so far, and starts new sessions in order.
func TestConcurOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		window := rapid.IntRange(1, 4).Draw(rt, "window")
		w := newQueueWorld(rt, t, "concur", map[string]float64{"initial_window": float64(window)}, nil)
		last := policies.AttemptID(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			before := slices.Clone(w.running)
			for _, a := range w.step(policies.Second) {
				if a < last {
					rt.Fatalf("%d went after %d", a, last)
				}
				last = a
			}
			if len(w.running) > window {
				rt.Fatalf("%d run, the window is %d", len(w.running), window)
			}
			var ended []policies.Fact
			for _, a := range before {
				if !slices.Contains(w.running, a) {
					ended = append(ended, policies.Fact{Kind: policies.SessionFinished, Session: policies.SessionID(a)})
				}
			}
			for _, c := range w.c.Step(w.now, ended, nil) {
				if c.Kind == policies.Admit {
					if c.Attempt < last {
						rt.Fatalf("%d went after %d", c.Attempt, last)
					}
					last = c.Attempt
					w.running = append(w.running, c.Attempt)
					w.waiting = slices.DeleteFunc(w.waiting, func(a policies.AttemptID) bool { return a == c.Attempt })
				}
			}
		}
	})
}
