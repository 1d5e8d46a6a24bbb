package decisionlog_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
)

// script is a log by hand: the facts at each moment, in nanoseconds, decided by the given policies.
func script(t *testing.T, gate, router string, at map[policies.Time][]policies.Fact, until policies.Time) []byte {
	t.Helper()
	g, err := catalog.FindGate(gate)
	check(t, err)
	r, err := catalog.FindRouter(router)
	check(t, err)
	h := decisionlog.Header{Gate: decisionlog.Resolved(g, nil), Router: decisionlog.Resolved(r, nil), Retention: decisionlog.Policy{Name: "none"}, Capabilities: make([]policies.Capability, 2)}
	tree := &prefix.Tree{}
	tree.Root()
	c, err := h.Build(tree, nil)
	check(t, err)
	var log bytes.Buffer
	rec := decisionlog.NewRecorder(&log, h)
	for now := policies.Time(0); now <= until; now++ {
		if facts := at[now]; facts != nil || c.NextWake() <= now {
			check(t, rec.Step(tree, now, facts, c.Step(now, facts, nil)))
		}
	}
	return log.Bytes()
}

func arrives(a int) policies.Fact {
	return policies.Fact{Kind: policies.TurnArrived, Replica: policies.NoReplica, Turn: policies.Turn{
		Attempt: policies.AttemptID(a), Session: policies.SessionID(a), Thread: policies.ThreadID(a), Number: 1, Prompt: prefix.Prefix{Tokens: 100}, Group: -1,
	}}
}

func fact(k policies.FactKind, a int) policies.Fact {
	return policies.Fact{Kind: k, Attempt: policies.AttemptID(a), Session: policies.SessionID(a), Thread: policies.ThreadID(a), Replica: policies.NoReplica}
}

func up() []policies.Fact {
	return []policies.Fact{{Kind: policies.ReplicaUp}, {Kind: policies.ReplicaUp, Replica: 1}}
}

// Round-robin sends 1, 2, 3, 4 to 0, 1, 0, 1. By the fewest in flight, 2 goes to 0, which is idle again; 3 to 1; 4, when 2 still
// runs and 3 has ended, to 1.
func TestWhatAnotherRouterWouldDo(t *testing.T) {
	log := script(t, "none", "round-robin", map[policies.Time][]policies.Fact{
		0: append(up(), arrives(1)), 1: {fact(policies.Finished, 1)}, 2: {arrives(2)}, 3: {arrives(3)}, 4: {fact(policies.Finished, 3)}, 5: {arrives(4)},
	}, 6)
	c, err := decisionlog.WhatIf(lines(log), []string{"router=least-requests"})
	check(t, err)
	if got, want := c.Logged.ByReplica, []int64{2, 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("log %v, want %v", got, want)
	}
	if got, want := c.Would.ByReplica, []int64{2, 2}; !reflect.DeepEqual(got, want) || c.Both != 4 || c.Moved != 2 || c.Later != 0 {
		t.Errorf("would %v, want %v; both %d moved %d later %d, want 4, 2 and 0", got, want, c.Both, c.Moved, c.Later)
	}
}

// One session at a time: 1 runs from 0 to 10; 2 came at 1 and took 5, so it runs from 10 to 15 and its session ends then; 3 came at
// 12 and is let in at 15, and its client, which the log served at once, is never told of a wait. 4 was rejected by nobody.
func TestWhatAnotherGateWouldDo(t *testing.T) {
	at := map[policies.Time][]policies.Fact{
		0: append(up(), arrives(1)), 1: {arrives(2)}, 6: {fact(policies.Finished, 2), fact(policies.SessionFinished, 2)},
		10: {fact(policies.Finished, 1), fact(policies.SessionFinished, 1)}, 12: {arrives(3)}, 13: {fact(policies.Finished, 3), fact(policies.SessionFinished, 3)},
		20: {fact(policies.Woke, 0)},
	}
	log := script(t, "none", "least-requests", at, 20)
	c, err := decisionlog.WhatIf(lines(log), []string{"gate=max-sessions", "gate.max_sessions=1"})
	check(t, err)
	w := &c.Would
	if w.Admitted != 3 || w.Held != 2 || w.Wait != 9+3 || w.MaxWait != 9 || w.Waiting != 0 || c.Later != 2 || c.Logged.Wait != 0 {
		t.Errorf("would %+v\n%+v", w, c)
	}
	log = script(t, "none", "least-requests", at, 14)
	if c, err = decisionlog.WhatIf(lines(log), []string{"gate=max-sessions", "gate.max_sessions=1"}); err != nil || c.Would.Waiting != 1 || c.Would.Admitted != 2 {
		t.Errorf("at the end of a shorter log: %+v, %v", c, err)
	}
}

