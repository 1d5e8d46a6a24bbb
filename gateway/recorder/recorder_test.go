package recorder

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/traces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const block = 4

var secret = []byte("a secret of this installation")

// feed is a gateway in small: it places prompts and records their turns.
type feed struct {
	tb     testing.TB
	dir    string
	r      *Recorder
	hasher *content.Hasher
	table  *content.Table
	last   map[string]prefix.StreamID // held for a thread
	open   *open                      // taken at once, nil for by the recorder
}

func newFeed(tb testing.TB, change func(*Config)) *feed {
	tb.Helper()
	h, err := content.NewHasher(secret, block)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	cfg := Config{Dir: dir, Secret: secret, BlockTokens: block, Queue: 1 << 20}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return &feed{tb, dir, r, h, content.New(&prefix.Tree{}, h, content.Options{}), map[string]prefix.StreamID{}, nil}
}

// send records a turn of ids. Times are seconds.
func (x *feed) send(session string, thread int64, ids []int32, output int32, arrived, ended float64) {
	x.tb.Helper()
	c, err := x.hasher.Tokens(content.Chain{}, "m", ids)
	if err != nil {
		x.tb.Fatal(err)
	}
	p, err := x.table.Place(c)
	if err != nil {
		x.tb.Fatal(err)
	}
	path := x.table.Path(p, nil)
	turn := Turn{Session: session, Thread: thread, Model: "served", Path: path, PromptTokens: p.Tokens, OutputTokens: output,
		ArrivedNS: int64(arrived * 1e9), EndedNS: int64(ended * 1e9)}
	if x.open != nil {
		x.open.take(&note{turn: turn})
	} else if !x.r.Record(turn) {
		x.tb.Error("a turn was dropped")
	}
	if x.open == nil {
		clear(path) // is the caller's again
	}
	name := fmt.Sprint(session, thread)
	if s, ok := x.last[name]; ok {
		x.table.Drop(s)
	}
	x.last[name] = p.Stream
}

// read closes the recorder and reads its only file.
func (x *feed) read() *traces.Trace {
	x.tb.Helper()
	if err := x.r.Close(); err != nil {
		x.tb.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(x.dir, "*"))
	if len(files) != 1 || filepath.Base(files[0]) != "recorded-000001.parquet" {
		x.tb.Fatalf("files %v", files)
	}
	if err := Verify(files[0]); err != nil {
		x.tb.Error(err)
	}
	tr, err := traces.ReadNative(files[0], traces.Limits{})
	if err != nil {
		x.tb.Fatal(err)
	}
	return tr
}

// count is n different tokens from first on.
func count(first int32, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = first + int32(i)
	}
	return ids
}

func join(parts ...[]int32) []int32 { return slices.Concat(parts...) }

// By hand: two sessions with a system prompt of 8 tokens; the first has two turns and a subagent between them.
func TestTwoSessions(t *testing.T) {
	x := newFeed(t, nil)
	system := count(0, 8)
	a1 := join(system, count(100, 10)) // 18 tokens
	a2 := join(a1, count(150, 5), count(160, 3))
	x.send("secret-a", 7, a1, 5, 10, 12)
	x.send("secret-a", 9, join(system, count(300, 4)), 2, 13, 14) // the subagent
	x.send("secret-b", 7, join(system, count(200, 6)), 4, 11, 15)
	x.send("secret-a", 7, a2, 1, 16, 17)
	x.r.EndSession("secret-a")
	tr := x.read()
	want := []traces.Session{
		{Name: "s0", StartNS: 0, Group: -1, Threads: 2,
			Turns: []traces.Turn{
				{Thread: 0, Number: 1, Prompt: prefix.Prefix{Stream: 0, Tokens: 18}, OutputTokens: 5, DurationNS: 2e9},
				{Thread: 1, Number: 1, Prompt: prefix.Prefix{Stream: 1, Tokens: 12}, OutputTokens: 2, StartNS: 3e9, DurationNS: 1e9, DepLo: 0, DepHi: 1},
				{Thread: 0, Number: 2, Prompt: prefix.Prefix{Stream: 0, Tokens: 26}, OutputTokens: 1, StartNS: 6e9, DurationNS: 1e9, DepLo: 1, DepHi: 3},
			},
			Deps: []traces.Dep{{Turn: 0, DelayNS: 1e9}, {Turn: 0, DelayNS: 4e9}, {Turn: 1, DelayNS: 2e9}}},
		{Name: "s1", StartNS: 1e9, Group: -1, Threads: 1,
			Turns: []traces.Turn{{Thread: 0, Number: 1, Prompt: prefix.Prefix{Stream: 2, Tokens: 14}, OutputTokens: 4, DurationNS: 4e9}}},
	}
	if diff := cmp.Diff(want, tr.Sessions); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	for s, parent := range map[prefix.StreamID]prefix.Stream{0: {Parent: prefix.None}, 1: {Parent: 0, ForkAt: 8}, 2: {Parent: 0, ForkAt: 8}} {
		if got := tr.Tree.Stream(s); got != parent {
			t.Errorf("stream %d is %+v, expected %+v", s, got, parent)
		}
	}
	if diff := cmp.Diff([]string{"served"}, tr.Models); diff != "" {
		t.Error(diff)
	}
}

