package traces

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/prefix"
)

func open(t testing.TB, name string, opt Options) *Trace {
	t.Helper()
	tr, err := Open(filepath.Join("testdata", name), "", opt)
	if err != nil {
		t.Fatal(err)
	}
	if p := Validate(tr); len(p) > 0 {
		t.Fatal(p)
	}
	return tr
}

// describeTurns writes the turns of a session: thread.number model prompt+output @start, and what each waits for, with
// the times in seconds.
func describeTurns(tr *Trace, session int) string {
	var b strings.Builder
	s := &tr.Sessions[session]
	for i := range s.Turns {
		t := &s.Turns[i]
		fmt.Fprintf(&b, "%d: %d.%d %s %d+%d @%g:", i, t.Thread, t.Number, tr.Models[t.Model], t.Prompt.Tokens, t.OutputTokens, float64(t.StartNS)/1e9)
		for _, d := range s.Deps[t.DepLo:t.DepHi] {
			fmt.Fprintf(&b, " %d%s+%g", d.Turn, []string{"", "'"}[d.On], float64(d.DelayNS)/1e9)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func wantTurns(t *testing.T, tr *Trace, session int, want string) {
	t.Helper()
	if got := describeTurns(tr, session); got != strings.TrimLeft(want, "\n") {
		t.Errorf("session %d: got\n%swant%s", session, got, want)
	}
}

// common is what the prompt of turn b shares with the prompt and output of turn a.
func common(tr *Trace, session, a, b int) int32 {
	s := &tr.Sessions[session]
	whole := s.Turns[a].Prompt
	whole.Tokens += s.Turns[a].OutputTokens
	return tr.Tree.Common(whole, s.Turns[b].Prompt)
}

func note(tr *Trace, text string) int64 {
	for _, n := range tr.Report.Notes {
		if n.Note == text {
			return n.Count
		}
	}
	return 0
}

// Subagents: a completed one starts at t - duration (3 s for both here), its inner times count from there, and its
// parent's next call waits for it: the rest of the subagent after its last call (9.5 s and 7 s) plus the parent's own
// 1.5 s after the later of the two. The asynchronous one starts at t and nobody waits for it.
func TestSubagents(t *testing.T) {
	tr := open(t, "kv-subagents.json", Options{})
	wantTurns(t, tr, 0, `
0: 0.1 big 200+100 @0:
1: 1.1 small 140+10 @3: 0+0.5
2: 2.1 small 130+20 @3: 0+0.5
3: 2.2 small 260+10 @10: 2+2
4: 0.2 big 330+40 @31: 0+0 1+8.5 3+11
5: 3.1 big 70+10 @40: 4+5.5
6: 0.3 big 345+1 @41: 4+6.5
7: 0.4 big 400+5 @44: 6+0
`)
	s := tr.Sessions[0]
	if s.Turns[4].DurationNS != Unknown || s.Turns[5].DurationNS != 300e9 || s.Threads != 4 || s.StartNS != Unknown {
		t.Errorf("got %+v", s)
	}
	for text, want := range map[string]int64{noteThreadMedian: 1, noteOutput0: 1, noteNegativeGap: 1} {
		if got := note(tr, text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	for _, c := range []struct {
		a, b int
		want int32
	}{
		{0, 4, 300}, // prompt, its part block, and all of the output
		{4, 6, 345}, // only 15 of the 40 output tokens fit
		{6, 7, 192}, // differs after three blocks
		{0, 7, 192},
		{1, 2, 64}, // siblings share what their ids share
		{2, 3, 150},
		{0, 5, 0}, // the ids of the asynchronous one are new
		{0, 1, 0},
	} {
		if got := common(tr, 0, c.a, c.b); got != c.want {
			t.Errorf("turns %d and %d share %d tokens, want %d", c.a, c.b, got, c.want)
		}
	}
}

// A model switch starts content of its own; going back to the first model extends that model's last prompt. The call at
// 5012 repeats the prompt of the one before and overlaps it, so it waits for its dispatch only; the call at 5014 waits
// for the repetition, whose output it holds in part, and not for the abandoned one, which still runs.
func TestModelsAndOverlap(t *testing.T) {
	tr := open(t, "kv-models.json", Options{})
	wantTurns(t, tr, 0, `
0: 0.1 big 130+70 @0:
1: 0.2 small 210+30 @10: 0+6
2: 0.3 big 260+30 @5010: 1+4998
3: 0.4 big 260+30 @5012: 2'+2
4: 0.5 big 300+8 @5014: 3+0
5: 0.6 big 50+8 @5040: 4+25 2+10
`)
	for _, c := range []struct {
		a, b int
		want int32
	}{{0, 1, 0}, {0, 2, 200}, {2, 3, 260}, {3, 4, 290}, {2, 4, 260}, {4, 5, 0}} {
		if got := common(tr, 0, c.a, c.b); got != c.want {
			t.Errorf("turns %d and %d share %d tokens, want %d", c.a, c.b, got, c.want)
		}
	}
	capped := open(t, "kv-models.json", Options{IdleCapNS: 60e9})
	wantTurns(t, capped, 0, strings.Replace("\n"+describeTurns(tr, 0), "1+4998", "1+60", 1))
	if note(capped, noteCapped) != 1 || note(tr, noteModelSwitch) != 2 || note(tr, noteOverlap) != 1 {
		t.Errorf("notes %+v", tr.Report.Notes)
	}
	main := open(t, "kv-models.json", Options{Models: ModelsMain})
	wantTurns(t, main, 0, `
0: 0.1 big 130+70 @0:
1: 0.2 big 260+30 @5010: 0+5006
2: 0.3 big 260+30 @5012: 1'+2
3: 0.4 big 300+8 @5014: 2+0
4: 0.5 big 50+8 @5040: 1+10 3+25
`)
	if d := main.Report.Dropped; len(d) != 1 || d[0] != (DropCount{"other model", 1}) || main.Report.Turns != 6 {
		t.Errorf("report %+v", main.Report)
	}
}

func TestOutputReuseNone(t *testing.T) {
	tr := open(t, "kv-models.json", Options{OutputReuse: ReuseNone})
	for _, c := range []struct {
		a, b int
		want int32
	}{{0, 2, 130}, {2, 3, 260}, {3, 4, 260}} {
		if got := common(tr, 0, c.a, c.b); got != c.want {
			t.Errorf("turns %d and %d share %d tokens, want %d", c.a, c.b, got, c.want)
		}
	}
}

// Mooncake: a parent with three followers, one of which has a follower too; a prompt that shares a block and follows
// nobody; and two requests with the same prompt.
func TestMooncake(t *testing.T) {
	tr := open(t, "mooncake.jsonl", Options{})
	wantTurns(t, tr, 0, `
0: 0.1 unnamed 1100+200 @0:
1: 0.2 unnamed 1400+100 @3: 0'+3 0+0
2: 1.1 unnamed 1700+50 @6: 0'+6 0+0
3: 2.1 unnamed 1100+10 @6: 0'+6 0+0
4: 1.2 unnamed 2100+20 @11: 2'+5 2+0
`)
	wantTurns(t, tr, 2, `
0: 0.1 unnamed 1024+1 @0:
1: 0.2 unnamed 1024+30 @0: 0'+0 0+0
`)
	for _, c := range []struct {
		a, b int
		want int32
	}{{0, 1, 1300}, {0, 2, 1300}, {0, 3, 1100}, {1, 2, 1300}, {2, 4, 1750}} {
		if got := common(tr, 0, c.a, c.b); got != c.want {
			t.Errorf("turns %d and %d share %d tokens, want %d", c.a, c.b, got, c.want)
		}
	}
	if len(tr.Sessions) != 3 || tr.Sessions[2].StartNS != 8e9 || tr.Sessions[0].StartNS != 0 || tr.Sessions[1].StartNS != 0 {
		t.Fatalf("sessions %+v", tr.Sessions)
	}
	if got := tr.Tree.Common(tr.Sessions[0].Turns[0].Prompt, tr.Sessions[1].Turns[0].Prompt); got != 512 {
		t.Errorf("sessions 0 and 1 share %d tokens", got)
	}
}

// Two followers of one parent whose next blocks have different ids cannot both hold an output that fills that block.
func TestMooncakeFollowersThatDifferInsideTheOutput(t *testing.T) {
	tr := mooncakeText(t, `{"timestamp":0,"input_length":512,"output_length":600,"hash_ids":[1]}
{"timestamp":1,"input_length":1200,"output_length":5,"hash_ids":[1,2,3]}
{"timestamp":2,"input_length":1300,"output_length":5,"hash_ids":[1,4,5]}
`)
	if got := common(tr, 0, 1, 2); got != 512 {
		t.Errorf("the followers share %d tokens", got)
	}
	if a, b := common(tr, 0, 0, 1), common(tr, 0, 0, 2); a != 1112 || b != 512 {
		t.Errorf("the followers share %d and %d tokens with their parent", a, b)
	}
}

func TestMooncakeNamedSessions(t *testing.T) {
	tr := mooncakeText(t, `{"timestamp":5000.5,"session_id":"b","input_length":512,"output_length":10,"hash_ids":[1]}
{"timestamp":4000,"session_id":"a","input_length":512,"output_length":10,"hash_ids":[1]}
{"delay":250,"session_id":"b","input_length":1024,"output_length":10,"hash_ids":[1,2]}
`)
	if tr.Sessions[0].Name != "a" || tr.Sessions[1].Name != "b" || tr.Sessions[1].StartNS != 1000.5e6 {
		t.Fatalf("sessions %+v", tr.Sessions)
	}
	wantTurns(t, tr, 1, `
0: 0.1 unnamed 512+10 @0:
1: 0.2 unnamed 1024+10 @0.25: 0+0.25
`)
}

func mooncakeText(t *testing.T, text string) *Trace {
	t.Helper()
	path := writeFile(t, "x.jsonl", text)
	tr, err := ReadMooncake(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p := Validate(tr); len(p) > 0 {
		t.Fatal(p)
	}
	return tr
}

// Sessions with the same model, tool tokens and system tokens share whole blocks of both; a prompt of the same file that
// differs from the first block on does not.
func TestSharedPrefix(t *testing.T) {
	dir := t.TempDir()
	call := func(at, in int, ids string) string {
		return fmt.Sprintf(`{"t":%d,"type":"n","model":"m","in":%d,"out":1,"api_time":1,"hash_ids":[%s]}`, at, in, ids)
	}
	file := func(name string, tool int, calls ...string) {
		write(t, filepath.Join(dir, name), fmt.Sprintf(`{"id":%q,"tool_tokens":%d,"system_tokens":50,"requests":[%s]}`, name, tool, strings.Join(calls, ",")))
	}
	file("a.json", 100, call(0, 300, "1,2,3,4"), call(5, 200, "7,8,9"))
	file("b.json", 100, call(0, 320, "1,2,3,4,5"))
	file("c.json", 200, call(0, 320, "1,2,3,4,5"))
	file("d.json", 100, call(0, 100, "1"))
	for _, shared := range []SharedPrefix{SharedNone, SharedAuto} {
		tr, err := Open(dir, "", Options{SharedPrefix: shared})
		if err != nil {
			t.Fatal(err)
		}
		prompt := func(s, i int) prefix.Prefix { return tr.Sessions[s].Turns[i].Prompt }
		for _, c := range []struct {
			a, b prefix.Prefix
			want int32
		}{
			{prompt(0, 0), prompt(1, 0), 128}, {prompt(0, 0), prompt(2, 0), 0}, {prompt(0, 0), prompt(3, 0), 64},
			{prompt(0, 0), prompt(0, 1), 0}, {prompt(0, 1), prompt(1, 0), 0},
		} {
			if shared == SharedNone {
				c.want = 0
			}
			if got := tr.Tree.Common(c.a, c.b); got != c.want {
				t.Errorf("%s: %v and %v share %d, want %d", shared, c.a, c.b, got, c.want)
			}
		}
		if p := Validate(tr); len(p) > 0 {
			t.Error(p)
		}
	}
}

func TestDropOverContext(t *testing.T) {
	tr := open(t, "kv-subagents.json", Options{})
	// Prompts 330, 345 and 400 of the main thread go. The asynchronous subagent waited 5.5 s after the first of these; its
	// service time is not recorded, so it counts as the median of the session, 5 s.
	kept := DropOverContext(tr, 300)
	wantTurns(t, kept, 0, `
0: 0.1 big 200+100 @0:
1: 1.1 small 140+10 @3: 0+0.5
2: 2.1 small 130+20 @3: 0+0.5
3: 2.2 small 260+10 @10: 2+2
4: 3.1 big 70+10 @40: 0+10.5 1+19 3+21.5
`)
	if d := kept.Report.Dropped; len(d) != 1 || d[0] != (DropCount{"context limit", 3}) {
		t.Errorf("dropped %+v", d)
	}
	if p := Validate(kept); len(p) > 0 {
		t.Error(p)
	}
	if tr.Turns() != 8 || tr.Report.Dropped != nil {
		t.Error("the trace itself was changed")
	}
	if none := DropOverContext(tr, 10); len(none.Sessions) != 0 || none.Report.DroppedTurns() != 8 {
		t.Errorf("%+v", none.Report)
	}
	if first := Head(tr, 0); first.Report.DroppedTurns() != 0 || first.Report.Turns != 0 || len(first.Report.Notes) == len(tr.Report.Notes) {
		t.Errorf("%+v", first.Report)
	}
}
