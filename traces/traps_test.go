package traces

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// kvCallText writes a call; api < 0 leaves api_time out.
func kvCallText(at, api float64, in, out int, ids string) string {
	service := ""
	if api >= 0 {
		service = fmt.Sprintf(`"api_time":%g,`, api)
	}
	return fmt.Sprintf(`{"t":%g,"type":"s","model":"m","in":%d,"out":%d,%s"hash_ids":[%s]}`, at, in, out, service, ids)
}

func kvFolder(t *testing.T, opt Options, files map[string]string) *Trace {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	tr, err := Open(dir, "", opt)
	if err != nil {
		t.Fatal(err)
	}
	if p := Validate(tr); len(p) > 0 {
		t.Fatal(p)
	}
	return tr
}

// The median that stands in for a missing api_time is the thread's, else the file's, else the trace's.
func TestMissingServiceTimes(t *testing.T) {
	call := func(at, api float64) string { return kvCallText(at, api, 100, 5, "1") }
	sub := `{"t":50,"type":"subagent","duration_ms":null,"requests":[` + call(0, -1) + `,` + call(20, -1) + `]}`
	tr := kvFolder(t, Options{}, map[string]string{
		"a.json": `{"id":"a","requests":[` + strings.Join([]string{call(0, 3), call(10, -1), call(30, 5), call(40, 9), sub}, ",") + `]}`,
		"b.json": `{"id":"b","requests":[` + call(0, -1) + `,` + call(10, 7) + `]}`,
		"c.json": `{"id":"c","requests":[` + call(0, -1) + `,` + call(10, -1) + `]}`,
	})
	wantTurns(t, tr, 0, `
0: 0.1 m 100+5 @0:
1: 0.2 m 100+5 @10: 0+7
2: 0.3 m 100+5 @30: 1+15
3: 0.4 m 100+5 @40: 2+5
4: 1.1 m 100+5 @50: 3+1
5: 1.2 m 100+5 @70: 4+15
`) // the thread of the subagent has none, the file's median is 5 s
	wantTurns(t, tr, 1, `
0: 0.1 m 100+5 @0:
1: 0.2 m 100+5 @10: 0+3
`)
	wantTurns(t, tr, 2, `
0: 0.1 m 100+5 @0:
1: 0.2 m 100+5 @10: 0+4
`) // 3, 5, 7 and 9 s: 6 s
	for text, want := range map[string]int64{noteThreadMedian: 2, noteFileMedian: 2, noteTraceMedian: 2} {
		if got := note(tr, text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	none := kvFolder(t, Options{IdleCapNS: 8e9}, map[string]string{"c.json": `{"id":"c","requests":[` + call(0, -1) + `,` + call(10, -1) + `]}`})
	wantTurns(t, none, 0, `
0: 0.1 m 100+5 @0:
1: 0.2 m 100+5 @10: 0'+8 0+0
`)
}

func TestUnusualSubagents(t *testing.T) {
	sub := func(at float64, duration string, calls ...string) string {
		return fmt.Sprintf(`{"t":%g,"type":"subagent","duration_ms":%s,"requests":[%s]}`, at, duration, strings.Join(calls, ","))
	}
	call := func(at, api float64, ids string) string { return kvCallText(at, api, 100, 5, ids) }
	tr := kvFolder(t, Options{}, map[string]string{"a.json": `{"id":"a","requests":[` + strings.Join([]string{
		sub(4, "9000", call(0, 2, "50")), // starts 5 s before the first call
		call(1, 2, "1"),
		sub(30, "20000"),                   // no calls
		sub(60, "25000", call(0, 4, "60")), // ended after the parent's next call: joined by the one after it
		call(40, 1, "1"),
		call(70, 1, "1"),
		call(65, 1, "1"), // out of order
	}, ",") + `]}`})
	wantTurns(t, tr, 0, `
0: 1.1 m 100+5 @0:
1: 0.1 m 100+5 @6: 0'+6
2: 3.1 m 100+5 @40: 1+32
3: 0.2 m 100+5 @45: 1+37 0+43
4: 0.3 m 100+5 @70: 3+24 2+26
5: 0.4 m 100+5 @75: 4+4
`)
	for text, want := range map[string]int64{noteOrphan: 1, noteEmptyThread: 1, noteBackward: 1} {
		if got := note(tr, text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// An id means nothing outside its file, and prompts of whole blocks leave one block to compute.
func TestIDsAreLocalToTheirFile(t *testing.T) {
	text := func(id string) string {
		return `{"id":"` + id + `","requests":[` + kvCallText(0, 1, 128, 5, "1,2") + `,` + kvCallText(5, 1, 128, 5, "1,2") + `]}`
	}
	files := map[string]string{"a.json": text("a"), "b.json": text("b")}
	tr := kvFolder(t, Options{}, files)
	if got := tr.Tree.Common(tr.Sessions[0].Turns[0].Prompt, tr.Sessions[1].Turns[0].Prompt); got != 0 {
		t.Errorf("two files share %d tokens", got)
	}
	if got := ceilings(tr, 64)[0]; got[0] != 0 || got[1] != 64 {
		t.Errorf("ceiling %v", got)
	}
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	s, err := OpenStats(dir, "", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Cache; c.PrefixHitBlocks != 4 || c.VLLMHitBlocks != 2 || c.UniqueBlocks != 4 || c.HitTokens != 256 {
		t.Errorf("%+v", c)
	}
	if rows := s.Rows(); len(rows) < 10 || rows[0] != [2]string{"format", FormatKVCacheTester} {
		t.Errorf("rows %v", rows)
	}
}

func TestValidateFindsEveryBreach(t *testing.T) {
	for name, breakIt := range map[string]func(*Trace){
		"thread":        func(tr *Trace) { tr.Sessions[0].Turns[2].Thread = 9 },
		"number":        func(tr *Trace) { tr.Sessions[0].Turns[4].Number = 1 },
		"starts before": func(tr *Trace) { tr.Sessions[0].Turns[4].StartNS = 0 },
		"model":         func(tr *Trace) { tr.Sessions[0].Turns[0].Model = 7 },
		"negative time": func(tr *Trace) { tr.Sessions[0].Turns[0].DurationNS = -2 },
		"output tokens": func(tr *Trace) { tr.Sessions[0].Turns[0].OutputTokens = 0 },
		"prompt tokens": func(tr *Trace) { tr.Sessions[0].Turns[0].Prompt.Tokens = 0 },
		"stream 99":     func(tr *Trace) { tr.Sessions[0].Turns[0].Prompt.Stream = 99 },
		"fork":          func(tr *Trace) { tr.Sessions[0].Turns[6].Prompt.Tokens = 300 },
		"overlaps":      func(tr *Trace) { tr.Sessions[0].Turns[4].Prompt.Tokens = 299 },
		"2^31-1":        func(tr *Trace) { tr.Sessions[0].Turns[7].OutputTokens = 1<<31 - 1 },
		"dependencies":  func(tr *Trace) { tr.Sessions[0].Turns[7].DepHi = 99 },
		"waits for":     func(tr *Trace) { tr.Sessions[0].Deps[0].Turn = 5 },
		"delay":         func(tr *Trace) { tr.Sessions[0].Deps[0].DelayNS = -1 },
		"trigger":       func(tr *Trace) { tr.Sessions[0].Deps[0].On = 2 },
		"group":         func(tr *Trace) { tr.Sessions[0].Group = 0 },
		"no turns":      func(tr *Trace) { tr.Sessions[0].Turns = nil },
		"threads":       func(tr *Trace) { tr.Sessions[0].Threads = 0 },
		"start -2":      func(tr *Trace) { tr.Sessions[0].StartNS = -2 },
		"tree":          func(tr *Trace) { tr.Tree = nil },
	} {
		tr := open(t, "kv-subagents.json", Options{})
		breakIt(tr)
		found := false
		for _, p := range Validate(tr) {
			found = found || strings.Contains(p.String(), name)
		}
		if !found {
			t.Errorf("%s: got %v", name, Validate(tr))
		}
	}
}
