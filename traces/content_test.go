package traces

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
)

// hashed is a prompt with its chained ids.
type hashed struct {
	ids     []int32
	in, out int32
	tail    *tail
}

func commonIDs(a, b []int32) int32 {
	n := int32(0)
	for int(n) < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// checkAgainstIDs compares a new prompt with all earlier ones: on the full blocks that both have, the streams say what
// the ids say, and its output is no other's.
func checkAgainstIDs(tree *prefix.Tree, block int32, earlier []hashed, q hashed) error {
	for i, p := range earlier {
		shared := tree.Common(p.tail.prompt, q.tail.prompt)
		ids := commonIDs(p.ids, q.ids)
		if got := min(shared/block, int32(len(p.ids)), int32(len(q.ids))); got != ids {
			return fmt.Errorf("shares %d full blocks with prompt %d, ids say %d", got, i, ids)
		}
		whole := q.tail.prompt
		whole.Tokens += q.out
		if shared := tree.Common(whole, prefix.Prefix{Stream: p.tail.prompt.Stream, Tokens: p.in + p.out}); shared > q.in {
			return fmt.Errorf("its output is also that of prompt %d, %d tokens of it", i, shared-q.in)
		}
	}
	return nil
}

func TestStreamsSayWhatTheIDsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const block = 4
		reuse := rapid.SampledFrom([]OutputReuse{ReuseFull, ReuseNone}).Draw(t, "reuse")
		tree := &prefix.Tree{}
		c := newContent(tree, block, reuse, 10_000)
		var all []hashed
		next := int32(0)
		for range rapid.IntRange(1, 12).Draw(t, "prompts") {
			q := hashed{out: rapid.Int32Range(1, 14).Draw(t, "out")}
			var prev *tail
			if len(all) > 0 {
				base := all[rapid.IntRange(0, len(all)-1).Draw(t, "base")]
				q.ids = append(q.ids, base.ids[:rapid.IntRange(0, len(base.ids)).Draw(t, "common")]...)
				if rapid.Bool().Draw(t, "extend") {
					q.ids, prev = append(q.ids[:0], base.ids...), base.tail
				} else if i := rapid.IntRange(-1, len(all)-1).Draw(t, "previous"); i >= 0 {
					prev = all[i].tail
				}
			}
			for range rapid.IntRange(0, 4).Draw(t, "new") {
				q.ids = append(q.ids, next)
				next++
			}
			q.in = int32(len(q.ids))*block + rapid.Int32Range(0, block-1).Draw(t, "part")
			if q.in == 0 {
				q.in = 1
			}
			q.tail = c.add(q.ids, q.in, q.out, prev, tree.Root)
			if err := checkAgainstIDs(tree, block, all, q); err != nil {
				t.Fatalf("prompt %d: %v", len(all), err)
			}
			all = append(all, q)
		}
	})
}

// The same on recorded sessions, whole prompts against whole prompts.
func TestStreamsSayWhatTheIDsSayOnRecordedSessions(t *testing.T) {
	paths, err := kvPaths(sharedTraces(t, "kv-cache-tester/traces"))
	if err != nil {
		t.Fatal(err)
	}
	opt, err := Options{}.checked()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	err = readKVFiles(paths[:min(len(paths), 30)], opt.Limits, func(f *kvFile) error {
		var calls []kvCall
		for _, ref := range f.order() {
			calls = append(calls, *f.at(ref))
		}
		b := newKVBuilder("x", opt)
		if err := b.addFile(f); err != nil {
			return err
		}
		turns := b.trace.Sessions[0].Turns
		for i := range turns {
			for j := max(0, i-20); j < i; j++ {
				want := int32(0)
				if calls[i].model == calls[j].model {
					want = commonIDs(calls[i].path, calls[j].path)
				}
				got := min(b.trace.Tree.Common(turns[i].Prompt, turns[j].Prompt)/kvBlock, int32(len(calls[i].path)), int32(len(calls[j].path)))
				if got != want {
					t.Errorf("%s: turns %d and %d share %d blocks, ids say %d", f.name, j, i, got, want)
				}
				compared++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(compared, "pairs compared")
}

func TestRecordedTracesAreValid(t *testing.T) {
	traces := []*Trace{wholeFolder(t)}
	for _, name := range []string{"conversation_trace.jsonl", "synthetic_trace.jsonl"} {
		tr, err := Open(sharedTraces(t, "mooncake/FAST25-release/traces/"+name), "", Options{IdleCapNS: 60e9})
		if err != nil {
			t.Fatal(err)
		}
		traces = append(traces, tr)
	}
	for _, tr := range traces {
		kept := DropOverContext(tr, 100_000)
		for _, x := range []*Trace{tr, kept, Head(kept, 100)} {
			if p := Validate(x); len(p) > 0 {
				t.Errorf("%s: %s (%d problems)", tr.Name, p[0], len(p))
			}
			if n := int64(x.Turns()) + x.Report.DroppedTurns(); n != x.Report.Turns {
				t.Errorf("%s: %d turns kept or dropped, %d read", tr.Name, n, x.Report.Turns)
			}
		}
	}
}
