package explain

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func split(log []byte) func() decisionlog.Lines {
	return func() decisionlog.Lines {
		return func(yield func([]byte, error) bool) {
			for _, line := range bytes.SplitAfter(log, []byte("\n")) {
				if len(line) > 0 && !yield(line, nil) {
					return
				}
			}
		}
	}
}

const ms = 1_000_000_000 // picoseconds

func row(session, number, attempt int32, arrival int64) results.Turn {
	m := results.Missing
	return results.Turn{
		Session: session, Number: number, Attempt: attempt, Final: true, Group: -1, Replica: 1, PrefillReplica: 1, ArrivalPS: arrival, AdmittedPS: arrival, SentPS: arrival,
		ScheduledPS: arrival, FirstTokenPS: arrival + 5*ms, DonePS: arrival + 9*ms, PromptTokens: 100, OutputTokens: 20, ComputedTokens: 100,
		ITLMaxPS: m, ToolGapPS: m, IdleTTFTPS: m, IdleTPOTPS: m,
	}
}

// folder is a run of two sessions, alpha and beta: alpha's second turn is held, finds half of its prompt, and the rest was evicted
// for beta.
func folder(t *testing.T) *results.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := results.Create(dir, results.Info{Run: "r", Arm: "a", Mode: "closed", Gate: "session"}, results.Options{})
	check(t, err)
	first := row(0, 1, 1, 0)
	first.PromptTokens = 64
	beta := row(1, 1, 1, 20*ms)
	gone := row(0, 2, 1, 30*ms)
	gone.Final, gone.Outcome, gone.Replica, gone.PrefillReplica = false, results.TimedOut, -1, -1
	gone.AdmittedPS, gone.SentPS, gone.ScheduledPS, gone.FirstTokenPS = results.Missing, results.Missing, results.Missing, results.Missing
	gone.ComputedTokens, gone.OutputTokens, gone.ToolGapPS = 0, 0, 21*ms
	last := row(0, 2, 2, 40*ms)
	last.AdmittedPS, last.SentPS, last.ScheduledPS = 46*ms, 46*ms, 47*ms
	last.FirstTokenPS, last.DonePS = 50*ms, 60*ms
	last.HitGPU, last.ComputedTokens, last.WastedTokens, last.WasteCause = 32, 68, 32, results.CauseEvicted
	for _, x := range []results.Turn{first, beta, gone, last} {
		check(t, w.Turn(&x))
	}
	check(t, w.Session(&results.Session{Session: 0, Name: "alpha", Turns: 2, FinishedTurns: 2, Complete: true}))
	check(t, w.Session(&results.Session{Session: 1, Name: "beta", StartPS: 20 * ms, EndPS: 29 * ms, Turns: 1, FinishedTurns: 1, Complete: true}))
	check(t, w.Sample(&results.Sample{Replica: 1, EndPS: 1000 * ms, EvictedTokens: 48}))
	_, err = w.Finish(&results.Totals{Replicas: 2, GPUs: 2, KVBlocks: 8, BlockTokens: 16, Sessions: 2, Turns: 3, ITL: results.NewHistogram(), BusyPS: make([]int64, 2)})
	check(t, err)
	run, err := results.LoadRun(dir)
	check(t, err)
	return run
}

