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
//	new gate=NAME [kv=TOKENS] [knob=value ...]   a new Controller with 2 replicas, at 0 s; kv is the capacity of each
//	do                               one line for each act; the output is the commands, with their times in seconds
//
// Acts: arrive A thread=T [session=S] [tokens=N] [class=C], first A (its first token), finish A [output=N], fail A, gone A, close T (the thread has
// finished), end S (the session has), down R, up R, restart R, usage R U|unknown, hit T RATIO|unknown,
// sample R [usage=U] [waiting=N] [query=N hit=N] (a scrape taken now), wait DURATION. Without session= the session is the
// thread; a prompt has 1000 tokens, an output 10, unless said. Acts on one line, parted by ";", happen at one moment.
type script struct {
	c       *policies.Controller
	now     policies.Time
	pending []answer
	usage   [2]string
	hit     map[policies.ThreadID]string
	threads map[policies.AttemptID]policies.ThreadID
	prompts map[policies.AttemptID]int32
	known   map[policies.ThreadID]bool // threads that have had a turn: the next is no first one
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
	var kv policies.Capability
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "gate":
			name = a.Vals[0]
			continue
		case "kv":
			kv.KVTokens, _ = strconv.ParseInt(a.Vals[0], 10, 64)
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
		c:   policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: 2, Capabilities: []policies.Capability{kv, kv}, Gate: g, Router: r}),
		hit: map[policies.ThreadID]string{}, threads: map[policies.AttemptID]policies.ThreadID{}, prompts: map[policies.AttemptID]int32{},
		known: map[policies.ThreadID]bool{}, usage: [2]string{"0", "0"},
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
			named := func(name string, otherwise int64) int64 {
				for i, w := range words {
					if strings.HasPrefix(w, name+"=") {
						return arg(i)
					}
				}
				return otherwise
			}
			thread := arg(2)
			u := policies.Turn{
				Attempt: policies.AttemptID(arg(1)), Thread: policies.ThreadID(thread), Session: policies.SessionID(named("session", thread)), Number: 1,
				Prompt: prefix.Prefix{Tokens: int32(named("tokens", 1000))}, Class: int32(named("class", 0)),
			}
			if s.known[u.Thread] {
				u.Number = 2
			}
			s.known[u.Thread] = true
			s.threads[u.Attempt], s.prompts[u.Attempt] = u.Thread, u.Prompt.Tokens
			facts = append(facts, policies.Fact{Kind: policies.TurnArrived, Turn: u})
		case "close":
			facts = append(facts, policies.Fact{Kind: policies.ThreadFinished, Thread: policies.ThreadID(arg(1)), Session: policies.SessionID(arg(1))})
		case "end":
			facts = append(facts, policies.Fact{Kind: policies.SessionFinished, Session: policies.SessionID(arg(1))})
		case "first", "finish", "fail", "gone":
			kind := map[string]policies.FactKind{"first": policies.FirstToken, "finish": policies.Finished, "fail": policies.Failed, "gone": policies.ClientGone}[words[0]]
			f := policies.Fact{Kind: kind, Attempt: policies.AttemptID(arg(1)), OutputTokens: 10}
			if len(words) > 2 {
				f.OutputTokens = int32(arg(2))
			}
			facts = append(facts, f)
		case "up", "down", "restart":
			kind := map[string]policies.FactKind{"up": policies.ReplicaUp, "down": policies.ReplicaDown, "restart": policies.ReplicaRestarted}[words[0]]
			facts = append(facts, policies.Fact{Kind: kind, Replica: policies.ReplicaID(arg(1))})
		case "sample":
			facts = append(facts, policies.Fact{Kind: policies.MetricsSampled, Replica: policies.ReplicaID(arg(1)), Sample: parseSample(t, s.now, words[2:])})
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
		case policies.Reject:
			fmt.Fprintf(&s.out, "reject %d %s, again in %.3f\n", c.Attempt, c.Reason, float64(c.RetryAfter)/1e9)
		case policies.Abort:
			fmt.Fprintf(&s.out, "abort %d %s\n", c.Attempt, c.Reason)
		case policies.ProbeUsage:
			fmt.Fprintf(&s.out, "usage? %d of %d\n", c.Attempt, c.Replica)
			f := policies.Fact{Kind: policies.UsageProbed, Attempt: c.Attempt, Replica: c.Replica}
			f.Usage, f.Outcome = parseAnswer(s.usage[c.Replica])
			s.reply(f)
		case policies.ProbePrefix:
			fmt.Fprintf(&s.out, "prefix? %d of %d\n", c.Attempt, c.Replica)
			f := policies.Fact{Kind: policies.PrefixProbed, Attempt: c.Attempt, Replica: c.Replica, PromptTokens: s.prompts[c.Attempt]}
			var ratio float64
			ratio, f.Outcome = parseAnswer(cmp.Or(s.hit[s.threads[c.Attempt]], "0"))
			f.HitTokens = int32(ratio*float64(f.PromptTokens) + .5)
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

func parseSample(t *testing.T, now policies.Time, words []string) policies.Sample {
	m := policies.Sample{At: now}
	for _, w := range words {
		key, text, _ := strings.Cut(w, "=")
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%q: %v", w, err)
		}
		switch key {
		case "usage":
			m.Usage, m.Has = x, m.Has|policies.HasUsage
		case "waiting":
			m.Waiting, m.Has = int32(x), m.Has|policies.HasWaiting|policies.HasRunning
		case "query":
			m.QueryTokens, m.Has = int64(x), m.Has|policies.HasPrefixCounters
		case "hit":
			m.HitTokens = int64(x)
		default:
			t.Fatalf("no figure %q", key)
		}
	}
	return m
}
