package decisionlog_test

import (
	"bytes"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
)

// smallHeader is a header by hand.
func smallHeader() decisionlog.Header {
	one := policies.Capability{KVTokens: 6400, BlockTokens: 16, PrefillTokensPerSec: 1234.5, MaxBatchedTokens: 8192}
	return decisionlog.Header{
		Sluice: "v1", Instances: 1, Seed: math.MaxUint64, Signals: policies.NeedsSamples | policies.NeedsProbes, Capability: one, Capabilities: []policies.Capability{one, {}},
		Gate: decisionlog.Policy{Name: "session", Knobs: []decisionlog.Setting{
			{Name: "preset", Kind: policies.EnumKnob, Value: policies.Value{Text: "documented"}},
			{Name: "enabled", Kind: policies.BoolKnob, Value: policies.Value{Bool: true}},
			{Name: "tiny", Kind: policies.FloatKnob, Value: policies.Value{Number: 1e-7}},
		}},
		Router: decisionlog.Policy{Name: "lmetric"}, Retention: decisionlog.Policy{Name: "none"},
		Scores: decisionlog.ScoreForm{Scored: true, Lowest: true, Terms: []string{"hit_tokens", "requests"}},
	}
}

const smallLog = `{"decision_log":1,"sluice":"v1","seed":18446744073709551615,` +
	`"gate":{"name":"session","knobs":{"preset":"documented","enabled":true,"tiny":1e-07}},"router":{"name":"lmetric","knobs":{}},"retention":{"name":"none","knobs":{}},` +
	`"scores":{"best":"lowest","terms":["hit_tokens","requests"]},"signals":["samples","probes"],"instances":1,` +
	`"capability":{"kv_tokens":6400,"block_tokens":16,"prefill_tokens_per_s":1234.5,"attention_doubling_tokens":0,"max_batched_tokens":8192},` +
	`"replicas":[{"kv_tokens":6400,"block_tokens":16,"prefill_tokens_per_s":1234.5,"attention_doubling_tokens":0,"max_batched_tokens":8192},` +
	`{"kv_tokens":0,"block_tokens":0,"prefill_tokens_per_s":0,"attention_doubling_tokens":0,"max_batched_tokens":0}]}
{"first_stream":0,"streams":[[-1,0],[0,32]]}
{"step":1,"now_ns":5,"facts":[{"fact":"replica_up","replica":1},` +
	`{"fact":"turn_arrived","attempt":7,"session":0,"thread":2,"turn":1,"retry":0,"stream":1,"prompt_tokens":100,"max_tokens":0,"class":0,"group":-1},` +
	`{"fact":"metrics_sampled","replica":1,"at_ns":4,"waiting":3,"usage":0.5},{"fact":"usage_probed","attempt":7,"replica":1,"outcome":"value","usage":null}],` +
	`"commands":[{"command":"admit","attempt":7,"replica":1,"reason":"open"},` +
	`{"command":"dispatch","attempt":7,"replica":1,"reason":"best_score","scores":[{"replica":1,"score":100,"hit_tokens":0,"requests":null}]},` +
	`{"command":"reject","attempt":8,"retry_after_ns":9},{"command":"probe_usage","attempt":9,"replica":0}]}
{"first_stream":2,"streams":[[1,40]]}
{"step":2,"now_ns":5,"facts":[{"fact":"woke"}],"oracle":[[7,1,99]],"commands":[]}
`

// oneReplica scores replica 1 for any turn.
type oneReplica struct{}

func (oneReplica) Observe(policies.Time, *policies.View, *policies.Fact) {}
func (oneReplica) Route(policies.Time, *policies.View, *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return 1, policies.BestScore
}
func (oneReplica) Peek(policies.Time, *policies.View, *policies.Turn) policies.ReplicaID { return 1 }
func (oneReplica) ScoreTerms() ([]string, bool)                                          { return []string{"hit_tokens", "requests"}, true }
func (oneReplica) Scores(_ policies.Time, _ *policies.View, _ *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	s := policies.ReplicaScore{Replica: 1, Score: 100}
	s.Terms[1] = math.NaN()
	return append(dst, s)
}

