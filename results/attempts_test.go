package results

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawTurns draws turns of a few sessions with retries, refusals and missing times, in any order.
func drawTurns(t *rapid.T) []Turn {
	var turns []Turn
	number := rapid.Int32Range(0, 400_000)
	for i := range rapid.IntRange(1, 150).Draw(t, "turns") {
		attempts := rapid.SampledFrom([]int32{1, 1, 1, 2, 3}).Draw(t, "attempts")
		for k := int32(1); k <= attempts; k++ {
			row := Turn{Session: int32(i % 7), Number: int32(i/7 + 1), Attempt: k, Final: k == attempts, Replica: -1, PrefillReplica: -1,
				Class: rapid.Int32Range(0, 2).Draw(t, "class"), PromptTokens: number.Draw(t, "prompt"), OutputTokens: number.Draw(t, "output"),
				HitGPU: number.Draw(t, "hit"), CeilingTokens: number.Draw(t, "ceiling"), ComputedTokens: number.Draw(t, "computed"),
				WastedTokens: number.Draw(t, "wasted"), GateHolds: rapid.Int32Range(0, 2).Draw(t, "holds"), ToolGapPS: Missing,
				IdleTTFTPS: number64(t, "idle ttft"), IdleTPOTPS: number64(t, "idle tpot"), ITLMaxPS: Missing,
				AdmitReason: rapid.SampledFrom([]string{"open", "window"}).Draw(t, "reason"),
				Outcome:     rapid.SampledFrom([]Outcome{Finished, Finished, Rejected, TimedOut}).Draw(t, "outcome")}
			at := int64(0)
			for _, p := range []*int64{&row.ArrivalPS, &row.AdmittedPS, &row.SentPS, &row.ScheduledPS, &row.FirstTokenPS, &row.DonePS} {
				at += number64(t, "step")
				*p = at
			}
			if row.Outcome != Finished {
				row.FirstTokenPS = Missing
			}
			turns = append(turns, row)
		}
	}
	return rapid.Permutation(turns).Draw(t, "order")
}

func number64(t *rapid.T, label string) int64 { return rapid.Int64Range(0, 50*second).Draw(t, label) }

// spilling makes a writer's attempts go to the file after a few.
func spilling(w *Writer) {
	w.collector.attempts.chunkRows, w.collector.attempts.keep = 7, 2
}

func writeTurns(dir string, turns []Turn, fsys FS, prepare func(*Writer)) (*Summary, error) {
	w, err := Create(dir, smallInfo(), Options{FS: fsys})
	if err != nil {
		return nil, err
	}
	prepare(w)
	r := newSmallRun()
	r.turns = turns
	for i := range int32(7) {
		r.sessions = append(r.sessions, Session{Session: i, StartPS: int64(i) * second, EndPS: 90 * second, Complete: i%2 == 0})
	}
	if err := r.into(w); err != nil {
		w.Abort()
		return nil, err
	}
	return w.Finish(&r.totals)
}

// Results are the same, byte for byte, when attempts go through a file.
func TestSpilledResults(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		turns := drawTurns(t)
		var folders []map[string][]byte
		for _, prepare := range []func(*Writer){func(*Writer) {}, spilling} {
			dir := filepath.Join(base, "run")
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := writeTurns(dir, turns, &failingFS{}, prepare); err != nil {
				t.Fatal(err)
			}
			files := map[string][]byte{}
			names, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if files[name.Name()], err = os.ReadFile(filepath.Join(dir, name.Name())); err != nil {
					t.Fatal(err)
				}
			}
			folders = append(folders, files)
		}
		if len(folders[0]) != 5 || len(folders[1]) != 5 {
			t.Fatalf("%d and %d files, expected 5", len(folders[0]), len(folders[1]))
		}
		for name, want := range folders[0] {
			if !bytes.Equal(want, folders[1][name]) {
				t.Fatalf("%s differs: %s", name, cmp.Diff(string(want), string(folders[1][name])))
			}
		}
	})
}

// scratchFS gives out scratch files of which the n-th use fails, and counts the uses.
type scratchFS struct {
	failingFS
	n, uses, open int
}

func (f *scratchFS) fail() error {
	f.uses++
	if f.uses == f.n {
		return errInjected
	}
	return nil
}

func (f *scratchFS) Scratch(dir string) (Scratch, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	file, err := f.OS.Scratch(dir)
	f.open++
	return &failingScratch{file, f}, err
}

type failingScratch struct {
	Scratch
	fs *scratchFS
}

func (f *failingScratch) Write(p []byte) (int, error) {
	if err := f.fs.fail(); err != nil {
		return 0, err
	}
	return f.Scratch.Write(p)
}