// What the file says that prompts share is what they share: never more, and for prompts of one thread exactly, in whole blocks.
func TestSharingAgainstTokens(t *testing.T) {
	kinds := map[string]int{}
	cfg := Config{Dir: "nowhere", Secret: secret, BlockTokens: block}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	h, err := content.NewHasher(secret, block)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		x := &feed{tb: t, hasher: h, table: content.New(&prefix.Tree{}, h, content.Options{}), last: map[string]prefix.StreamID{}, open: newOpen(&Recorder{cfg: cfg})}
		type sent struct {
			session, thread int
			ids             []int32
			base            int
		}
		next, now := int32(1000), 0.0
		fresh := func(n int) []int32 { next += int32(n); return count(next-int32(n), n) }
		system := fresh(block * rapid.IntRange(1, 4).Draw(rt, "system"))
		var all []sent
		for s := range rapid.IntRange(1, 4).Draw(rt, "sessions") {
			for th := range rapid.IntRange(1, 2).Draw(rt, "threads") {
				ids := join(system, fresh(rapid.IntRange(0, 20).Draw(rt, "first")))
				if len(all) > 0 && rapid.IntRange(0, 3).Draw(rt, "known") == 0 { // begins as another did
					ids = slices.Clone(rapid.SampledFrom(all).Draw(rt, "as").ids)
				}
				base := len(ids)
				for range rapid.IntRange(1, 5).Draw(rt, "turns") {
					output := rapid.IntRange(1, 9).Draw(rt, "output")
					now++
					x.send(fmt.Sprint(s), int64(th), ids, int32(output), now, now+.5)
					all = append(all, sent{s, th, ids, base})
					switch rapid.IntRange(0, 5).Draw(rt, "then") {
					case 0: // a compaction, or an edit, well before the end
						keep := len(ids) / 2 / block * block
						ids = join(ids[:keep], fresh(3*block))
						base = min(base, keep)
						kinds["edit"]++
					case 1: // the output is left out of the history, all of it
						ids = join(ids[:len(ids)/block*block], fresh(2*block+output))
						kinds["left out"]++
					default:
						ids = join(ids, fresh(output), fresh(rapid.IntRange(0, 12).Draw(rt, "user")))
						kinds["grown"]++
					}
				}
			}
		}
		x.open.endAll()
		tr := x.open.file.trace()
		if p := traces.Validate(tr); len(p) > 0 {
			rt.Fatal(p)
		}
		recorded := map[[3]int]prefix.Prefix{}
		byKey := map[[2]int][]int{} // turns in all of a thread, in order
		for i, a := range all {
			byKey[[2]int{a.session, a.thread}] = append(byKey[[2]int{a.session, a.thread}], i)
		}
		for key, turns := range byKey {
			n := 0
			for s := range tr.Sessions {
				for k := range tr.Sessions[s].Turns {
					u := &tr.Sessions[s].Turns[k]
					if n < len(turns) && int(u.Prompt.Tokens) == len(all[turns[n]].ids) && tr.Sessions[s].StartNS+u.StartNS == int64(turns[n])*1e9 {
						recorded[[3]int{key[0], key[1], turns[n]}] = u.Prompt
						n++
					}
				}
			}
			if n != len(turns) {
				rt.Fatalf("%d of %d turns of thread %v are in the file", n, len(turns), key)
			}
		}
		for i, a := range all {
			for j, b := range all[:i] {
				n := 0
				for n < min(len(a.ids), len(b.ids)) && a.ids[n] == b.ids[n] {
					n++
				}
				got := tr.Tree.Common(recorded[[3]int{a.session, a.thread, i}], recorded[[3]int{b.session, b.thread, j}])
				same := a.session == b.session && a.thread == b.thread
				inBase := n <= min(a.base, b.base)
				if int(got)/block > n/block && !same || int(got)/block < n/block && (same || inBase) {
					rt.Fatalf("turns %d and %d share %d tokens, in the file %d (one thread: %v)\n%v\n%v", i, j, n, got, same, a.ids, b.ids)
				}
			}
		}
	})
	if len(kinds) < 3 {
		t.Errorf("only %v", kinds)
	}
}