type ninetyNine struct{}

func (ninetyNine) Completion(policies.Time, policies.ReplicaID, *policies.Turn) policies.Time {
	return 99
}

// The recorder writes, by hand and byte by byte, what the format says; the decoder reads the same back.
func TestFormat(t *testing.T) {
	var out bytes.Buffer
	h := smallHeader()
	h.Scores = decisionlog.ScoreForm{} // the router's own
	r := decisionlog.NewRecorder(&out, h)
	router := r.Router(policies.Declaration{NewRouter: func(policies.Env, policies.Params) policies.Router { return oneReplica{} }}).NewRouter(policies.Env{}, nil)
	known := r.Watch(ninetyNine{})
	tree := &prefix.Tree{}
	tree.Fork(prefix.Prefix{Stream: tree.Root(), Tokens: 32})
	turn := policies.Turn{Attempt: 7, Thread: 2, Number: 1, Prompt: prefix.Prefix{Stream: 1, Tokens: 100}, Group: -1}
	router.Route(5, nil, &turn)
	check(t, r.Step(tree, 5, []policies.Fact{
		{Kind: policies.ReplicaUp, Replica: 1, Usage: 3}, {Kind: policies.TurnArrived, Turn: turn},
		{Kind: policies.MetricsSampled, Replica: 1, Sample: policies.Sample{At: 4, Has: policies.HasWaiting | policies.HasUsage, Running: 8, Waiting: 3, Usage: .5}},
		{Kind: policies.UsageProbed, Attempt: 7, Replica: 1, Usage: math.NaN()},
	}, []policies.Command{
		{Kind: policies.Admit, Attempt: 7, Replica: 1, Reason: policies.Open}, {Kind: policies.Dispatch, Attempt: 7, Replica: 1, Reason: policies.BestScore},
		{Kind: policies.Reject, Attempt: 8, Replica: policies.NoReplica, RetryAfter: 9}, {Kind: policies.ProbeUsage, Attempt: 9},
	}))
	tree.Fork(prefix.Prefix{Stream: 1, Tokens: 40})
	known.Completion(5, 1, &turn)
	check(t, r.Step(tree, 5, []policies.Fact{{Kind: policies.Woke}}, nil))
	if got := out.String(); got != smallLog {
		t.Errorf("got\n%s\nwant\n%s", got, smallLog)
	}

	d := decisionlog.NewDecoder()
	var steps []decisionlog.Step
	for line := range lines([]byte(smallLog)) {
		s, err := d.Take(line)
		check(t, err)
		if s != nil {
			steps = append(steps, copyOf(s))
		}
	}
	check(t, d.End())
	if diff := cmp.Diff(smallHeader(), d.Header); diff != "" {
		t.Errorf("header: %s", diff)
	}
	if d.Tree.Len() != 3 || d.Tree.Stream(2) != tree.Stream(2) || d.Steps() != 2 || d.Line() != 5 {
		t.Errorf("tree of %d, %d steps, %d lines", d.Tree.Len(), d.Steps(), d.Line())
	}
	if f := steps[0].Facts[1]; f.Turn != turn || f.Replica != policies.NoReplica {
		t.Errorf("turn: %+v", f)
	}
	if s := steps[0].Facts[2].Sample; s != (policies.Sample{At: 4, Has: policies.HasWaiting | policies.HasUsage, Waiting: 3, Usage: .5}) {
		t.Errorf("sample: %+v", s)
	}
	if s := steps[0].Scores; len(s) != 1 || s[0].Attempt != 7 || len(s[0].Of) != 1 || s[0].Of[0].Score != 100 || !math.IsNaN(s[0].Of[0].Terms[1]) {
		t.Errorf("scores: %+v", s)
	}
	if a := steps[1].Answers; len(a) != 1 || a[0] != (decisionlog.Answer{Attempt: 7, Replica: 1, Completion: 99}) {
		t.Errorf("answers: %+v", a)
	}
}

