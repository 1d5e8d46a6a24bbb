package traces

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
)

// sameAsHeld holds a source to the trace in memory that it should be, in two readings.
func sameAsHeld(t rapid.TB, name string, want *Trace, src Source) {
	for range 2 {
		got, err := Hold(src)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(prefix.Tree{})); diff != "" {
			t.Fatalf("%s is not the trace in memory (-memory +source):\n%s", name, diff[:min(len(diff), 3000)])
		}
	}
	if diff := cmp.Diff(want.About(), src.About(), cmp.AllowUnexported(prefix.Tree{})); diff != "" {
		t.Fatalf("%s says of itself something else (-memory +source):\n%s", name, diff[:min(len(diff), 3000)])
	}
	digest, err := Digest(src)
	if err != nil || digest != want.Digest() {
		t.Fatalf("%s: digest %s (%v), expected %s", name, digest, err, want.Digest())
	}
}

// TestSources holds generated and native sources, whole, cut and headed, to Generate and to what is done to it in memory.
func TestSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.parquet")
	rapid.Check(t, func(t *rapid.T) {
		preset := rapid.SampledFrom(presets).Draw(t, "preset")
		p := Params{"sessions": Num(float64(rapid.IntRange(1, 5).Draw(t, "sessions")))}
		switch preset.Name {
		case "swe-rollout":
			p = Params{"prompts": Num(float64(rapid.IntRange(1, 4).Draw(t, "prompts"))), "samples": Num(3)}
		case "claude-code":
			p["turn_cap"], p["group_tokens"], p["thinking_strip"] = Num(40), Num(500), Num(.2)
		case "bailian-agentic":
			p["turn_cap"], p["fork_share"], p["fork_window"] = Num(30), Num(.5), Num(float64(rapid.IntRange(1, 30).Draw(t, "window")))
		}
		seed := rapid.Uint64().Draw(t, "seed")
		tr, err := Generate(preset.Name, seed, p)
		if err != nil {
			t.Fatal(err)
		}
		made, err := GenerateSource(preset.Name, seed, p)
		if err != nil {
			t.Fatal(err)
		}
		sameAsHeld(t, "generated", tr, made)

		var fromMemory, fromSource bytes.Buffer
		if err := WriteNative(&fromMemory, tr); err != nil {
			t.Fatal(err)
		}
		if err := WriteNative(&fromSource, made); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(fromMemory.Bytes(), fromSource.Bytes()) {
			t.Fatal("the file of a generated source is not that of the trace")
		}
		if err := os.WriteFile(file, fromSource.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := ReadNative(file, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		native, err := NativeSource(file, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		sameAsHeld(t, "native", read, native)

		most := rapid.SampledFrom([]int32{1, 5_000, 30_000, 1 << 30}).Draw(t, "context")
		n := rapid.IntRange(0, 30).Draw(t, "head")
		for name, x := range map[string]struct {
			memory *Trace
			source Source
		}{"generated": {tr, made}, "native": {read, native}} {
			cut, err := DropOver(x.source, most)
			if err != nil {
				t.Fatal(err)
			}
			sameAsHeld(t, name+" cut", DropOverContext(x.memory, most), cut)
			head, err := HeadOf(x.source, n)
			if err != nil {
				t.Fatal(err)
			}
			sameAsHeld(t, name+" headed", Head(x.memory, n), head)
		}
	})
}

// TestDropOverKnowsTheMedian drops a turn of a session without service times, which takes the median of all others.
func TestDropOverKnowsTheMedian(t *testing.T) {
	for _, name := range []string{"kv-models.json", "kv-subagents.json", "mooncake.jsonl"} {
		tr, err := Open(filepath.Join("testdata", name), "", Options{})
		if err != nil {
			t.Fatal(err)
		}
		for most := int32(1); most < 200_000; most = most*3/2 + 1 {
			// In a source that is no Trace.
			src, err := DropOver(&dropping{Source: tr, about: *tr.About(), drop: longerThan(1 << 30)}, most)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Hold(src)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(DropOverContext(tr, most), got, cmp.AllowUnexported(prefix.Tree{})); diff != "" {
				t.Fatalf("%s below %d tokens differs (-memory +source):\n%s", name, most, diff[:min(len(diff), 3000)])
			}
		}
	}
}

// TestNativeSourceDamage changes every 7th byte of a file.
func TestNativeSourceDamage(t *testing.T) {
	tr, err := Open(filepath.Join("testdata", "kv-models.json"), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var good bytes.Buffer
	if err := WriteNative(&good, tr); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trace.parquet")
	write := func(b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < good.Len(); i += 7 {
		bad := bytes.Clone(good.Bytes())
		bad[i] ^= 1
		write(bad)
		if _, err := NativeSource(file, Limits{}); err == nil {
			t.Fatalf("byte %d of %d is wrong and nothing was said", i, good.Len())
		}
	}
	for n := 0; n < good.Len(); n += 97 {
		write(good.Bytes()[:n])
		if _, err := NativeSource(file, Limits{}); err == nil {
			t.Fatalf("a file of %d bytes instead of %d was read", n, good.Len())
		}
	}
}

// TestSurvey holds what a survey says to every turn of every session, one by one.
func TestSurvey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		preset := rapid.SampledFrom([]string{"bailian-agentic", "claude-code", "bench"}).Draw(t, "preset")
		p := Params{"sessions": Num(float64(rapid.IntRange(1, 8).Draw(t, "sessions")))}
		if preset != "bench" {
			p["turn_cap"] = Num(30)
		}
		tr, err := Generate(preset, rapid.Uint64().Draw(t, "seed"), p)
		if err != nil {
			t.Fatal(err)
		}
		limit := rapid.Int64Range(1, 50_000).Draw(t, "limit")
		over, inOrder, last := int64(0), true, Unknown
		has := map[prefix.StreamID]map[int]bool{}
		for i := range tr.Sessions {
			s := &tr.Sessions[i]
			s.StartNS = rapid.Int64Range(-1, 3).Draw(t, "start")
			inOrder, last = inOrder && s.StartNS >= last, s.StartNS
			for j := range s.Turns {
				if s.Turns[j].tokens() > limit {
					over++
				}
				for st := s.Turns[j].Prompt.Stream; st != prefix.None; st = tr.Tree.Stream(st).Parent {
					if has[st] == nil {
						has[st] = map[int]bool{}
					}
					has[st][i] = true
				}
			}
		}
		v, err := NewSurvey(context.Background(), tr, 16, limit)
		if err != nil {
			t.Fatal(err)
		}
		if v.OverLimit != over || v.InOrder != inOrder || v.Sessions != len(tr.Sessions) || v.Turns != int64(tr.Turns()) {
			t.Fatalf("survey %+v, expected %d turns over the limit, in order %v", v, over, inOrder)
		}
		for st := range prefix.StreamID(tr.Tree.Len()) {
			if v.Shared(st) != (len(has[st]) > 1) {
				t.Fatalf("stream %d: shared %v, of %d sessions", st, v.Shared(st), len(has[st]))
			}
		}
	})
}
