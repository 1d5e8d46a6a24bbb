package results

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

func writeSmall(dir string, opts Options) (*Summary, error) {
	r := newSmallRun()
	w, err := Create(dir, smallInfo(), opts)
	if err != nil {
		return nil, err
	}
	if err := r.into(w); err != nil {
		w.Abort()
		return nil, err
	}
	return w.Finish(&r.totals)
}

func writeSmallCompare(dir string, opts Options) error {
	c, err := CreateCompare(dir, "grid", opts)
	if err != nil {
		return err
	}
	var runs []*Summary
	for i, arm := range []string{"sticky", "l/metric"} {
		info := smallInfo()
		info.Arm = arm
		info.Varied = []Setting{{"policy.router.name", arm}}
		r := newSmallRun()
		w, err := c.Run(i, info)
		if err == nil {
			err = r.into(w)
			var s *Summary
			if err == nil {
				s, err = w.Finish(&r.totals)
				runs = append(runs, s)
			}
		}
		if err != nil {
			if w != nil {
				w.Abort()
			}
			c.Abort()
			return err
		}
	}
	_, err = c.Finish(runs)
	return err
}

func TestRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "run")
	summary, err := writeSmall(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(summary, run.Summary); d != "" {
		t.Errorf("summary.json differs from the summary: %s", d)
	}
	want, got := newSmallRun(), &smallRun{}
	err = errors.Join(
		run.Turns(func(r *Turn) error { got.turns = append(got.turns, *r); return nil }),
		run.Sessions(func(r *Session) error { got.sessions = append(got.sessions, *r); return nil }),
		run.Samples(func(r *Sample) error { got.samples = append(got.samples, *r); return nil }))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.turns, got.turns); d != "" {
		t.Errorf("turns: %s", d)
	}
	if d := cmp.Diff(want.sessions, got.sessions); d != "" {
		t.Errorf("sessions: %s", d)
	}
	if d := cmp.Diff(want.samples, got.samples); d != "" {
		t.Errorf("samples: %s", d)
	}
	scenario, err := os.ReadFile(filepath.Join(dir, ScenarioFile))
	if err != nil || string(scenario) != "version: 1\n" {
		t.Errorf("scenario.yaml: %q, %v", scenario, err)
	}
}