// writtenLog is the log of that run, by hand. Stream 0 is alpha's, 1 beta's.
func writtenLog(t *testing.T, kv bool) []byte {
	t.Helper()
	var log bytes.Buffer
	h := decisionlog.Header{
		Gate: decisionlog.Policy{Name: "session"}, Router: decisionlog.Policy{Name: "lmetric"}, Capabilities: make([]policies.Capability, 2),
		Scores: decisionlog.ScoreForm{Scored: true, Lowest: true, Terms: []string{"hit_tokens"}},
	}
	tree := &prefix.Tree{}
	tree.Root()
	tree.Root()
	line := h.Append(nil)
	line = decisionlog.AppendStreams(line, tree, 0)
	log.Write(line)
	n := int64(0)
	step := func(atMS int64, scores []policies.ReplicaScore, facts []policies.Fact, commands ...policies.Command) {
		n++
		s := decisionlog.Step{Number: n, Entry: policies.Entry{Now: policies.Time(atMS * 1_000_000), Commands: commands}}
		for _, f := range facts {
			if kv || f.Kind != policies.BlocksStored && f.Kind != policies.BlocksEvicted {
				s.Facts = append(s.Facts, f)
			}
		}
		if scores != nil {
			s.Scores = []decisionlog.Scores{{Attempt: commands[len(commands)-1].Attempt, Of: scores}}
		}
		log.Write(s.Append(nil, &h.Scores))
	}
	turn := func(id policies.AttemptID, session, number, retry, tokens int32) policies.Fact {
		return policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{
			Attempt: id, Session: policies.SessionID(session), Thread: policies.ThreadID(session), Number: number, Retry: retry,
			Prompt: prefix.Prefix{Stream: prefix.StreamID(session), Tokens: tokens}, Group: -1,
		}}
	}
	blocks := func(k policies.FactKind, stream prefix.StreamID, lo, hi int32) policies.Fact {
		return policies.Fact{Kind: k, Replica: 1, Stream: stream, Lo: lo, Hi: hi, BlockTokens: 16}
	}
	command := func(k policies.CommandKind, id policies.AttemptID, r policies.ReplicaID, why policies.Reason) policies.Command {
		return policies.Command{Kind: k, Attempt: id, Replica: r, Reason: why}
	}
	send := func(id policies.AttemptID, admitted, routed policies.Reason) []policies.Command {
		return []policies.Command{command(policies.Admit, id, 1, admitted), command(policies.Dispatch, id, 1, routed)}
	}
	step(0, nil, []policies.Fact{turn(1, 0, 1, 0, 64)}, send(1, policies.Open, policies.BestScore)...)
	step(9, nil, []policies.Fact{blocks(policies.BlocksStored, 0, 0, 5)})
	step(20, nil, []policies.Fact{turn(2, 1, 1, 0, 100)}, send(2, policies.Open, policies.BestScore)...)
	step(25, nil, []policies.Fact{blocks(policies.BlocksEvicted, 0, 2, 5), blocks(policies.BlocksStored, 1, 0, 6)})
	step(30, nil, []policies.Fact{turn(3, 0, 2, 0, 100)}, command(policies.Hold, 3, policies.NoReplica, policies.UnderPressure))
	step(39, nil, []policies.Fact{{Kind: policies.ClientGone, Attempt: 3}})
	step(40, nil, []policies.Fact{turn(4, 0, 2, 1, 100)}, command(policies.ProbeUsage, 4, 1, 0))
	step(41, nil, []policies.Fact{{Kind: policies.UsageProbed, Attempt: 4, Replica: 1, Usage: .9}}, command(policies.ProbePrefix, 4, 1, 0))
	step(42, nil, []policies.Fact{{Kind: policies.PrefixProbed, Attempt: 4, Replica: 1, HitTokens: 32, PromptTokens: 100}}, command(policies.Hold, 4, policies.NoReplica, policies.UnderPressure))
	step(45, nil, nil, command(policies.ProbeUsage, 4, 1, 0))
	scores := []policies.ReplicaScore{{Replica: 0, Score: 100}, {Replica: 1, Score: 68}}
	scores[1].Terms[0] = 32
	step(46, scores, []policies.Fact{{Kind: policies.UsageProbed, Attempt: 4, Replica: 1, Outcome: policies.ProbeTimeout}}, send(4, policies.ProbeUnavailable, policies.BestScore)...)
	step(50, nil, []policies.Fact{blocks(policies.BlocksEvicted, 0, 0, 2)}) // too late to matter
	return log.Bytes()
}

const told = `Session 0 (alpha), turn 2: 100 prompt tokens, 20 output tokens; gate session, router lmetric.
The turn before it ended at 0.009 s on replica 1, with 64 tokens of prompt and 20 tokens of output (finished).

Attempt 1 of 2
It arrived at 0.03 s, 0.021 s after what triggered it.
  0.03 s  held: under_pressure (KV usage at or above the watermark and too little of its prompt resident)
  0.039 s  its client gave up
It waited 0.009 s at the gate.
It ended at 0.039 s, 0.009 s after it arrived, with 0 tokens of output: timed_out.

Attempt 2 of 2
It arrived at 0.04 s.
  0.04 s  replica 1 was asked for its KV usage
  0.041 s  replica 1 answered: KV usage 0.9
  0.041 s  replica 1 was asked how much of the prompt is resident
  0.042 s  replica 1 answered: 32 of 100 tokens (32 %) resident
  0.042 s  held: under_pressure (KV usage at or above the watermark and too little of its prompt resident)
  0.045 s  replica 1 was asked for its KV usage
  0.046 s  replica 1 answered: too late (timeout)
  0.046 s  admitted: probe_unavailable (a probe gave no value, and the gate fails open)
It waited 0.006 s at the gate.
At 0.046 s it went to replica 1: best_score (the best score).
  The scores of the router, of which the lowest is the best:
         replica  score  hit_tokens
      >        1     68          32
               0    100           0
When the engine took it up, 32 of 100 tokens of prompt (32 %) were resident on replica 1; 68 were computed.
Of those computed, 32 had been computed before; most of them because they were evicted there.
`

