package decisionlog_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
)

// TestKnobsThatChangeOnTheWay lets knobs of gate and router change while turns run and wait, with every gate, and replays the log.
func TestKnobsThatChangeOnTheWay(t *testing.T) {
	for _, gate := range catalog.Gates() {
		tree := &prefix.Tree{}
		tree.Root()
		router, err := catalog.FindRouter("llm-d")
		check(t, err)
		var log bytes.Buffer
		h := decisionlog.Header{
			Sluice: "test", Gate: decisionlog.Resolved(gate, nil), Router: decisionlog.Resolved(router, nil), Retention: decisionlog.Policy{Name: "none"},
			Capabilities: make([]policies.Capability, 2),
		}
		r := decisionlog.NewRecorder(&log, h)
		c := policies.NewController(policies.ControllerConfig{
			Tree: tree, Replicas: 2, Capabilities: h.Capabilities, Gate: gate.NewGate(policies.Env{}, gate.Resolve(nil)),
			Router: r.Router(router).NewRouter(policies.Env{}, router.Resolve(nil)),
		})
		var now policies.Time
		live := map[policies.AttemptID]bool{}
		step := func(facts ...policies.Fact) {
			now += policies.Second / 4
			out := c.Step(now, facts, nil)
			check(t, r.Step(tree, now, facts, out))
			for _, x := range out {
				if x.Kind == policies.Dispatch {
					live[x.Attempt] = true
				}
			}
		}
		step(policies.Fact{Kind: policies.ReplicaUp, Replica: 0}, policies.Fact{Kind: policies.ReplicaUp, Replica: 1})
		end := func(a policies.AttemptID) {
			if live[a] {
				delete(live, a)
				step(policies.Fact{Kind: policies.Finished, Attempt: a, OutputTokens: 10})
			}
		}
		changes := 0
		for a := policies.AttemptID(1); a <= 400; a++ {
			s := int32(a % 40)
			step(policies.Fact{Kind: policies.TurnArrived, Replica: policies.NoReplica, Turn: policies.Turn{
				Attempt: a, Session: policies.SessionID(s), Thread: policies.ThreadID(s), Number: int32(a/40) + 1, Prompt: prefix.Prefix{Tokens: 500}, Group: -1,
			}})
			end(a - 30)
			if a%50 != 0 {
				continue
			}
			knobs, weights := policies.Params{}, policies.Params{"queue_weight": {Number: float64(a % 3)}}
			for _, k := range gate.Knobs {
				if k.Kind == policies.FloatKnob && k.Min < k.Default.Number {
					knobs[k.Name] = policies.Value{Number: k.Default.Number * (1 - float64(a%4)/8)}
				}
				if strings.HasPrefix(k.Name, "max_") && k.Kind == policies.IntKnob {
					knobs[k.Name] = policies.Value{Number: float64(5 + a%20)}
				}
			}
			for _, name := range []string{"max_window", "initial_window"} {
				if _, ok := gate.Knob(name); ok {
					knobs[name] = policies.Value{Number: 8}
				}
			}
			check(t, gate.Check(knobs))
			r.Change(decisionlog.Resolved(gate, knobs), decisionlog.Resolved(router, weights))
			var newGate policies.Gate
			if len(knobs) > 0 {
				newGate = gate.NewGate(policies.Env{}, gate.Resolve(knobs))
			}
			c.Replace(newGate, r.Router(router).NewRouter(policies.Env{}, router.Resolve(weights)))
			step(policies.Fact{Kind: policies.Woke, Replica: policies.NoReplica})
			changes++
		}
		for a := policies.AttemptID(371); a <= 400; a++ {
			end(a)
		}
		if a := c.Audit(); a.Admitted != a.Finished+a.Failed+a.Cancelled+a.Live || int(a.Live) != len(live) {
			t.Errorf("%s: accounts %+v", gate.Name, a)
		}
		out, err := decisionlog.Replay(lines(log.Bytes()))
		if err != nil {
			t.Errorf("%s: %v", gate.Name, err)
		}
		if n := bytes.Count(log.Bytes(), []byte(`{"decision_log":`)); n != changes+1 || out.Steps == 0 {
			t.Errorf("%s: %d headers after %d changes", gate.Name, n, changes)
		}
	}
}

// TestAGateThatTakesAnothersPlaceCountsWhatRuns: one slot, taken, then three slots: two are free.
func TestAGateThatTakesAnothersPlaceCountsWhatRuns(t *testing.T) {
	for name, knob := range map[string]string{"max-requests": "max_requests", "max-sessions": "max_sessions", "concur": "initial_window", "aimd-kv": "initial_requests"} {
		gate, err := catalog.FindGate(name)
		check(t, err)
		make := func(n float64) policies.Gate {
			return gate.NewGate(policies.Env{}, gate.Resolve(policies.Params{knob: {Number: n}}))
		}
		router, err := catalog.FindRouter("round-robin")
		check(t, err)
		tree := &prefix.Tree{}
		tree.Root()
		c := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: 1, Gate: make(1), Router: router.NewRouter(policies.Env{}, nil)})
		in := []policies.Fact{{Kind: policies.ReplicaUp}}
		for i := range 5 {
			in = append(in, policies.Fact{Kind: policies.TurnArrived, Replica: policies.NoReplica, Turn: policies.Turn{
				Attempt: policies.AttemptID(i), Session: policies.SessionID(i), Thread: policies.ThreadID(i), Number: 1, Prompt: prefix.Prefix{Tokens: 10}, Group: -1,
			}})
		}
		c.Step(1, in, nil)
		if n := c.Audit().Live; n != 1 {
			t.Fatalf("%s: %d leases of 1", name, n)
		}
		c.Replace(make(3), nil)
		c.Step(2, []policies.Fact{{Kind: policies.Woke}}, nil)
		if n := c.Audit().Live; n != 3 {
			t.Errorf("%s: %d leases of 3", name, n)
		}
		c.Replace(make(2), nil)
		c.Step(3, []policies.Fact{{Kind: policies.Woke}}, nil)
		for a := range policies.AttemptID(3) {
			c.Step(policies.Time(4+a), []policies.Fact{{Kind: policies.Finished, Attempt: a}, {Kind: policies.SessionFinished, Session: policies.SessionID(a)}}, nil)
		}
		if n := c.Audit().Live; n != 2 {
			t.Errorf("%s: %d leases of 2 once the first three have ended", name, n)
		}
	}
}

func TestAHeaderMayChangeKnobsOnly(t *testing.T) {
	first := smallLog[:strings.IndexByte(smallLog, '\n')+1]
	for _, change := range [][2]string{{`"seed":1844`, `"seed":1`}, {`"kv_tokens":`, `"kv_tokens":1`}, {`"instances":1`, `"instances":2`}} {
		other := strings.Replace(first, change[0], change[1], 1)
		d := decisionlog.NewDecoder()
		_, err := d.Take([]byte(first))
		check(t, err)
		if _, err = d.Take([]byte(other)); err == nil || other == first || !strings.Contains(err.Error(), "changes more than knobs") {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}