// copyOf is a step that stays valid.
func copyOf(s *decisionlog.Step) decisionlog.Step {
	c := *s
	c.Facts = append([]policies.Fact{}, s.Facts...)
	c.Commands = append([]policies.Command{}, s.Commands...)
	c.Answers = append([]decisionlog.Answer{}, s.Answers...)
	c.Scores = append([]decisionlog.Scores{}, s.Scores...)
	return c
}

// Every kind of fact, command, reason and outcome has a name of its own that reads back.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for k := policies.FactKind(1); k.String() != "invalid"; k++ {
		if p, ok := policies.ParseFactKind(k.String()); p != k || !ok || seen[k.String()] {
			t.Errorf("fact %d is %q, which reads as %d", k, k, p)
		}
		seen[k.String()] = true
	}
	if len(seen) < int(policies.Woke) {
		t.Errorf("%d facts have a name", len(seen))
	}
	for k := policies.CommandKind(1); k <= policies.Unpin; k++ {
		if p, ok := policies.ParseCommandKind(k.String()); p != k || !ok {
			t.Errorf("command %d is %q, which reads as %d", k, k, p)
		}
	}
	for r := policies.Reason(0); r.String() != "invalid"; r++ {
		if p, ok := policies.ParseReason(r.String()); p != r || !ok {
			t.Errorf("reason %d is %q, which reads as %d", r, r, p)
		}
	}
	if _, ok := policies.ParseFactKind("invalid"); ok {
		t.Error("there is a fact called invalid")
	}
}

// docs/decisions.md names every fact with every field that is written of it, and every command.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/decisions.md")
	check(t, err)
	rows := map[string]string{}
	for _, line := range strings.Split(string(page), "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			for _, name := range strings.Split(cells[1], ",") {
				rows[strings.Trim(name, " `")] = cells[2]
			}
		}
	}
	for k := policies.FactKind(1); k.String() != "invalid"; k++ {
		row, ok := rows[k.String()]
		if !ok {
			t.Errorf("fact %s is not documented", k)
		}
		s := decisionlog.Step{Entry: policies.Entry{Facts: []policies.Fact{{Kind: k, Stream: prefix.None, Turn: policies.Turn{Prompt: prefix.Prefix{Stream: prefix.None}}, Sample: policies.Sample{Has: 15}}}}}
		for _, m := range regexp.MustCompile(`"([a-z_]+)":`).FindAllStringSubmatch(string(s.Append(nil, &decisionlog.ScoreForm{})), -1) {
			switch m[1] {
			case "step", "now_ns", "facts", "fact", "commands":
			default:
				if !strings.Contains(row, "`"+m[1]+"`") {
					t.Errorf("field %s of fact %s is not documented", m[1], k)
				}
			}
		}
	}
	for k := policies.CommandKind(1); k <= policies.Unpin; k++ {
		if !strings.Contains(string(page), "`"+k.String()+"`") {
			t.Errorf("command %s is not documented", k)
		}
	}
}