const fromKV = `By the KV events up to the dispatch, replica 1 held the first 32 tokens.
  16 tokens nobody had computed yet.
  48 tokens had been there and were evicted:
    48 tokens at 0.025 s, when the replica stored 96 tokens of session 1 (beta)
`

const withoutKV = `Who evicted them is unknown, since the log has no KV events (run it with a router that reads KV events, such as lmetric, to have them in the log).
  Between 0.009 s and 0.047 s replica 1 evicted about 48 tokens in all and computed prompts of 1 other session; the most: session 1 (beta) 100.
`

const ending = `Its engine took it up at 0.047 s, 0.001 s after it was sent.
Its first token came at 0.05 s, 0.01 s after it arrived.
It ended at 0.06 s, 0.02 s after it arrived, with 20 tokens of output: finished.
`

func TestStory(t *testing.T) {
	run := folder(t)
	for _, x := range []struct {
		turn string
		kv   bool
		want string
	}{
		{"alpha/2", true, told + fromKV + ending}, {"0/0/2", false, told + withoutKV + ending}, {"3", true, told + fromKV + ending},
	} {
		text, err := Turn(run, split(writtenLog(t, x.kv)), x.turn)
		check(t, err)
		if diff := cmp.Diff(x.want, strings.Join(text, "\n")+"\n"); diff != "" {
			t.Errorf("%s: %s", x.turn, diff)
		}
	}
}

func TestStoryErrors(t *testing.T) {
	run := folder(t)
	log := writtenLog(t, true)
	for turn, want := range map[string]string{
		"alpha/3":   `turn "alpha/3": session 0 (alpha) has no turn 3 in thread 0`,
		"alpha/1/1": `turn "alpha/1/1": session 0 (alpha) has no turn 1 in thread 1`,
		"gamma/1":   `turn "gamma/1": there is no session "gamma"; sessions have a name or an index from 0 to 1`,
		"alpha/x":   `turn "alpha/x": "x" is not the number of a turn, from 1`,
		"0":         `turn "0": expected SESSION/TURN, SESSION/THREAD/TURN or the number of a row of turns.parquet, from 1`,
		"5":         `row 5: turns.parquet has 4 rows`,
	} {
		if _, err := Turn(run, split(log), turn); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", turn, err, want)
		}
	}
	if _, err := Turn(run, split(log[:len(log)-5]), "0/1"); err == nil || !strings.HasPrefix(err.Error(), "decisions.jsonl: line 14: the line is cut off") {
		t.Errorf("a log that is cut off: %v", err)
	}
	other := bytes.ReplaceAll(log, []byte(`"session":0,`), []byte(`"session":1,`))
	text, err := Turn(run, split(other), "0/1")
	check(t, err)
	if all := fmt.Sprint(text); !strings.Contains(all, "The decision log has no such arrival") {
		t.Errorf("a log of another run: %s", all)
	}
}

// Every reason is explained.
func TestReasonsHaveAMeaning(t *testing.T) {
	for r := policies.NoReason + 1; r.String() != "invalid"; r++ {
		if meaning[r] == "" {
			t.Errorf("reason %s has no meaning in words", r)
		}
	}
}

// A scored router lists the best replicas and the chosen one, best first, and says how many it leaves out.
func TestManyReplicas(t *testing.T) {
	var all []policies.ReplicaScore
	for r := range policies.ReplicaID(40) {
		all = append(all, policies.ReplicaScore{Replica: r, Score: float64(r % 7)})
	}
	list := nearestScores(all, 39, true)
	if len(list) != mostScores+1 || list[0].Replica != 0 || list[1].Replica != 7 || list[mostScores].Replica != 39 {
		t.Errorf("%v", list)
	}
	if list = nearestScores(all, 6, false); len(list) != mostScores || list[0].Replica != 6 || list[1].Replica != 13 {
		t.Errorf("%v", list)
	}
}
