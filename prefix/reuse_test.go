package prefix

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestReleaseGivesTheSlotToAnother(t *testing.T) {
	var tree Tree
	root := tree.Root()
	a := tree.Fork(Prefix{root, 32})
	b := tree.Fork(Prefix{root, 64})
	if tree.Changes() != 0 {
		t.Errorf("%d changes before the first release", tree.Changes())
	}
	tree.Release(a)
	if !tree.Released(a) || tree.Released(b) || tree.Live() != 2 || tree.Len() != 3 || tree.Generation(a) != 1 || tree.Generation(b) != 0 {
		t.Errorf("after the release: live %d of %d, generation %d", tree.Live(), tree.Len(), tree.Generation(a))
	}
	c := tree.Fork(Prefix{b, 96})
	if c != a || tree.Stream(c) != (Stream{b, 96}) || tree.Live() != 3 {
		t.Errorf("the next stream is %d, %+v, expected slot %d", c, tree.Stream(c), a)
	}
	if got, ok := tree.Changed(0); !ok || !slices.Equal(got, []StreamID{a, a}) {
		t.Errorf("changed: %v, %v", got, ok)
	}
	if n := tree.Common(Prefix{c, 100}, Prefix{b, 100}); n != 96 {
		t.Errorf("the new stream shares %d tokens with its parent, expected 96", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("a stream was released twice and nobody noticed")
		}
	}()
	tree.Release(b)
	tree.Release(b)
}

// A tree whose slots are used again is the same tree, but for names, as one that grows for ever.
func TestReuseAgainstATreeThatOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type pair struct{ reused, grown StreamID }
		var tree, grown Tree
		var live []pair
		children := map[StreamID]int{} // by slot of tree
		seen := uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch k := rapid.IntRange(0, 9).Draw(t, "kind"); {
			case k < 2 || len(live) == 0:
				live = append(live, pair{tree.Root(), grown.Root()})
			case k < 6:
				p := live[rapid.IntRange(0, len(live)-1).Draw(t, "parent")]
				at := tree.Stream(p.reused).ForkAt + int32(rapid.IntRange(1, 50).Draw(t, "at"))
				live = append(live, pair{tree.Fork(Prefix{p.reused, at}), grown.Fork(Prefix{p.grown, at})})
				children[p.reused]++
			default:
				i := rapid.IntRange(0, len(live)-1).Draw(t, "released")
				s := live[i].reused
				if children[s] > 0 {
					continue
				}
				if parent := tree.Stream(s).Parent; parent != None {
					children[parent]--
				}
				tree.Release(s)
				live = slices.Delete(live, i, i+1)
			}
			if tree.Changes() < seen {
				t.Fatal("changes went back")
			}
			seen = tree.Changes()
		}
		if tree.Live() != len(live) {
			t.Fatalf("%d live, expected %d", tree.Live(), len(live))
		}
		for _, a := range live {
			for _, b := range live {
				n := int32(rapid.IntRange(1, 300).Draw(t, "tokens"))
				if x, y := tree.Common(Prefix{a.reused, n}, Prefix{b.reused, n}), grown.Common(Prefix{a.grown, n}, Prefix{b.grown, n}); x != y {
					t.Fatalf("streams %v and %v share %d of %d tokens, expected %d", a, b, x, n, y)
				}
			}
		}
	})
}

func TestChangedForgetsWhatIsTooOld(t *testing.T) {
	var tree Tree
	for range 10_000 {
		tree.Release(tree.Root())
	}
	if _, ok := tree.Changed(0); ok {
		t.Error("all changes are kept for ever")
	}
	if got, ok := tree.Changed(tree.Changes() - 10); !ok || len(got) != 10 {
		t.Errorf("the last changes: %v, %v", got, ok)
	}
	if tree.Len() != 1 || len(tree.changed) > 4096 {
		t.Errorf("%d slots and a list of %d", tree.Len(), len(tree.changed))
	}
}

// TestExtended grows a tree and what extends it apart.
func TestExtended(t *testing.T) {
	var base Tree
	for i := range int32(100) {
		base.Fork(Prefix{Stream: StreamID(i) - 1, Tokens: i})
	}
	x := base.Extended()
	for range 3 {
		base.Root()
		if s := x.Fork(Prefix{Stream: 50, Tokens: 200}); x.Stream(s) != (Stream{50, 200}) {
			t.Fatalf("stream %d is %+v", s, x.Stream(s))
		}
	}
	for s := range StreamID(100) {
		if x.Stream(s) != base.Stream(s) {
			t.Fatalf("stream %d is %+v, of the base %+v", s, x.Stream(s), base.Stream(s))
		}
	}
	if base.Stream(101) != (Stream{None, 0}) || x.Len() != 103 {
		t.Errorf("stream 101 of the base is %+v, and %d streams extend it", base.Stream(101), x.Len())
	}
}