// Whatever the fields that count hold, and whatever the others do, a fact comes back as it was.
func TestFactsComeBack(t *testing.T) {
	kinds := policies.FactKind(1)
	for kinds.String() != "invalid" {
		kinds++
	}
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int32 { return rapid.Int32().Draw(t, name) }
		usage := rapid.SampledFrom([]float64{0, .5, 1.0 / 3, 1, -3, 1e-300, 1e300, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1)})
		f := policies.Fact{
			Kind: policies.FactKind(rapid.IntRange(1, int(kinds)-1).Draw(t, "kind")), Outcome: policies.ProbeOutcome(rapid.IntRange(0, 2).Draw(t, "outcome")),
			Replica: policies.ReplicaID(n("replica")), Session: policies.SessionID(n("session") >> 6), Thread: policies.ThreadID(n("thread") >> 6),
			Attempt: policies.AttemptID(rapid.Int64().Draw(t, "attempt")), PromptTokens: n("prompt"), OutputTokens: n("output"), HitTokens: n("hit"),
			Preemptions: n("preemptions"), Usage: usage.Draw(t, "usage"), Stream: prefix.StreamID(rapid.IntRange(-1, 1).Draw(t, "stream")), Lo: n("lo"), Hi: n("hi"), BlockTokens: n("block"),
			Sample: policies.Sample{At: policies.Time(n("at")), Has: policies.SampleField(rapid.IntRange(0, 15).Draw(t, "has")), Running: n("running"), Waiting: n("waiting"), Usage: usage.Draw(t, "sampled"), QueryTokens: int64(n("query")), HitTokens: int64(n("found"))},
			Turn:   policies.Turn{Attempt: policies.AttemptID(n("turn")), Session: 3, Thread: 4, Number: n("number"), Retry: n("retry"), Prompt: prefix.Prefix{Stream: 1, Tokens: n("tokens")}, MaxTokens: n("max"), Class: n("class"), Group: n("group")},
		}
		tree := &prefix.Tree{}
		tree.Root()
		tree.Root()
		var log bytes.Buffer
		r := decisionlog.NewRecorder(&log, smallHeader())
		check2(t, r.Step(tree, 1, []policies.Fact{f}, nil))
		first := log.String()
		d := decisionlog.NewDecoder()
		for line := range lines(log.Bytes()) {
			s, err := d.Take(line)
			check2(t, err)
			if s == nil {
				continue
			}
			got := s.Facts[0]
			log.Reset()
			check2(t, decisionlog.NewRecorder(&log, smallHeader()).Step(tree, 1, []policies.Fact{got}, nil))
			if log.String() != first {
				t.Fatalf("wrote\n%s\nthen\n%s", first, log.String())
			}
			if got.Kind != f.Kind {
				t.Fatalf("%v became %v", f.Kind, got.Kind)
			}
			if f.Kind == policies.Finished {
				f.Usage, f.Stream, f.Lo, f.Hi, f.BlockTokens, f.Sample, f.Turn, f.Outcome, f.Session, f.Thread = 0, 0, 0, 0, 0, policies.Sample{}, policies.Turn{}, 0, 0, 0
				if diff := cmp.Diff(f, got, cmpopts.EquateNaNs()); diff != "" {
					t.Fatal(diff)
				}
			}
			if f.Kind == policies.TurnArrived && got.Turn != f.Turn {
				t.Fatalf("%+v became %+v", f.Turn, got.Turn)
			}
		}
	})
}

