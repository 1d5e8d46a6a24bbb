package traces

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
)

func mustGenerate(t testing.TB, preset string, seed uint64, params Params) *Trace {
	t.Helper()
	tr, err := Generate(preset, seed, params)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// small holds the knobs that make every preset quick to generate.
var small = map[string]Params{
	"bailian-agentic": {"sessions": Num(60), "single_turn_share": Num(.3), "turn_cap": Num(60)},
	"claude-code":     {"sessions": Num(12), "subagents": Num(1.5), "turn_cap": Num(120)},
	"swe-rollout":     {"prompts": Num(3), "samples": Num(4)},
	"bench":           {"sessions": Num(40), "turns": Num(3), "range_ratio": Num(.5), "prefix_tokens": Num(100), "prefixes": Num(3)},
	"steady":          {},
}

func streams(tr *Trace) []prefix.Stream {
	out := make([]prefix.Stream, tr.Tree.Len())
	for i := range out {
		out[i] = tr.Tree.Stream(prefix.StreamID(i))
	}
	return out
}

func TestGenerateIsDeterministic(t *testing.T) {
	for _, p := range Presets() {
		a, b := mustGenerate(t, p.Name, 7, small[p.Name]), mustGenerate(t, p.Name, 7, small[p.Name])
		if !sameTrace(a, b) {
			t.Errorf("%s: same seed, other trace", p.Name)
		}
		if !cmp.Equal(a.Report, b.Report) {
			t.Errorf("%s: same seed, other report", p.Name)
		}
		c := mustGenerate(t, p.Name, 8, small[p.Name])
		if p.Name != "steady" && sameTrace(a, c) {
			t.Errorf("%s: another seed gives the same sessions", p.Name)
		}
	}
}

// The same trace on every machine and in every version: digests of content, lengths, times and dependencies. A change
// here changes every result that was made from the preset and belongs into the notes of a release.
func TestGenerateGolden(t *testing.T) {
	golden := map[string]string{
		"bailian-agentic": "e6ba228cd9991418",
		"claude-code":     "aeaadaf0e857335e",
		"swe-rollout":     "d4d545d38be0cf80",
		"bench":           "ffbabb1dcc56e509",
		"steady":          "af3a2e4818800816",
	}
	for _, p := range Presets() {
		tr := mustGenerate(t, p.Name, 42, small[p.Name])
		h := fnv.New64a()
		fmt.Fprintln(h, streams(tr))
		for _, s := range tr.Sessions {
			fmt.Fprintln(h, s)
		}
		if got := fmt.Sprintf("%016x", h.Sum64()); got != golden[p.Name] {
			t.Errorf("%s: digest %s, want %s", p.Name, got, golden[p.Name])
		}
	}
}

// A trace with fewer sessions is the beginning of one with more.
func TestGenerateCanBeSubsampled(t *testing.T) {
	for _, p := range Presets() {
		knob := "sessions"
		if p.Name == "swe-rollout" {
			knob = "prompts"
		}
		big := mustGenerate(t, p.Name, 3, small[p.Name])
		params := maps.Clone(small[p.Name])
		params[knob] = Num(2)
		less := mustGenerate(t, p.Name, 3, params)
		if len(less.Sessions) == 0 || len(less.Sessions) >= len(big.Sessions) {
			t.Fatalf("%s: %d sessions of %d", p.Name, len(less.Sessions), len(big.Sessions))
		}
		if diff := cmp.Diff(big.Sessions[:len(less.Sessions)], less.Sessions); diff != "" {
			t.Errorf("%s: %s", p.Name, diff)
		}
		if diff := cmp.Diff(streams(big)[:less.Tree.Len()], streams(less)); diff != "" {
			t.Errorf("%s: %s", p.Name, diff)
		}
	}
}

// With more samples of a prompt the old samples say the same, though their streams have other identifiers.
func TestRolloutSamplesKeepTheirDraws(t *testing.T) {
	lengths := func(samples float64) map[string][]int32 {
		m := map[string][]int32{}
		for _, s := range mustGenerate(t, "swe-rollout", 5, Params{"prompts": Num(2), "samples": Num(samples)}).Sessions {
			for _, u := range s.Turns {
				m[s.Name] = append(m[s.Name], u.Prompt.Tokens, u.OutputTokens)
			}
		}
		return m
	}
	few, many := lengths(2), lengths(5)
	for name, want := range few {
		if !slices.Equal(many[name], want) {
			t.Errorf("session %s changed with the number of samples", name)
		}
	}
}

// checkTrace returns what is wrong with a generated trace.
func checkTrace(tr *Trace, limit int32) []string {
	var faults []string
	fault := func(ok bool, what string) {
		if !ok {
			faults = append(faults, what)
		}
	}
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		fault(s.StartNS == Unknown, "a session has a start")
		fault(len(s.Turns) > 0 && s.Turns[0].Thread == 0 && s.Turns[0].DepLo == s.Turns[0].DepHi, "no first turn without dependencies")
		fault(s.Group >= -1 && int(s.Group) < len(tr.Groups), "group out of range")
		number := map[int32]int32{}
		last := map[int32]int{}
		dep := int32(0)
		for k := range s.Turns {
			u := &s.Turns[k]
			number[u.Thread]++
			fault(u.Number == number[u.Thread], "numbers of a thread do not count up")
			fault(u.Thread >= 0 && u.Thread < s.Threads, "thread out of range")
			fault(int(u.Model) < len(tr.Models), "model out of range")
			fault(u.OutputTokens >= 1 && u.Prompt.Tokens >= 1, "empty turn")
			fault(u.Prompt.Tokens+u.OutputTokens <= limit, "turn above the context limit")
			fault(u.DurationNS == service(u.OutputTokens), "duration is not the estimate")
			fault(k == 0 || u.StartNS >= s.Turns[k-1].StartNS, "turns are not in order of start")
			fault(u.DepLo == dep && u.DepHi >= u.DepLo, "dependencies are not contiguous")
			fault(k == 0 || u.DepHi > u.DepLo, "a later turn waits for nothing")
			dep = u.DepHi
			start, waitsForPrevious := int64(0), false
			for _, d := range s.Deps[u.DepLo:u.DepHi] {
				fault(d.Turn >= 0 && int(d.Turn) < k, "dependency on a later turn")
				fault(d.DelayNS >= 0 && d.On == OnCompletion, "delay or trigger")
				start = max(start, s.Turns[d.Turn].StartNS+s.Turns[d.Turn].DurationNS+d.DelayNS)
				waitsForPrevious = waitsForPrevious || (u.Number > 1 && int(d.Turn) == last[u.Thread])
			}
			fault(k == 0 || start == u.StartNS, "start does not follow from the dependencies")
			fault(u.Number == 1 || waitsForPrevious, "turn does not wait for its thread's previous one")
			last[u.Thread] = k
		}
		fault(int(dep) == len(s.Deps), "dependencies of no turn")
		fault(int(s.Threads) == len(number), "thread without turns")
	}
	return append(faults, checkContent(tr)...)
}

