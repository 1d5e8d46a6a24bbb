package traces

import (
	"context"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
)

// ceilings is the ceiling of every session and turn.
func ceilings(tr *Trace, block int32) [][]int32 {
	v, err := NewSurvey(context.Background(), tr, block, 1<<62)
	if err != nil {
		panic(err) // memory can be read
	}
	c := NewCeiling(v)
	out := make([][]int32, len(tr.Sessions))
	for i := range tr.Sessions {
		out[i] = c.Of(int32(i), &tr.Sessions[i], nil)
	}
	return out
}

// slowCeiling compares every block of every prompt with the content of every turn that may have computed it.
func slowCeiling(tr *Trace, block int32) [][]int32 {
	out := make([][]int32, len(tr.Sessions))
	for i := range tr.Sessions {
		for t := range tr.Sessions[i].Turns {
			turn := &tr.Sessions[i].Turns[t]
			hit := int32(0)
			for b := int32(0); (b+1)*block <= turn.Prompt.Tokens-1; b++ {
				if !computedElsewhere(tr, i, t, (b+1)*block, block) {
					break
				}
				hit = (b + 1) * block
			}
			out[i] = append(out[i], hit)
		}
	}
	return out
}

// computedElsewhere says whether another turn, which need not come later, computes the same tokens up to end in full blocks.
func computedElsewhere(tr *Trace, session, turn int, end, block int32) bool {
	q := &tr.Sessions[session].Turns[turn]
	for i := range tr.Sessions {
		for t := range tr.Sessions[i].Turns {
			o := &tr.Sessions[i].Turns[t]
			if i == session && t >= turn && o.Thread == q.Thread && chained(&tr.Sessions[i], turn, t) {
				continue
			}
			content := prefix.Prefix{Stream: o.Prompt.Stream, Tokens: o.Prompt.Tokens + o.OutputTokens - 1}
			content.Tokens = content.Tokens / block * block
			if tr.Tree.Common(content, q.Prompt) >= end {
				return true
			}
		}
	}
	return false
}

// chained says whether every turn of the thread after from, up to to, waits for the one before it.
func chained(s *Session, from, to int) bool {
	before := from
	for i := from + 1; i <= to; i++ {
		if s.Turns[i].Thread != s.Turns[from].Thread {
			continue
		}
		waits := false
		for _, d := range s.Deps[s.Turns[i].DepLo:s.Turns[i].DepHi] {
			waits = waits || d == Dep{Turn: int32(before), On: OnCompletion}
		}
		if !waits {
			return false
		}
		before = i
	}
	return true
}

// anyTrace draws a small trace over a small tree: forks anywhere, threads and sessions mixed, outputs anywhere.
func anyTrace(t *rapid.T) *Trace {
	tr := &Trace{Tree: &prefix.Tree{}, Models: []string{"m"}}
	tr.Tree.Root()
	for range rapid.IntRange(0, 6).Draw(t, "streams") {
		parent := prefix.StreamID(rapid.IntRange(0, tr.Tree.Len()-1).Draw(t, "parent"))
		tr.Tree.Fork(prefix.Prefix{Stream: parent, Tokens: rapid.Int32Range(0, 30).Draw(t, "fork")})
	}
	for range rapid.IntRange(1, 3).Draw(t, "sessions") {
		s := Session{Group: -1, Threads: rapid.Int32Range(1, 3).Draw(t, "threads")}
		numbers, last := make([]int32, s.Threads), make([]int32, s.Threads)
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			thread := rapid.Int32Range(0, s.Threads-1).Draw(t, "thread")
			numbers[thread]++
			st := prefix.StreamID(rapid.IntRange(0, tr.Tree.Len()-1).Draw(t, "stream"))
			fork := tr.Tree.Stream(st).ForkAt
			lo := int32(len(s.Deps))
			if numbers[thread] > 1 && rapid.IntRange(0, 3).Draw(t, "waits") > 0 {
				s.Deps = append(s.Deps, Dep{Turn: last[thread], On: OnCompletion})
			} else if numbers[thread] > 1 {
				s.Deps = append(s.Deps, Dep{Turn: last[thread], On: OnDispatch})
			}
			last[thread] = int32(len(s.Turns))
			s.Turns = append(s.Turns, Turn{Thread: thread, Number: numbers[thread], DepLo: lo, DepHi: int32(len(s.Deps)),
				Prompt:       prefix.Prefix{Stream: st, Tokens: max(1, fork+rapid.Int32Range(0, 20).Draw(t, "tokens"))},
				OutputTokens: rapid.Int32Range(1, 20).Draw(t, "output")})
		}
		tr.Sessions = append(tr.Sessions, s)
	}
	return tr
}

func TestCeilingAgreesWithComparingEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := anyTrace(t)
		block := rapid.Int32Range(1, 8).Draw(t, "block")
		got, want := ceilings(tr, block), slowCeiling(tr, block)
		for i := range want {
			for j := range want[i] {
				if got[i][j] != want[i][j] {
					t.Fatalf("session %d, turn %d: %d, want %d", i, j, got[i][j], want[i][j])
				}
			}
		}
	})
}

// With prompts only and one thread, the ceiling at the block size of the ids is what the ids say: the sums of
// vllm_hit_blocks, file by file. Files with other threads or models are left out.
func TestCeilingIsThePrefixHitsOfTheIDs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedTraces(t, "kv-cache-tester/traces"), "trace_*0*.json*"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, path := range files[:min(len(files), 30)] {
		stats, err := OpenStats(path, "", Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if stats.Subagents > 0 || len(stats.Models) > 1 {
			continue
		}
		compared++
		tr, err := Open(path, "", Options{OutputReuse: ReuseNone})
		if err != nil {
			t.Fatal(err)
		}
		hit := int64(0)
		for _, h := range ceilings(tr, kvBlock)[0] {
			hit += int64(h) / kvBlock
		}
		if hit != stats.Cache.VLLMHitBlocks {
			t.Errorf("%s: ceiling %d blocks, ids %d", path, hit, stats.Cache.VLLMHitBlocks)
		}
	}
	if compared < 10 {
		t.Errorf("only %d files compared", compared)
	}
}

func BenchmarkCeiling(b *testing.B) {
	tr := wholeFolder(b)
	b.ReportAllocs()
	for b.Loop() {
		ceilings(tr, 16)
	}
}

func BenchmarkReadKVCacheTester(b *testing.B) {
	path := sharedTraces(b, "kv-cache-tester/traces")
	b.ReportAllocs()
	for b.Loop() {
		tr, err := Open(path, "", Options{SharedPrefix: SharedAuto})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(tr.Report.Bytes)
	}
}