// Every gate and every router can be tried on a log of others, to the end and with nothing admitted twice.
func TestEveryPolicyCanBeTried(t *testing.T) {
	for _, from := range [][2]string{{"none", "round-robin"}, {"session", "smetric"}} {
		log, _ := record(t, world(t, from[0], from[1], 1))
		for i, g := range catalog.Gates() {
			for k, r := range catalog.Routers() {
				if i > 0 && k > 0 {
					continue
				}
				c, err := decisionlog.WhatIf(lines(log), []string{"gate=" + g.Name, "router=" + r.Name})
				needs := g.Signals(g.Resolve(nil)) | r.Signals(r.Resolve(nil))
				if needs&policies.NeedsOracle != 0 {
					if err == nil {
						t.Errorf("%s with %s was tried without an oracle", g.Name, r.Name)
					}
					continue
				}
				check(t, err)
				w := c.Would
				if w.Admitted > w.Arrived || c.Both > min(w.Admitted, c.Logged.Admitted) || w.Admitted == 0 && c.Missing == 0 {
					t.Errorf("%v, then %s with %s: %+v", from, g.Name, r.Name, w)
				}
				missing := (g.Signals(nil) | r.Signals(nil)) &^ c.Header.Signals &^ policies.NeedsProbes
				if c.Missing != missing {
					t.Errorf("%v, then %s with %s: %v missing, want %v", from, g.Name, r.Name, c.Missing.Names(), missing.Names())
				}
			}
		}
	}
}

func TestSettings(t *testing.T) {
	log, _ := record(t, world(t, "session", "lmetric", 1))
	for _, x := range []struct{ setting, want string }{
		{"gate", `"gate": expected gate=NAME, router=NAME, gate.KNOB=VALUE or router.KNOB=VALUE`},
		{"cluster.replicas=4", `"cluster.replicas=4": expected gate=NAME, router=NAME, gate.KNOB=VALUE or router.KNOB=VALUE`},
		{"router=lmetrik", `no router "lmetrik"; did you mean "lmetric"?`},
		{"gate.high_watermrk=1", `session: no knob "high_watermrk"; did you mean "high_watermark"?`},
		{"gate.high_watermark=x", `session: high_watermark is "x", must be a number`},
		{"gate.high_watermark=11", `session: high_watermark is 11, must be from 0 to 10 fraction`},
		{"policy.router.include_queue=1", `lmetric: include_queue is "1", must be true or false`},
		{"router=oracle", `a policy that asks an oracle cannot be tried on a log, which has no exact knowledge of what did not happen`},
	} {
		if _, err := decisionlog.WhatIf(lines(log), []string{x.setting}); err == nil || err.Error() != x.want {
			t.Errorf("%s: got  %v\nwant %s", x.setting, err, x.want)
		}
	}
	// A knob on the log's own policy keeps its others; another policy starts from its defaults.
	d := decisionlog.NewDecoder()
	for line := range lines(log) {
		_, err := d.Take(line)
		check(t, err)
		break
	}
	d.Header.Gate.Knobs[1].Value.Bool = false
	h, err := d.Header.With([]string{"gate.idle_grace_s=7", "router=smetric", "router.gate=overload"})
	check(t, err)
	if p := h.Gate.Params(); p["idle_grace_s"].Number != 7 || p["enabled"].Bool || h.Router.Name != "smetric" || h.Router.Params()["gate"].Text != "overload" {
		t.Errorf("%+v %+v", h.Gate, h.Router)
	}
}