// checkContent looks at who writes where. A stream belongs to one thread; on it prompts never reach below what was
// written by an earlier output, and forks exist only where content does.
func checkContent(tr *Trace) []string {
	type writer struct {
		session int
		thread  int32
	}
	var faults []string
	owner := map[prefix.StreamID]writer{}
	written := map[prefix.StreamID]int32{}
	for i := range tr.Sessions {
		for _, u := range tr.Sessions[i].Turns {
			w, used := owner[u.Prompt.Stream]
			if used && w != (writer{i, u.Thread}) {
				faults = append(faults, "two threads write to one stream")
			}
			owner[u.Prompt.Stream] = writer{i, u.Thread}
			if u.Prompt.Tokens < written[u.Prompt.Stream] {
				faults = append(faults, "a prompt ends inside an earlier output of its stream")
			}
			if u.Prompt.Tokens < tr.Tree.Stream(u.Prompt.Stream).ForkAt {
				faults = append(faults, "a prompt ends before its stream's fork")
			}
			written[u.Prompt.Stream] = u.Prompt.Tokens + u.OutputTokens
		}
	}
	for i, s := range streams(tr) {
		if end, ok := written[s.Parent]; ok && s.ForkAt > end {
			faults = append(faults, "a stream forks where its parent has nothing")
		}
		if s.Parent >= prefix.StreamID(i) {
			faults = append(faults, "a stream precedes its parent")
		}
	}
	return faults
}

