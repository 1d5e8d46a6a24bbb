package traces

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/prefix"
)

// roundTrip writes and reads a trace and compares what comes back.
func roundTrip(t testing.TB, tr *Trace) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteNative(&buf, tr); err != nil {
		t.Fatal(err)
	}
	back, err := parseNative(bytes.Clone(buf.Bytes()), Limits{}.orDefault())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tr, back, cmp.AllowUnexported(prefix.Tree{})); diff != "" {
		t.Fatalf("the trace changed (-written +read):\n%s", diff[:min(len(diff), 4000)])
	}
	return buf.Bytes()
}

func TestNativeRoundTrip(t *testing.T) {
	for _, name := range []string{"kv-subagents.json", "kv-models.json", "mooncake.jsonl"} {
		tr, err := Open(filepath.Join("testdata", name), "", Options{})
		if err != nil {
			t.Fatal(err)
		}
		tr.Groups = []string{"a", "b"}
		tr.Sessions[0].Group = 1
		first, second := roundTrip(t, tr), roundTrip(t, tr)
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two writes differ", name)
		}
	}
}

func TestNativeRoundTripOfTheWholeFolder(t *testing.T) {
	tr := wholeFolder(t)
	if b := roundTrip(t, tr); len(b) > 2<<20 {
		t.Errorf("%d bytes for %d turns", len(b), tr.Turns())
	}
}

// Any single changed byte must give an error: the checksum covers the file whole.
func TestNativeDamage(t *testing.T) {
	tr, err := Open(filepath.Join("testdata", "kv-models.json"), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := roundTrip(t, tr)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x41
		if _, err := parseNative(bad, Limits{}.orDefault()); err == nil {
			t.Fatalf("byte %d changed and nobody noticed", i)
		}
	}
	for n := range len(good) {
		if _, err := parseNative(bytes.Clone(good[:n]), Limits{}.orDefault()); err == nil {
			t.Fatalf("cut to %d bytes and nobody noticed", n)
		}
	}
}

func TestNativeRefusesAnInvalidTrace(t *testing.T) {
	tr := &Trace{Tree: &prefix.Tree{}, Models: []string{"m"}, Sessions: []Session{{Threads: 1, Group: -1}}}
	if err := WriteNative(&bytes.Buffer{}, tr); err == nil {
		t.Error("a session without turns was written")
	}
}

func TestNativeLimits(t *testing.T) {
	tr, err := Open(filepath.Join("testdata", "kv-subagents.json"), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "t.parquet")
	if err := os.WriteFile(path, roundTrip(t, tr), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Limits{"Rows": {Rows: 2}, "TurnsPerSession": {TurnsPerSession: 2}, "Bytes": {Bytes: 100}} {
		_, err := Open(path, "auto", Options{Limits: l})
		wantInputError(t, err, path, "limit "+name)
	}
}

// TestNativeWithOptions: a recording that was written as it is, and gets its options when the file is read, holds what one does
// that got them at once, whether its sessions are held in memory or read when they are asked for.
func TestNativeWithOptions(t *testing.T) {
	for name, path := range map[string]func(testing.TB) string{
		"subagents": inTestdata("kv-subagents.json"), "models": inTestdata("kv-models.json"), "mooncake": inTestdata("mooncake.jsonl"),
		"the whole folder": func(t testing.TB) string { return sharedTraces(t, "kv-cache-tester/traces") },
	} {
		t.Run(name, func(t *testing.T) {
			path := path(t)
			read := func(path string, opt Options) *Trace {
				t.Helper()
				tr, err := Open(path, "", opt)
				if err != nil {
					t.Fatal(err)
				}
				return tr
			}
			file := filepath.Join(t.TempDir(), "trace.parquet")
			var buf bytes.Buffer
			if err := WriteNative(&buf, read(path, Options{})); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, buf.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			options := []Options{{IdleCapNS: 1e6}, {IdleCapNS: 60e9, Models: ModelsMain, OutputReuse: ReuseFull, SharedPrefix: SharedAuto}}
			if name != "the whole folder" {
				options = append(options, Options{}, Options{IdleCapNS: 60e9}, Options{Models: ModelsMain})
			}
			for _, opt := range options {
				later := read(file, opt)
				streamed, err := NativeSource(file, Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if streamed, err = opt.reread(file, streamed); err != nil {
					t.Fatal(err)
				}
				sameAsHeld(t, "read when asked for", later, streamed)
				opt.SharedPrefix = "" // settled in the file
				atOnce := read(path, opt)
				if diff := cmp.Diff(atOnce.Sessions, later.Sessions); diff != "" {
					t.Fatalf("%+v differs (-at once +later):\n%s", opt, diff[:min(len(diff), 4000)])
				}
				if diff := cmp.Diff(atOnce.Report.Dropped, later.Report.Dropped); diff != "" {
					t.Errorf("%+v: drops differ (-at once +later):\n%s", opt, diff)
				}
				if (note(atOnce, noteCapped) > 0) != (note(later, noteCapped) > 0) {
					t.Errorf("%+v: %d gaps capped at once, %d later", opt, note(atOnce, noteCapped), note(later, noteCapped))
				}
			}
			var in *InputError
			if _, err := Open(file, "", Options{OutputReuse: ReuseNone}); !errors.As(err, &in) || in.Key != "output_reuse" || in.File != file {
				t.Errorf("output reuse none: %v", err)
			}
		})
	}
}

func inTestdata(name string) func(testing.TB) string {
	return func(testing.TB) string { return filepath.Join("testdata", name) }
}

// TestOutputsOfTwoSessionsInOnePlace: a file in which two sessions write over each other is refused where it is held, and found
// in one that is read session by session once all of them are held.
func TestOutputsOfTwoSessionsInOnePlace(t *testing.T) {
	tr := &Trace{Tree: &prefix.Tree{}, Models: []string{"m"}}
	root := tr.Tree.Root()
	for _, name := range []string{"a", "b"} {
		tr.Sessions = append(tr.Sessions, Session{Name: name, Threads: 1, Group: -1,
			Turns: []Turn{{Number: 1, Prompt: prefix.Prefix{Stream: root, Tokens: 10}, OutputTokens: 5, DurationNS: Unknown}}})
	}
	var buf bytes.Buffer
	if err := WriteNative(&buf, &capping{Source: tr, about: *tr.About(), limitNS: 1}); err != nil { // a source that is no Trace
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trace.parquet")
	if err := os.WriteFile(file, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, "", Options{}); err == nil || !strings.Contains(err.Error(), "session 1, turn 0: its output") {
		t.Errorf("held: %v", err)
	}
	src, err := NativeSource(file, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	held, err := Hold(src)
	if err != nil {
		t.Fatal(err)
	}
	if p := Validate(held); len(p) != 1 || p[0].Session != 1 {
		t.Errorf("problems %v", p)
	}
}