func (f *failingScratch) ReadAt(p []byte, at int64) (int, error) {
	if err := f.fs.fail(); err != nil {
		return 0, err
	}
	return f.Scratch.ReadAt(p, at)
}

func (f *failingScratch) Close() error {
	f.fs.open--
	return errors.Join(f.Scratch.Close(), f.fs.fail())
}

// Every use of the scratch file fails once: the error is reported, the file is closed and nothing is left behind.
func TestScratchFaults(t *testing.T) {
	turns := slices.Repeat(newSmallRun().turns, 8)
	for n := 1; ; n++ {
		base := t.TempDir()
		fs := &scratchFS{n: n}
		_, err := writeTurns(filepath.Join(base, "run"), turns, fs, spilling)
		if fs.open != 0 {
			t.Errorf("fault at use %d: the scratch file stays open", n)
		}
		if fs.uses < n {
			if err != nil || n < 20 {
				t.Fatalf("%d uses without a fault: %v", n, err)
			}
			break
		}
		if !errors.Is(err, errInjected) {
			t.Errorf("fault at use %d: error %v", n, err)
		}
		if entries, _ := os.ReadDir(base); len(entries) != 0 {
			t.Errorf("fault at use %d: left behind %v", n, entries)
		}
	}
}

// A scratch file has no name, so that nothing is left when the program is killed; where it needs one, it loses it at the
// end.
func TestScratch(t *testing.T) {
	dir := t.TempDir()
	f, err := OS{}.Scratch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Logf("a file that is open keeps its name here: %v", names)
	}
	var got [2]byte
	if _, err := f.Write([]byte("abcd")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(got[:], 1); err != nil || string(got[:]) != "bc" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	file, err := os.CreateTemp(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := (named{file}).Close(); err != nil {
		t.Error(err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
	if _, err := (OS{}).Scratch(filepath.Join(dir, "absent")); err == nil {
		t.Error("a scratch file in a folder that does not exist")
	}
}

// The groups of a sorter hold what a plain sort of each group gives.
func TestSorter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Bool().Draw(t, "seconds")
		digits := rapid.Int64Range(0, 1<<rapid.IntRange(0, 62).Draw(t, "width"))
		far := rapid.SampledFrom([]int64{0, 0, 1 << 62}).Draw(t, "far") // most values differ in their lower digits only
		var s sorter
		want := map[int][]float64{}
		for range rapid.IntRange(1, 2).Draw(t, "uses") { // it is used again
			s.reset(seconds)
			clear(want)
			for range rapid.IntRange(0, 300).Draw(t, "values") {
				window, group := rapid.Uint32Range(0, 3).Draw(t, "windows"), rapid.IntRange(0, 4).Draw(t, "group")
				key, v := uint64(0), 0.0
				if seconds {
					ps := digits.Draw(t, "ps")
					if rapid.IntRange(0, 99).Draw(t, "is far") == 0 {
						ps |= far
					}
					key, v = keyOfPS(ps), Seconds(ps)
				} else {
					v = rapid.Float64().Draw(t, "value")
					key = keyOf(v)
				}
				s.add(key, window|field{2, 7}.tag(group))
				if window&inWindow(1) != 0 {
					want[group] = append(want[group], v)
				}
			}
			s.sort()
		}
		s.groups(inWindow(1), field{2, 7}, 5, func(group int, bits []uint64) {
			if len(bits) != len(want[group]) {
				t.Fatalf("group %d: %d values, expected %d", group, len(bits), len(want[group]))
			}
			got := make([]float64, len(bits))
			for i, b := range bits {
				got[i] = math.Float64frombits(b)
			}
			slices.Sort(want[group])
			if !slices.Equal(got, want[group]) {
				t.Fatalf("group %d: %v, expected %v", group, got, want[group])
			}
			if d := cmp.Diff(distOf(want[group]), distOfBits(bits)); d != "" {
				t.Fatal(d)
			}
		})
	})
}

// A last attempt whose former attempt never came counts from its own arrival.
func TestAttemptWithoutItsFormer(t *testing.T) {
	r := newSmallRun()
	r.turns = slices.Delete(r.turns, 1, 2)
	s := collect(t, r, smallInfo())
	checkMetrics(t, s, map[string]float64{"whole.ttft_s.n": 3, "whole.ttft_s.max": 3, "conservation.attempts": 4})
}

func TestSessionNumbers(t *testing.T) {
	c := NewCollector(smallInfo())
	for _, session := range []int32{-1, maxSessions} {
		if err := c.Turn(&Turn{Session: session}); err == nil || !strings.Contains(err.Error(), "expected 0 to") {
			t.Errorf("a turn of session %d: %v", session, err)
		}
		if err := c.Session(&Session{Session: session}); err == nil || !strings.Contains(err.Error(), "expected 0 to") {
			t.Errorf("session %d: %v", session, err)
		}
	}
}