// contextLimit names the knob that bounds a preset's contexts; bench has none.
var contextLimit = map[string]string{
	"bailian-agentic": "context_limit", "claude-code": "context_limit", "swe-rollout": "context_limit", "steady": "max_context",
}

func drawParams(t *rapid.T, p Preset) Params {
	params := Params{}
	for _, k := range p.Knobs {
		if rapid.IntRange(0, 2).Draw(t, "default of "+k.Name) > 0 {
			continue
		}
		most := k.Max
		switch k.Name {
		case "sessions", "prompts", "samples":
			most = 8
		case "turns", "turn_cap", "turns_median", "groups", "prefixes", "subagent_requests":
			most = 40
		case "subagents":
			most = 5
		case "large_window_share":
			most = 0 // keeps the context limit known
		}
		switch k.Kind {
		case IntKnob:
			params[k.Name] = Num(float64(rapid.Int64Range(int64(k.Min), int64(most)).Draw(t, k.Name)))
		case FloatKnob:
			params[k.Name] = Num(rapid.Float64Range(k.Min, most).Draw(t, k.Name))
		case EnumKnob:
			params[k.Name] = Value{Text: rapid.SampledFrom(k.Enum).Draw(t, k.Name)}
		}
	}
	for _, name := range []string{"sessions", "prompts", "samples", "turns", "turn_cap"} {
		if _, drawn := params[name]; !drawn && slices.ContainsFunc(p.Knobs, func(k Knob) bool { return k.Name == name }) {
			params[name] = Num(10)
		}
	}
	return params
}

func TestGeneratedTracesAreValid(t *testing.T) {
	for _, p := range Presets() {
		t.Run(p.Name, func(t *testing.T) {
			accepted := 0
			rapid.Check(t, func(t *rapid.T) {
				params := drawParams(t, p)
				tr, err := Generate(p.Name, rapid.Uint64().Draw(t, "seed"), params)
				if err != nil {
					return // knobs that contradict each other
				}
				accepted++
				limit := int32(2*maxPrompt - 1)
				if name := contextLimit[p.Name]; name != "" {
					all, _ := resolve(p, params)
					limit = int32(all[name].Number)
				}
				if faults := checkTrace(tr, limit); len(faults) > 0 {
					t.Fatalf("%d faults, the first: %s", len(faults), faults[0])
				}
			})
			if accepted < 10 {
				t.Errorf("only %d sets of knobs were accepted: the test checks nothing", accepted)
			}
		})
	}
}

// Every knob changes the trace. A knob that works only with others is tried together with them.
func TestEveryKnobMatters(t *testing.T) {
	with := map[string]Params{
		"groups":            {"group_tokens": Num(10_000)},
		"group_zipf":        {"group_tokens": Num(10_000)},
		"slow_tool_s":       {"slow_tool_share": Num(.5)},
		"slow_tool_sigma":   {"slow_tool_share": Num(.5)},
		"output_cap":        {"output_sigma": Num(3)},
		"context_limit":     {"system_tokens": Num(4000)},
		"large_first_sigma": {"large_first_share": Num(1)},
	}
	for _, p := range Presets() {
		for _, k := range p.Knobs {
			base := maps.Clone(small[p.Name])
			for name, v := range with[k.Name] {
				if slices.ContainsFunc(p.Knobs, func(k Knob) bool { return k.Name == name }) {
					base[name] = v
				}
			}
			if p.Name == "bailian-agentic" || p.Name == "claude-code" {
				base["context_limit"] = Num(65_536) // compactions happen
			}
			now := k.Default
			if v, ok := base[k.Name]; ok {
				now = v
			}
			changed := false
			before := mustGenerate(t, p.Name, 11, base)
			for _, v := range otherValues(k, now) {
				params := maps.Clone(base)
				params[k.Name] = v
				other, err := Generate(p.Name, 11, params)
				if err == nil && !sameTrace(before, other) {
					changed = true
					break
				}
			}
			if !changed {
				t.Errorf("%s: knob %s changes nothing", p.Name, k.Name)
			}
		}
	}
}

