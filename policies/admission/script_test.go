package admission_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// probeTime is how long a probe takes in scripts.
const probeTime = policies.Time(time.Millisecond)

// script is a driver for text files. Commands:
//
//	new gate=NAME [knob=value ...]   a new Controller with 2 replicas, at 0 s
//	do                               one line for each act; the output is the commands, with their times in seconds
//
// Acts: arrive A thread=T [session=S], finish A, fail A, gone A, close T (the thread has finished), end S (the session
// has), usage R U|unknown, hit T RATIO|unknown, wait DURATION. Without session= the session is the thread. Acts on one
// line, parted by ";", happen at one moment.
type script struct {
	c       *policies.Controller
	now     policies.Time
	pending []answer
	usage   [2]string
	hit     map[policies.ThreadID]string
	threads map[policies.AttemptID]policies.ThreadID
	out     strings.Builder
}

type answer struct {
	at   policies.Time
	fact policies.Fact
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			switch d.Cmd {
			case "new":
				s.start(t, d)
			case "do":
				for line := range strings.Lines(d.Input) {
					s.do(t, strings.TrimSpace(line))
				}
			default:
				t.Fatalf("%s: no command %q", d.Pos, d.Cmd)
			}
			return s.out.String()
		})
	})
}

func (s *script) start(t *testing.T, d *datadriven.TestData) {
	name, params := "", policies.Params{}
	for _, a := range d.CmdArgs {
		if a.Key == "gate" {
			name = a.Vals[0]
			continue
		}
		v := policies.Value{Text: a.Vals[0], Bool: a.Vals[0] == "true"}
		v.Number, _ = strconv.ParseFloat(a.Vals[0], 64)
		params[a.Key] = v
	}
	g, err := catalog.BuildGate(name, policies.Env{}, params)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	r, err := catalog.BuildRouter("sticky", policies.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := &prefix.Tree{}
	tree.Root()
	*s = script{
		c:   policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: 2, Gate: g, Router: r}),
		hit: map[policies.ThreadID]string{}, threads: map[policies.AttemptID]policies.ThreadID{}, usage: [2]string{"0", "0"},
	}
	s.step(policies.Fact{Kind: policies.ReplicaUp, Replica: 0}, policies.Fact{Kind: policies.ReplicaUp, Replica: 1})
}

func (s *script) do(t *testing.T, line string) {
	var facts []policies.Fact
	for act := range strings.SplitSeq(line, ";") {
		words := strings.Fields(act)
		arg := func(i int) int64 {
			_, text, found := strings.Cut(words[i], "=")
			if !found {
				text = words[i]
			}
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				t.Fatalf("%q: %v", act, err)
			}
			return n
		}
		switch words[0] {
		case "usage":
			s.usage[arg(1)] = words[2]
		case "hit":
			s.hit[policies.ThreadID(arg(1))] = words[2]
		case "wait":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			s.advance(s.now + policies.Time(d))
		case "arrive":
			u := policies.Turn{Attempt: policies.AttemptID(arg(1)), Thread: policies.ThreadID(arg(2)), Session: policies.SessionID(arg(len(words) - 1)), Number: 1, Prompt: prefix.Prefix{Tokens: 1000}}
			s.threads[u.Attempt] = u.Thread
			facts = append(facts, policies.Fact{Kind: policies.TurnArrived, Turn: u})
		case "close":
			facts = append(facts, policies.Fact{Kind: policies.ThreadFinished, Thread: policies.ThreadID(arg(1)), Session: policies.SessionID(arg(1))})
		case "end":
			facts = append(facts, policies.Fact{Kind: policies.SessionFinished, Session: policies.SessionID(arg(1))})
		case "finish", "fail", "gone":
			kind := map[string]policies.FactKind{"finish": policies.Finished, "fail": policies.Failed, "gone": policies.ClientGone}[words[0]]
			facts = append(facts, policies.Fact{Kind: kind, Attempt: policies.AttemptID(arg(1)), OutputTokens: 10})
		default:
			t.Fatalf("no act %q", act)
		}
	}
	if len(facts) > 0 {
		s.step(facts...)
	}
}

// advance lets time pass up to end, with answers and wakes at their moments.
func (s *script) advance(end policies.Time) {
	for {
		next := s.c.NextWake()
		if len(s.pending) > 0 {
			next = min(next, s.pending[0].at)
		}
		if next > end {
			break
		}
		s.now = next
		var facts []policies.Fact
		for len(s.pending) > 0 && s.pending[0].at == next {
			facts = append(facts, s.pending[0].fact)
			s.pending = s.pending[1:]
		}
		s.step(facts...)
	}
	s.now = end
}

func (s *script) step(facts ...policies.Fact) {
	for _, c := range s.c.Step(s.now, facts, nil) {
		fmt.Fprintf(&s.out, "%.3f ", float64(s.now)/1e9)
		switch c.Kind {
		case policies.Admit:
			fmt.Fprintf(&s.out, "admit %d %s\n", c.Attempt, c.Reason)
		case policies.Dispatch:
			fmt.Fprintf(&s.out, "send %d to %d\n", c.Attempt, c.Replica)
		case policies.Hold:
			fmt.Fprintf(&s.out, "hold %d %s\n", c.Attempt, c.Reason)
		case policies.Abort:
			fmt.Fprintf(&s.out, "abort %d %s\n", c.Attempt, c.Reason)
		case policies.ProbeUsage:
			fmt.Fprintf(&s.out, "usage? %d of %d\n", c.Attempt, c.Replica)
			f := policies.Fact{Kind: policies.UsageProbed, Attempt: c.Attempt, Replica: c.Replica}
			f.Usage, f.Outcome = parseAnswer(s.usage[c.Replica])
			s.reply(f)
		case policies.ProbePrefix:
			fmt.Fprintf(&s.out, "prefix? %d of %d\n", c.Attempt, c.Replica)
			f := policies.Fact{Kind: policies.PrefixProbed, Attempt: c.Attempt, Replica: c.Replica, PromptTokens: 1000}
			var ratio float64
			ratio, f.Outcome = parseAnswer(cmp.Or(s.hit[s.threads[c.Attempt]], "0"))
			f.HitTokens = int32(ratio*1000 + .5)
			s.reply(f)
		}
	}
}

func (s *script) reply(f policies.Fact) {
	s.pending = append(s.pending, answer{s.now + probeTime, f})
	slices.SortStableFunc(s.pending, func(a, b answer) int { return cmp.Compare(a.at, b.at) })
}

func parseAnswer(text string) (float64, policies.ProbeOutcome) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, policies.ProbeUnsupported
	}
	return x, policies.ProbeValue
}
