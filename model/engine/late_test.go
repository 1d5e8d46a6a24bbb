package engine

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// TestLateRegistration holds an engine that registers blocks late to one that registers them as they fill, over the
// reference pool: every step, and what can be asked between two steps, is the same, and so is what the events say once they
// are all told.
func TestLateRegistration(t *testing.T) {
	waited, eager := 0, 0
	rapid.Check(t, func(rt *rapid.T) { lateWorld(rt, &waited, &eager) })
	if waited < 200 || eager < 50 {
		t.Errorf("%d registrations waited and %d requests were eager, too few to say anything", waited, eager)
	}
}

// told is how many copies of a block the events of a pool have told of.
type told map[[2]int32]int

// hear takes in the events of a pool.
func (x told) hear(p kv.Pool) {
	for _, e := range p.Events() {
		for b := e.Lo; b < e.Hi; b++ {
			at := [2]int32{int32(e.Stream), b}
			if e.Kind == kv.Stored {
				x[at]++
			} else {
				x[at]--
			}
			if x[at] == 0 {
				delete(x, at)
			}
		}
	}
	p.ClearEvents()
}

func lateWorld(t *rapid.T, waited, eagers *int) {
	cfg := DefaultConfig()
	cfg.BlockTokens, cfg.MaxBatchedTokens, cfg.MaxNumSeqs = 4, rapid.Int32Range(4, 40).Draw(t, "budget"), rapid.Int32Range(1, 5).Draw(t, "seqs")
	cfg.Async = rapid.Bool().Draw(t, "async")
	usable := rapid.Int32Range(16, 60).Draw(t, "blocks")
	pools := []kv.Pool{kv.NewReference(usable, true), kv.NewExtent(usable, true)}
	var loops []*Loop
	says := []told{{}, {}}
	for _, p := range pools {
		p.Record(true, true)
		loops = append(loops, NewLoop(New(&cfg, p)))
	}
	late := loops[1]
	if loops[0].RegisterLate() || !late.RegisterLate() {
		t.Fatal("the extent pool alone lets an engine register late")
	}
	var tree prefix.Tree
	var known []prefix.Prefix // prompts with their outputs
	var live []Slot
	add := func() {
		p := prefix.Prefix{Tokens: rapid.Int32Range(1, 30).Draw(t, "prompt")}
		switch how := rapid.IntRange(0, 3).Draw(t, "how"); {
		case how == 0 || len(known) == 0:
			p.Stream = tree.Root()
		default:
			of := rapid.SampledFrom(known).Draw(t, "of")
			switch p.Stream = of.Stream; how {
			case 1: // the next turn, or the same again
				p.Tokens = max(1, of.Tokens-2+rapid.Int32Range(0, 6).Draw(t, "more"))
			case 2:
				p.Tokens = 1 + rapid.Int32Range(0, of.Tokens).Draw(t, "fork at")
				p.Stream = tree.Fork(prefix.Prefix{Stream: of.Stream, Tokens: p.Tokens - 1})
			}
		}
		output := rapid.Int32Range(1, 30).Draw(t, "output")
		all := prefix.Prefix{Stream: p.Stream, Tokens: p.Tokens + output}
		if all.Tokens > usable*cfg.BlockTokens-cfg.BlockTokens {
			return
		}
		known = append(known, all)
		var s Slot
		for _, l := range loops {
			s = l.Add(Request{ID: int64(len(known)), Prompt: p, MaxTokens: output, Path: tree.Segments(all, cfg.BlockTokens, nil)})
		}
		live = append(live, s)
	}
	same := func(what string, of func(*Loop) string) {
		if a, b := of(loops[0]), of(loops[1]); a != b {
			t.Fatalf("%s:\nat once: %s\nlate:    %s", what, a, b)
		}
	}
	step := func() {
		same("advance", func(l *Loop) string {
			outcome, st, _ := l.Advance()
			if st == nil {
				return fmt.Sprint(outcome)
			}
			return fmt.Sprint(outcome, st.Entries, l.Admitted, l.Preempted)
		})
		if loops[0].depth == 0 || loops[0].depth == 1 && cfg.Async && loops[0].HasRequests() {
			return
		}
		same("complete", func(l *Loop) string {
			l.Complete()
			return fmt.Sprint(l.Sampled, l.Finished)
		})
		for _, f := range late.Finished {
			live = slices.DeleteFunc(live, func(s Slot) bool { return s == f.Slot })
		}
	}
	for range rapid.IntRange(1, 120).Draw(t, "operations") {
		switch op := rapid.IntRange(0, 11).Draw(t, "operation"); {
		case op < 2 && len(live) < 6:
			add()
		case op == 2 && len(live) > 0:
			s := rapid.SampledFrom(live).Draw(t, "abort")
			for _, l := range loops {
				l.Abort(s)
			}
			live = slices.DeleteFunc(live, func(o Slot) bool { return o == s })
		case op == 3:
			late.FlushDue()
		default:
			step()
		}
		for _, s := range late.running {
			if _, _, ok := late.Unregistered(s); ok {
				*waited++
			}
			if late.requests[s].eager {
				*eagers++
			}
		}
		same("state", func(l *Loop) string {
			hits := ""
			for _, p := range known {
				hits += fmt.Sprint(l.Resident(tree.Segments(p, cfg.BlockTokens, nil), p.Tokens/cfg.BlockTokens), " ")
			}
			return fmt.Sprint("usage ", l.Usage(), ", cached ", l.Cached(), ", free ", l.pool.Free(), ", bare ", l.pool.Bare(), ", hits ", hits)
		})
		for k, p := range pools {
			says[k].hear(p)
		}
	}
	for _, s := range late.running {
		late.flush(&late.requests[s])
	}
	says[1].hear(pools[1])
	if a, b := fmt.Sprint(says[0]), fmt.Sprint(says[1]); a != b {
		t.Fatalf("the events tell of\nat once: %s\nlate:    %s", a, b)
	}
}