func TestWhatIsNotWritten(t *testing.T) {
	x := newFeed(t, nil)
	x.send("a", 0, count(0, 10), 0, 1, 2)           // no output
	x.send("a", 0, count(0, 10), 3, 2, 1)           // ended before it arrived
	x.r.Record(Turn{Session: "a", PromptTokens: 5}) // no path, and no output
	path := content.Path{{Stream: 0, Upto: 5}}
	x.r.Record(Turn{Session: "a", Path: path, PromptTokens: 5, OutputTokens: 1, Outcome: Refused, Model: "m"})
	x.r.Record(Turn{Session: "a", PromptTokens: 5, OutputTokens: 1, Model: "m"}) // no path
	x.r.Record(Turn{Session: "a", Path: path, PromptTokens: 5, OutputTokens: 0, Outcome: NoOutput, Model: "m"})
	x.r.Record(Turn{Session: "a", Path: path, PromptTokens: 5, OutputTokens: 2, Outcome: Cut, Model: "the user's secret model", Basis: content.Bytes, ArrivedNS: 5, EndedNS: 6})
	tr := x.read()
	want := traces.Report{Format: "sluice gateway", Sessions: 1, Turns: 5,
		Dropped: []traces.DropCount{{Reason: "failed or cancelled before any output", Turns: 1}, {Reason: "no output", Turns: 2}, {Reason: "refused by the gateway", Turns: 1}},
		Notes:   []traces.NoteCount{{Note: "output cut short by a failure or by the client", Count: 1}, {Note: "prompts hashed by byte", Count: 1}}}
	if diff := cmp.Diff(want, tr.Report); diff != "" {
		t.Errorf("report (-expected +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"model"}, tr.Models); diff != "" {
		t.Errorf("models (-expected +got):\n%s", diff)
	}
	if s := x.r.Stats(); s.Turns != 1 || s.DroppedOther != 6 || s.Files != 1 {
		t.Errorf("%+v", s)
	}
}

// No text that a client sent is in the file, and nothing that could be linked to it.
func TestNoTextInTheFile(t *testing.T) {
	x := newFeed(t, nil)
	x.send("needle-session", 12345, count(0, 10), 1, 1, 2)
	x.read()
	files, _ := filepath.Glob(filepath.Join(x.dir, "*"))
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte("needle")) || bytes.Contains(raw, secret) {
		t.Error("the session's name is in the file")
	}
}

