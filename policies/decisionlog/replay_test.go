package decisionlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/sim"
)

// A log of every pair of gate and router replays alone to the same commands, its own policies would have done what they did,
// and writing it changes no row of the run.
func TestEveryPairReplays(t *testing.T) {
	timedOut, held := 0, 0
	for i, g := range catalog.Gates() {
		for k, r := range catalog.Routers() {
			log, turns := record(t, world(t, g.Name, r.Name, 1))
			if i == 0 || k == 0 {
				plain := &sink{}
				_, err := sim.Run(context.Background(), world(t, g.Name, r.Name, 1), plain)
				check(t, err)
				if !slices.Equal(turns, plain.turns) {
					t.Errorf("%s with %s: logging changes the run", g.Name, r.Name)
				}
			}
			out, err := decisionlog.Replay(lines(log))
			if err != nil || out.Steps < 100 || out.Commands < 100 {
				t.Errorf("%s with %s: %d steps, %d commands, %v", g.Name, r.Name, out.Steps, out.Commands, err)
			}
			timedOut += count(turns, func(x *results.Turn) bool { return x.Outcome == results.TimedOut })
			held += count(turns, func(x *results.Turn) bool { return x.GateHolds > 0 })
			if (g.Needs|r.Needs)&policies.NeedsOracle != 0 {
				continue
			}
			c, err := decisionlog.WhatIf(lines(log), []string{"policy.router.name=" + r.Name})
			check(t, err)
			if !reflect.DeepEqual(c.Logged, c.Would) || c.Moved != 0 || c.Later != 0 || c.Guessed+c.Unanswered != 0 || c.Both != c.Logged.Admitted {
				t.Errorf("%s with %s would differ from itself:\nlog   %+v\nother %+v", g.Name, r.Name, c.Logged, c.Would)
			}
		}
	}
	if timedOut == 0 || held == 0 {
		t.Errorf("%d attempts timed out and %d were held: the world is too quiet to test with", timedOut, held)
	}
}

// Routers with other knobs than the defaults replay alone as well, and would have done what they did.
func TestVariantsReplay(t *testing.T) {
	seen := map[string]string{}
	for _, x := range [][]string{
		{"llm-d", "preset=precise-prefix"},
		{"llm-d", "preset=payload-agnostic"},
		{"llm-d", "queue_weight=0.5", "no_hit_lru_weight=2.125", "token_load_weight=1", "affinity_filter=true"},
		{"lmetric", "hotspot_detector=true", "hotspot_window_turns=8"},
		{"lmetric", "include_queue=false", "bs_plus_one=false", "batch=sample"},
		{"dynamo", "temperature=0.5"},
		{"dynamo", "kv_events=false", "ttl_s=2"},
		{"smetric", "gate=overload", "spill=lmetric"},
		{"smetric", "gate=budget", "spill=lmetric_attention", "gamma=0.1"},
		{"smetric", "gate=budget_attention", "spill=dynamo", "gamma=0.1", "decode_mask=true"},
		{"smg-cache-aware", "index=events"},
		{"smg-cache-aware", "balance_abs_threshold=1", "max_tree_tokens=3000"},
		{"chwbl", "key=thread", "load_factor=1"},
		{"chwbl", "key=session"},
	} {
		name, router := strings.Join(x, " "), x[0]
		c := world(t, "session", router, 1)
		settings := []string{"policy.router.name=" + router}
		for _, s := range x[1:] {
			k, text, _ := strings.Cut(s, "=")
			n, _ := strconv.ParseFloat(text, 64)
			c.RouterParams[k] = policies.Value{Number: n, Bool: text == "true", Text: text}
			settings = append(settings, "policy.router."+s)
		}
		log, turns := record(t, c)
		out, err := decisionlog.Replay(lines(log))
		if err != nil || out.Steps < 100 || out.Commands < 100 {
			t.Errorf("%s: %d steps, %d commands, %v", name, out.Steps, out.Commands, err)
		}
		w, err := decisionlog.WhatIf(lines(log), settings)
		check(t, err)
		if !reflect.DeepEqual(w.Logged, w.Would) || w.Moved != 0 || w.Guessed+w.Unanswered != 0 {
			t.Errorf("%s would differ from itself:\nlog   %+v\nother %+v", name, w.Logged, w.Would)
		}
		where := router
		for i := range turns {
			where += fmt.Sprint(" ", turns[i].Replica)
		}
		if other, ok := seen[where]; ok {
			t.Errorf("%s goes where %s goes: the knobs change nothing here", name, other)
		}
		seen[where] = name
	}
}