func check2(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// A damaged log is one error of one line that says where.
func TestDamage(t *testing.T) {
	for _, x := range []struct{ from, to, want string }{
		{smallLog, "", "line 1: the file is empty"},
		{`{"decision_log":1`, `{"decision_log":2`, "line 1: a decision log of version 2, expected 1"},
		{`{"decision_log":1`, `{"hello":1`, `line 1: byte 1: found "{\"hello\":1`},
		{"\"commands\":[]}\n", `"commands":[]}`, "line 5: the line is cut off after 81 bytes"},
		{"\"commands\":[]}\n", "\"comm", "line 5: the line is cut off"},
		{`"step":2`, `"step":3`, "line 5: byte 9: found \"3,"},
		{`"step":2,"now_ns":5`, `"step":2,"now_ns":4`, "line 5: byte 20: found \"4,\\\"facts"},
		{`"first_stream":2`, `"first_stream":1`, "line 4: byte 17: "},
		{`[[1,40]]`, `[[1,32]]`, "line 4: byte 33: found \"32]]}\\n\", expected a whole number from 33 to 2147483647"},
		{`[[1,40]]`, `[[3,40]]`, "line 4: byte 31: "},
		{`[[1,40]]`, `[]`, "line 4: byte 31: "},
		{`"stream":1`, `"stream":2`, "line 3: "},
		{`"thread":2`, `"thread":67108865`, "line 3: "},
		{`"replica":1,"at_ns"`, `"at_ns"`, `line 3: `},
		{`"woke"`, `"wake"`, `line 5: byte 39: found "\"wake\"}],\"oracle\":[[7,1,", expected the name of a fact`},
		{`"usage":0.5`, `"usage":0.50`, "line 3: "},
		{`"usage":0.5`, `"usage":5e-1`, "line 3: "},
		{`"now_ns":5`, `"now_ns":05`, "line 3: byte 20: "},
		{`"now_ns":5`, `"now_ns":9223372036854775808`, "line 3: byte 20: "},
		{`"reason":"open"`, `"reason":""`, "line 3: "},
		{`"retry_after_ns":9`, `"retry_after_ns":0`, "line 3: "},
		{`"scores":[{"replica":1`, `"scores":[{"replica":2`, "line 3: "},
		{`"signals":["samples","probes"]`, `"signals":["probes","samples"]`, "line 1: "},
		{`"best":"lowest"`, `"best":"first"`, "line 1: "},
		{`"commands":[]}`, `"commands":[]} `, "line 5: "},
		{"{\"step\":2", "\n{\"step\":2", "line 5: byte 1: found the end of the line"},
	} {
		log := strings.Replace(smallLog, x.from, x.to, 1)
		if log == smallLog {
			t.Fatalf("%s is not in the log", x.from)
		}
		err := takeAll([]byte(log))
		if err == nil || !strings.HasPrefix(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\n got %v\nwant %s", x.to, err, x.want)
		}
	}
}

func takeAll(log []byte) error {
	d := decisionlog.NewDecoder()
	for line := range lines(log) {
		if _, err := d.Take(line); err != nil {
			return err
		}
	}
	return d.End()
}

// The bytes depend on neither the number of processors nor the run.
func TestSameBytes(t *testing.T) {
	var first []byte
	for _, n := range []int{1, 2} {
		old := runtime.GOMAXPROCS(n)
		log, _ := record(t, world(t, "session", "smetric", 1))
		runtime.GOMAXPROCS(old)
		if first != nil && !bytes.Equal(first, log) {
			t.Errorf("GOMAXPROCS %d: other bytes", n)
		}
		first = log
	}
}

// FuzzDecisionLog: whatever is given, the decoder says what is wrong or would write the same bytes.
func FuzzDecisionLog(f *testing.F) {
	f.Add([]byte(smallLog))
	first := smallLog[:strings.IndexByte(smallLog, '\n')+1]
	f.Add([]byte(first + `{"first_stream":0,"streams":[[-1,0],[0,16]]}` + "\n" + `{"streams_again":[[1,-1,0]]}` + "\n"))
	f.Add([]byte(first + `{"step":1,"now_ns":0,"facts":[{"fact":"turn_arrived","attempt":1,"session":0,"thread":0,"turn":1,"retry":0,"stream":-1,"prompt_tokens":1,"max_tokens":0,"class":0,"group":-1,"key":-7}],"commands":[]}` + "\n" + strings.Replace(first, "1e-07", "1e-08", 1)))
	for _, r := range catalog.Routers()[:2] {
		log, _ := record(f, world(f, "session", r.Name, 1))
		f.Add(log[:min(len(log), 6000)])
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		d := decisionlog.NewDecoder()
		for line := range lines(log) {
			before := d.Tree.Len()
			s, err := d.Take(line)
			if err != nil {
				return
			}
			var again []byte
			switch {
			case s != nil:
				again = s.Append(nil, &d.Header.Scores)
			case d.Line() == 1 || d.Changed():
				again = d.Header.Append(nil)
			case bytes.HasPrefix(line, []byte(`{"streams_again":`)):
				continue // how slots are listed depends on what the writer had told before
			default:
				again = decisionlog.AppendStreams(nil, d.Tree, before)
			}
			if !bytes.Equal(line, again) {
				t.Fatalf("read   %swrites %s", line, again)
			}
		}
	})
}