func TestVerifyFindsTexts(t *testing.T) {
	good := func() *traces.Trace {
		tree := &prefix.Tree{}
		tree.Root()
		return &traces.Trace{Name: "recorded", Tree: tree, Models: []string{"m"}, Report: traces.Report{Format: "sluice gateway"},
			Sessions: []traces.Session{{Name: "s0", Group: -1, Threads: 1, Turns: []traces.Turn{{Number: 1, Prompt: prefix.Prefix{Tokens: 3}, OutputTokens: 1}}}}}
	}
	for name, change := range map[string]func(*traces.Trace){
		"":                         func(*traces.Trace) {},
		"a name":                   func(tr *traces.Trace) { tr.Name = "of Alice" },
		"a format":                 func(tr *traces.Trace) { tr.Report.Format = "of Alice" },
		"a session's name":         func(tr *traces.Trace) { tr.Sessions[0].Name = "alice" },
		"a model with a text":      func(tr *traces.Trace) { tr.Models[0] = "the model of alice" },
		"a group":                  func(tr *traces.Trace) { tr.Groups, tr.Sessions[0].Group = []string{"alice"}, 0 },
		"a group that nobody uses": func(tr *traces.Trace) { tr.Groups = []string{"alice"} },
		"a reason":                 func(tr *traces.Trace) { tr.Report.Dropped = []traces.DropCount{{Reason: "alice", Turns: 1}} },
		"a note":                   func(tr *traces.Trace) { tr.Report.Notes = []traces.NoteCount{{Note: "alice", Count: 1}} },
	} {
		tr := good()
		change(tr)
		var b bytes.Buffer
		if err := traces.WriteNative(&b, tr); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "f.parquet")
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Verify(path)
		if (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil && strings.Contains(strings.ToLower(err.Error()), "alice") {
			t.Errorf("%q: the text stands in the error: %v", name, err)
		}
	}
	if err := Verify(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was verified")
	}
}