// The round trip writes several batches and row groups' worth of alternating nulls.
func TestManyRows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, smallInfo(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := newSmallRun()
	const n = 3*tableBatch + 17
	for i := range n {
		row := r.turns[i%len(r.turns)]
		row.Session = int32(i)
		if err := w.Turn(&row); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(&r.totals); err != nil {
		t.Fatal(err)
	}
	run, err := LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	err = run.Turns(func(row *Turn) error {
		want := r.turns[i%len(r.turns)]
		want.Session = int32(i)
		if *row != want {
			return fmt.Errorf("row %d: %s", i, cmp.Diff(want, *row))
		}
		i++
		return nil
	})
	if err != nil || i != n {
		t.Fatalf("%d rows of %d: %v", i, n, err)
	}
}

func TestColumns(t *testing.T) {
	decided := map[string]struct {
		row     any
		columns []string
	}{
		"turns": {turnColumns{}, []string{"run", "arm", "session", "thread", "turn", "attempt", "class", "group", "replica",
			"prefill_replica", "arrival_s", "admitted_s", "sent_s", "scheduled_s", "first_token_s", "done_s", "outcome",
			"admit_reason", "route_reason", "gate_wait_s", "prompt_tokens", "output_tokens", "hit_gpu_tokens",
			"hit_cpu_tokens", "hit_global_tokens", "computed_tokens", "ceiling_tokens", "wasted_tokens", "waste_cause",
			"preemptions", "itl_max_s", "tool_gap_s"}},
		"sessions": {sessionColumns{}, []string{"run", "arm", "session", "start_s", "end_s", "turns", "finished_turns",
			"prompt_tokens", "output_tokens", "computed_tokens", "gate_wait_s", "attempts_preempted", "replicas_used",
			"outcome"}},
		"replicas": {sampleColumns{}, []string{"run", "arm", "replica", "t_s", "running", "waiting", "usage",
			"resident_tokens", "cpu_tokens", "in_flight", "computed_tokens", "output_tokens", "hit_tokens",
			"evicted_tokens", "busy_s", "preemptions"}},
	}
	for name, d := range decided {
		have := map[string]parquet.Type{}
		for _, f := range parquet.SchemaOf(d.row).Fields() {
			have[f.Name()] = f.Type()
		}
		for _, column := range d.columns {
			typ, ok := have[column]
			if !ok {
				t.Errorf("%s.parquet: no column %s", name, column)
			} else if len(column) > 2 && column[len(column)-2:] == "_s" && typ.Kind() != parquet.Double {
				t.Errorf("%s.parquet: column %s is %v, expected float64 seconds", name, column, typ)
			}
		}
	}
}

// Any reader that takes the columns from the file itself sees nulls, integers and strings.
func TestForeignReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := writeSmall(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.ReadFile[any](filepath.Join(dir, TurnsFile))
	if err != nil {
		t.Fatal(err)
	}
	last := reflect.ValueOf(rows[4])
	get := func(key string) any { return last.MapIndex(reflect.ValueOf(key)).Interface() }
	if got := get("arrival_s"); got != nil {
		t.Errorf("arrival_s of a turn that never arrived: %v, expected null", got)
	}
	if got := get("replica"); got != nil {
		t.Errorf("replica of a turn that was never dispatched: %v, expected null", got)
	}
	if got := fmt.Sprint(get("outcome")); got != "unstarted" {
		t.Errorf("outcome: %v", got)
	}
	if got := get("turn"); got != int32(2) {
		t.Errorf("turn: %v (%T), expected the integer 2", got, got)
	}
	first := reflect.ValueOf(rows[0])
	if got := first.MapIndex(reflect.ValueOf("arrival_s")).Interface(); got != 0.0 {
		t.Errorf("arrival_s of the first turn: %v, expected 0 and not null", got)
	}
}

func folderBytes(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		files[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSameBytes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := writeSmallCompare(filepath.Join(dir, name), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := folderBytes(t, filepath.Join(dir, "a")), folderBytes(t, filepath.Join(dir, "b"))
	if len(a) != 11 || len(a) != len(b) {
		t.Errorf("%d and %d files, expected 11", len(a), len(b))
	}
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s differs between two writings of the same rows", name)
		}
	}
}

func TestExistingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := writeSmall(dir, Options{}); err != nil {
		t.Fatalf("an empty folder: %v", err)
	}
	if _, err := writeSmall(dir, Options{}); !errors.Is(err, ErrExists) {
		t.Fatalf("an existing folder: %v, expected ErrExists", err)
	}
	mine := filepath.Join(dir, "mine")
	if err := os.Mkdir(mine, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := writeSmall(dir, Options{Replace: true}); !errors.Is(err, ErrForeignFile) || !strings.Contains(err.Error(), "mine") {
		t.Fatalf("%v, expected ErrForeignFile and its name", err)
	}
	if err := os.Remove(mine); err != nil {
		t.Error("a folder that sluice did not write is gone")
	}
	old, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeSmall(dir, Options{Replace: true}); err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(dir); err != nil || os.SameFile(old, now) {
		t.Errorf("the folder is the old one (%v)", err)
	}
	entries, _ := os.ReadDir(filepath.Dir(dir))
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	foreign := t.TempDir()
	if err := os.Mkdir(filepath.Join(foreign, "work"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := writeSmall(foreign, Options{Replace: true}); !errors.Is(err, ErrForeign) {
		t.Errorf("a folder without results: %v, expected ErrForeign", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := writeSmall(file, Options{Replace: true}); err == nil {
		t.Error("a file is replaced by a folder")
	}
}

// A folder that somebody else completed in the meantime stays.
func TestLostRace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r := newSmallRun()
	w, err := Create(dir, smallInfo(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.send(t, w)
	if _, err := writeSmall(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	before := folderBytes(t, dir)
	if _, err := w.Finish(&r.totals); !errors.Is(err, ErrExists) {
		t.Errorf("the second of two: %v, expected ErrExists", err)
	}
	if after := folderBytes(t, filepath.Dir(dir)); len(after) != len(before) {
		t.Errorf("%d files, expected %d", len(after), len(before))
	}
}

func TestAbort(t *testing.T) {
	base := t.TempDir()
	w, err := Create(filepath.Join(base, "x", "run"), smallInfo(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	newSmallRun().send(t, w)
	w.Abort()
	w.Abort()
	if entries, _ := os.ReadDir(base); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

var errInjected = errors.New("injected")

// failingFS fails the n-th call that changes something; removals always work. It does not wait for the disk.
type failingFS struct {
	OS
	n     int
	calls []string
}

func (f *failingFS) fail(call string) error {
	f.calls = append(f.calls, call)
	if len(f.calls) == f.n {
		return errInjected
	}
	return nil
}

func (f *failingFS) Mkdir(path string) error {
	if err := f.fail("mkdir " + path); err != nil {
		return err
	}
	return f.OS.Mkdir(path)
}

func (f *failingFS) Create(path string) (File, error) {
	if err := f.fail("create " + path); err != nil {
		return nil, err
	}
	file, err := f.OS.Create(path)
	return &failingFile{file, f}, err
}

func (f *failingFS) Rename(from, to string) error {
	if err := f.fail("rename " + from); err != nil {
		return err
	}
	return f.OS.Rename(from, to)
}

func (f *failingFS) SyncDir(path string) error { return f.fail("sync folder " + path) }

type failingFile struct {
	File
	fs *failingFS
}

func (f *failingFile) Write(p []byte) (int, error) {
	if err := f.fs.fail("write"); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *failingFile) Sync() error { return f.fs.fail("sync") }

func (f *failingFile) Close() error {
	err := f.File.Close()
	return errors.Join(f.fs.fail("close"), err)
}

// Every call of the file system fails once: the error is reported and nothing is left behind.
func TestFaults(t *testing.T) {
	for name, write := range map[string]func(string, Options) error{
		"run":     func(dir string, o Options) error { _, err := writeSmall(dir, o); return err },
		"compare": writeSmallCompare,
	} {
		for n := 1; ; n++ {
			base := t.TempDir()
			fs := &failingFS{n: n}
			err := write(filepath.Join(base, "made", "run"), Options{FS: fs})
			if len(fs.calls) < n {
				if err != nil || n < 20 {
					t.Fatalf("%s: %d calls without a fault: %v", name, n, err)
				}
				break
			}
			if !errors.Is(err, errInjected) {
				t.Errorf("%s: fault at %q: error %v", name, fs.calls[n-1], err)
			}
			if entries, _ := os.ReadDir(base); len(entries) != 0 {
				t.Errorf("%s: fault at %q: left behind %v", name, fs.calls[n-1], entries)
			}
		}
	}
}

// A fault while replacing a folder leaves the old one as it was.
func TestFaultsWhileReplacing(t *testing.T) {
	for n := 1; ; n++ {
		base := t.TempDir()
		mine := filepath.Join(base, "run", "mine")
		if err := os.MkdirAll(mine, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, "run", SummaryFile), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		fs := &failingFS{n: n}
		_, err := writeSmall(filepath.Join(base, "run"), Options{FS: fs, Replace: true})
		if len(fs.calls) < n {
			break
		}
		if !errors.Is(err, errInjected) {
			t.Errorf("fault at %q: error %v", fs.calls[n-1], err)
		}
		if _, err := os.Stat(mine); err != nil {
			t.Errorf("fault at %q: the old folder is gone: %v", fs.calls[n-1], err)
		}
		if entries, _ := os.ReadDir(base); len(entries) != 1 {
			t.Errorf("fault at %q: left behind %v", fs.calls[n-1], entries)
		}
	}
}

func TestDamagedParquet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := writeSmall(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, SessionsFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	run := &Run{Dir: dir}
	read := func() error { return run.Sessions(func(*Session) error { return nil }) }
	for _, size := range []int{0, 3, 11, 12, len(good) / 2, len(good) - 1} {
		if err := os.WriteFile(path, good[:size], 0o666); err != nil {
			t.Fatal(err)
		}
		if read() == nil {
			t.Errorf("truncated to %d of %d bytes: no error", size, len(good))
		}
	}
	// changing a byte may go unnoticed, but never ends the process
	for at := 4; at < len(good)-8; at += 37 {
		bad := bytes.Clone(good)
		bad[at] ^= 0x5a
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		_ = read()
	}
}

func TestMissingColumn(t *testing.T) {
	dir := t.TempDir()
	rows := []struct {
		Session int32 `parquet:"session"`
	}{{1}}
	if err := parquet.WriteFile(filepath.Join(dir, SessionsFile), rows); err != nil {
		t.Fatal(err)
	}
	run := &Run{Dir: dir}
	if err := run.Sessions(func(*Session) error { return nil }); err == nil {
		t.Error("a file without most columns reads without an error")
	}
}

func TestLoadEither(t *testing.T) {
	base := t.TempDir()
	if _, err := writeSmall(filepath.Join(base, "run"), Options{}); err != nil {
		t.Fatal(err)
	}
	if err := writeSmallCompare(filepath.Join(base, "compare"), Options{}); err != nil {
		t.Fatal(err)
	}
	for dir, arms := range map[string]int{"run": 1, "compare": 2} {
		c, err := Load(filepath.Join(base, dir))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Arms) != arms {
			t.Errorf("%s: %d arms, expected %d", dir, len(c.Arms), arms)
		}
		for i := range c.Arms {
			run, err := c.Run(i, 0)
			if err != nil {
				t.Fatal(err)
			}
			rows := 0
			if err := run.Turns(func(*Turn) error { rows++; return nil }); err != nil || rows != 5 {
				t.Errorf("%s: arm %d: %d rows, %v", dir, i, rows, err)
			}
		}
	}
	if _, err := Load(base); err == nil {
		t.Error("a folder without results loads")
	}
}