func sameTrace(a, b *Trace) bool {
	return slices.EqualFunc(a.Sessions, b.Sessions, func(x, y Session) bool {
		return x.Group == y.Group && slices.Equal(x.Turns, y.Turns) && slices.Equal(x.Deps, y.Deps)
	}) && slices.Equal(streams(a), streams(b))
}

func otherValues(k Knob, now Value) []Value {
	var out []Value
	if k.Kind == EnumKnob {
		for _, w := range k.Enum {
			if w != now.Text {
				out = append(out, Value{Text: w})
			}
		}
		return out
	}
	for _, x := range []float64{k.Min, now.Number / 2, now.Number * 2, min(k.Max, 40)} {
		if k.Kind == IntKnob {
			x = float64(int64(x))
		}
		if x >= k.Min && x <= k.Max && x != now.Number && !(x < 0.01 && strings.HasSuffix(k.Name, "_scale")) {
			out = append(out, Num(x))
		}
	}
	return out
}

func TestGenerateErrors(t *testing.T) {
	for _, c := range []struct {
		preset string
		params Params
		want   []string
	}{
		{"bailian", nil, []string{`"bailian"`, "did you mean bailian-agentic?", "swe-rollout"}},
		{"zzz", nil, []string{`"zzz"`, "expected one of bailian-agentic"}},
		{"bench", Params{"input_token": Num(5)}, []string{"preset bench", `"input_token"`, "did you mean input_tokens?"}},
		{"bench", Params{"sessions": Num(0)}, []string{"sessions = 0", "1 to 10000000"}},
		{"bench", Params{"sessions": Num(1.5)}, []string{"sessions = 1.5", "whole number"}},
		{"bench", Params{"sessions": {Text: "many"}}, []string{`sessions = "many"`, "expected a number"}},
		{"bench", Params{"range_ratio": Num(notANumber())}, []string{"range_ratio = NaN", "0 to 1"}},
		{"bench", Params{"turns": Num(10_000), "input_tokens": Num(2_000_000)}, []string{"lower turns, input_tokens"}},
		{"bench", Params{"turns": Num(10_000), "sessions": Num(1_000_000), "input_tokens": Num(1)}, []string{"limit of 20000000", "lower sessions or turns"}},
		{"steady", Params{"at_limit": {Text: "hodl"}}, []string{"at_limit", `"hodl"`, "did you mean hold?", "slide"}},
		{"steady", Params{"max_context": Num(500)}, []string{"10800 tokens", "max_context = 500"}},
		{"bailian-agentic", Params{"prefix_tokens": Num(60_000)}, []string{"prefix_tokens = 60000", "context_limit = 200000"}},
		{"swe-rollout", Params{"environment_min_s": Num(50)}, []string{"environment_min_s = 50", "environment_max_s = 35"}},
	} {
		_, err := Generate(c.preset, 1, c.params)
		if err == nil {
			t.Errorf("%s %v: no error, want %q", c.preset, c.params, c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s %v: error %q does not say %q", c.preset, c.params, err, w)
			}
		}
	}
}

func notANumber() float64 { zero := 0.0; return zero / zero }

func TestPresetDeclarations(t *testing.T) {
	for _, p := range Presets() {
		if p.Doc == "" || p.Source == "" {
			t.Errorf("preset %s has no documentation", p.Name)
		}
		seen := map[string]bool{}
		for _, k := range p.Knobs {
			if seen[k.Name] {
				t.Errorf("%s declares %s twice", p.Name, k.Name)
			}
			seen[k.Name] = true
			if err := k.Check(k.Default); err != nil {
				t.Errorf("%s: the default is refused: %v", p.Name, err)
			}
			if k.Doc == "" || strings.Contains(k.Doc, "\n") {
				t.Errorf("%s: knob %s has no line of documentation", p.Name, k.Name)
			}
		}
	}
}