// Bytes that no reader looks at are found as well.
func TestVerifyFindsWhatIsHidden(t *testing.T) {
	x := newFeed(t, nil)
	x.send("a", 0, count(0, 10), 1, 1, 2)
	x.read()
	files, _ := filepath.Glob(filepath.Join(x.dir, "*"))
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := 4; i < len(raw)-4; i += 7 {
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		if err := os.WriteFile(files[0], bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if Verify(files[0]) == nil {
			t.Fatalf("byte %d of %d was changed and nobody noticed", i, len(raw))
		}
	}
}

func TestSampleIsBySession(t *testing.T) {
	x := newFeed(t, func(c *Config) { c.Sample = .3 })
	for s := range 300 {
		for k := range 3 {
			x.send(fmt.Sprint(s), 0, count(int32(100*s), 10+4*k), 1, float64(3*s+k), float64(3*s+k)+.5)
		}
	}
	tr := x.read()
	if n := len(tr.Sessions); n < 50 || n > 130 {
		t.Errorf("%d sessions of 300, expected about 90", n)
	}
	for i := range tr.Sessions {
		if len(tr.Sessions[i].Turns) != 3 {
			t.Errorf("session %d has %d turns, expected 3", i, len(tr.Sessions[i].Turns))
		}
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	good := Config{Dir: t.TempDir(), Secret: secret, BlockTokens: 16}
	for name, change := range map[string]func(*Config){
		"no folder": func(c *Config) { c.Dir = "" }, "a short secret": func(c *Config) { c.Secret = nil }, "a sample of two": func(c *Config) { c.Sample = 2 },
		"a negative sample": func(c *Config) { c.Sample = -1 }, "no blocks": func(c *Config) { c.BlockTokens = 0 },
		"a folder that is a file": func(c *Config) {
			c.Dir = filepath.Join(t.TempDir(), "f")
			os.WriteFile(c.Dir, nil, 0o600)
		},
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// Files are bounded in length and number, and each is a trace of its own.
func TestRotation(t *testing.T) {
	x := newFeed(t, func(c *Config) { c.FileTurns, c.Files = 10, 3 })
	for s := range 100 {
		name := fmt.Sprint(s)
		x.send(name, 0, join(count(0, 8), count(int32(100+10*s), 8)), 1, float64(s), float64(s)+.5)
		x.r.EndSession(name)
	}
	if err := x.r.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(x.dir, "*"))
	if len(files) != 3 || filepath.Base(files[2]) != "recorded-000010.parquet" {
		t.Fatalf("files %v", files)
	}
	for _, f := range files {
		tr, err := traces.ReadNative(f, traces.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.Sessions) != 10 || tr.Sessions[0].StartNS != 0 || tr.Tree.Len() != 10 || tr.Tree.Stream(9).ForkAt != 8 {
			t.Errorf("%s: %d sessions from %d ns, %d streams", f, len(tr.Sessions), tr.Sessions[0].StartNS, tr.Tree.Len())
		}
	}
	again, err := New(Config{Dir: x.dir, Secret: secret, BlockTokens: block})
	if err != nil {
		t.Fatal(err)
	}
	again.Record(Turn{Session: "a", Path: content.Path{{Upto: 5}}, PromptTokens: 5, OutputTokens: 1})
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(x.dir, "recorded-000011.parquet")); err != nil {
		t.Errorf("another process does not go on counting: %v", err)
	}
}

func TestTimeEndsSessionsAndFiles(t *testing.T) {
	r := &Recorder{cfg: Config{Dir: t.TempDir(), Secret: secret, BlockTokens: block, Idle: time.Minute, FileAge: 5 * time.Minute}}
	if err := r.cfg.check(); err != nil {
		t.Fatal(err)
	}
	w, err := newWriter(&r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	o := newOpen(r)
	begun := o.file.begun
	turn := Turn{Session: "a", Path: content.Path{{Upto: 5}}, PromptTokens: 5, OutputTokens: 1}
	r.take(w, o, &note{turn: turn})
	r.take(w, o, &note{turn: turn})
	r.pass(w, o, begun.Add(50*time.Second))
	if s := r.Stats(); s.OpenSessions != 1 || s.OpenTurns != 2 {
		t.Errorf("a session that was heard of 50 s ago: %+v", s)
	}
	r.pass(w, o, begun.Add(62*time.Second))
	if s := r.Stats(); s.OpenSessions != 0 || s.OpenTurns != 0 || s.Files != 0 {
		t.Errorf("a session that was heard of more than a minute ago: %+v", s)
	}
	r.pass(w, o, begun.Add(301*time.Second))
	if s := r.Stats(); s.Files != 1 {
		t.Errorf("after five minutes: %+v", s)
	}
}

// Nobody waits for the recorder, and it does not grow: what has no room is dropped and counted.
func TestBounds(t *testing.T) {
	x := newFeed(t, func(c *Config) { c.OpenTurns = 50 })
	for k := range 10 {
		for s := range 10 {
			x.send(fmt.Sprint(s), 0, count(int32(1000*s), 8+4*k), 1, float64(10*k+s), float64(10*k+s)+.1)
		}
	}
	tr := x.read()
	s := x.r.Stats()
	if s.DroppedOpen == 0 || s.Turns+s.DroppedOpen != 100 || int(s.Turns) != tr.Turns() || s.OpenTurns != 0 || s.OpenSessions != 0 {
		t.Errorf("%+v, %d turns in the file", s, tr.Turns())
	}
	{
		r, err := New(Config{Dir: t.TempDir(), Secret: secret, BlockTokens: block, Queue: 4})
		if err != nil {
			t.Fatal(err)
		}
		dropped := 0
		for range 1000 { // faster than anybody reads
			if !r.Record(Turn{Session: "a", Path: content.Path{{Upto: 5}}, PromptTokens: 5, OutputTokens: 1}) {
				dropped++
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if s := r.Stats(); s.DroppedQueue != int64(dropped) || s.Turns+s.DroppedQueue != 1000 {
			t.Errorf("%+v, %d dropped", s, dropped)
		}
	}
}

func TestAFolderThatVanishes(t *testing.T) {
	x := newFeed(t, nil)
	x.send("a", 0, count(0, 10), 1, 1, 2)
	if err := os.RemoveAll(x.dir); err != nil {
		t.Fatal(err)
	}
	if err := x.r.Close(); err == nil {
		t.Error("a trace that could not be written was no error")
	}
	if s := x.r.Stats(); s.Failed != 1 || s.Files != 0 {
		t.Errorf("%+v", s)
	}
}