func count(turns []results.Turn, is func(*results.Turn) bool) int {
	n := 0
	for i := range turns {
		if is(&turns[i]) {
			n++
		}
	}
	return n
}

// A policy that draws depends on the seed of the header; one that does not draw does not.
func TestSeed(t *testing.T) {
	for router, draws := range map[string]bool{"bailian": true, "lmetric": false} {
		log, _ := record(t, world(t, "none", router, 1))
		other := bytes.Replace(log, []byte(`"seed":1,`), []byte(`"seed":2,`), 1)
		_, err := decisionlog.Replay(lines(other))
		var d *decisionlog.Difference
		if errors.As(err, &d) != draws || (err == nil) == draws {
			t.Errorf("%s with another seed: %v", router, err)
		}
		if d != nil && (!strings.Contains(d.Expected, `"dispatch"`) && !strings.Contains(d.Expected, `"admit"`) || d.Got == d.Expected || d.Line < 3) {
			t.Errorf("the difference is not told: %v", d)
		}
	}
}

// What the knobs of the header say is what is built.
func TestKnobs(t *testing.T) {
	log, _ := record(t, world(t, "session", "least-requests", 1))
	other := bytes.Replace(log, []byte(`"high_watermark":0.85`), []byte(`"high_watermark":0.01`), 1)
	var d *decisionlog.Difference
	if _, err := decisionlog.Replay(lines(other)); bytes.Equal(log, other) || !errors.As(err, &d) {
		t.Errorf("another watermark: %v", err)
	}
	for _, x := range []struct{ from, to, want string }{
		{`"high_watermark":0.85`, `"high_watermark":11`, "line 1: session: high_watermark is 11, must be from 0 to 10 fraction"},
		{`"high_watermark":0.85`, `"high_watermark":"0.85"`, "line 1: session: knob high_watermark is missing or of another type; the log was written by another version"},
		{`"high_watermark"`, `"high_watermrk"`, "line 1: session: knob high_watermark is missing or of another type; the log was written by another version"},
		{`"name":"least-requests"`, `"name":"least-request"`, `line 1: no router "least-request"; did you mean "least-requests"?`},
	} {
		_, err := decisionlog.Replay(lines(bytes.Replace(log, []byte(x.from), []byte(x.to), 1)))
		if err == nil || err.Error() != x.want {
			t.Errorf("%s: got %v\nwant %s", x.to, err, x.want)
		}
	}
}

// Several router instances with faults around them are one log, which replays.
func TestInstancesReplay(t *testing.T) {
	for _, router := range []string{"lmetric", "bailian", "oracle"} {
		c := world(t, "session", router, 1)
		c.Routers = 3
		c.Faults = []sim.Fault{{Kind: sim.ReplicaRestart, Replica: 1, AtPS: 3e12, DetectPS: 1e11}, {Kind: sim.ReplicaDown, Replica: 0, AtPS: 6e12, ForPS: 2e12}}
		log, _ := record(t, c)
		if out, err := decisionlog.Replay(lines(log)); err != nil || out.Commands < 100 || !bytes.Contains(log, []byte(`"fact":"replica_restarted"`)) {
			t.Errorf("%s: %d commands, %v", router, out.Commands, err)
		}
		var d *decisionlog.Difference
		one := bytes.Replace(log, []byte(`"instances":3`), []byte(`"instances":2`), 1)
		if _, err := decisionlog.Replay(lines(one)); router != "oracle" && !errors.As(err, &d) {
			t.Errorf("%s: other instances give the same: %v", router, err)
		}
		if router == "oracle" {
			continue
		}
		w, err := decisionlog.WhatIf(lines(log), []string{"router=" + router})
		check(t, err)
		if !reflect.DeepEqual(w.Logged, w.Would) || w.Moved != 0 || w.Guessed+w.Unanswered != 0 {
			t.Errorf("%s would differ from itself:\nlog   %+v\nother %+v", router, w.Logged, w.Would)
		}
	}
}

// What retention pins and lets go is in the log, and comes out again.
func TestRetentionReplays(t *testing.T) {
	for _, d := range catalog.Retentions() {
		c := world(t, "session", "lmetric", 1)
		retain(t, c, d.Name)
		log, _ := record(t, c)
		if out, err := decisionlog.Replay(lines(log)); err != nil || out.Commands < 100 {
			t.Errorf("%s: %d commands, %v", d.Name, out.Commands, err)
		}
		if pins := bytes.Contains(log, []byte(`"command":"pin"`)); pins != (d.Name != "none") {
			t.Errorf("%s: pins is %v", d.Name, pins)
		}
	}
}
