package content

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

func newTable(t testing.TB, block int32, o Options) (*Table, *prefix.Tree) {
	tree := &prefix.Tree{}
	return New(tree, newHasher(t, secret, block), o), tree
}

func (t *Table) mustPlace(tb testing.TB, ids ...int32) prefix.Prefix {
	tb.Helper()
	p, err := t.Place(chainOf(tb, t.hasher, "m", ids...))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestPlaceExtendsAndForks(t *testing.T) {
	tb, tree := newTable(t, 2, Options{})
	a := tb.mustPlace(t, 1, 2, 3, 4, 5)
	longer := tb.mustPlace(t, 1, 2, 3, 4, 5, 6, 7)
	if a != (prefix.Prefix{Stream: 0, Tokens: 5}) || longer != (prefix.Prefix{Stream: 0, Tokens: 7}) {
		t.Errorf("placed at %v, and longer at %v; expected one stream", a, longer)
	}
	fork := tb.mustPlace(t, 1, 2, 9, 9, 9, 9)
	if fork.Stream != 1 || tree.Stream(1) != (prefix.Stream{Parent: 0, ForkAt: 2}) {
		t.Errorf("the fork is %v of %+v, expected stream 1 from token 2", fork, tree.Stream(1))
	}
	deeper := tb.mustPlace(t, 1, 2, 9, 9, 8, 8)
	if deeper.Stream != 2 || tree.Stream(2) != (prefix.Stream{Parent: 1, ForkAt: 4}) {
		t.Errorf("the next fork is %v of %+v, expected stream 2 from token 4", deeper, tree.Stream(2))
	}
	if short := tb.mustPlace(t, 1); short.Stream != 3 || tree.Stream(3).Parent != prefix.None {
		t.Errorf("a prompt without a full block is %v", short)
	}
	if inner := tb.mustPlace(t, 1, 2, 3); inner != (prefix.Prefix{Stream: 0, Tokens: 3}) {
		t.Errorf("a prompt within another is %v, expected 3 tokens of stream 0", inner)
	}
	path := tb.Path(deeper, nil)
	if diff := cmp.Diff(Path{{0, 0, 2}, {1, 0, 4}, {2, 0, 6}}, path); diff != "" {
		t.Errorf("path (-expected +got):\n%s", diff)
	}
}

func TestStreamsComeBack(t *testing.T) {
	tb, tree := newTable(t, 2, Options{IdleBlocks: -1})
	a := tb.mustPlace(t, 1, 2, 3, 4)
	b := tb.mustPlace(t, 1, 2, 5, 6)
	short := tb.mustPlace(t, 9)
	tb.Drop(short.Stream)
	if tree.Live() != 2 {
		t.Errorf("%d streams, expected 2: nobody can find a prompt without a full block again", tree.Live())
	}
	tb.Drop(a.Stream)
	if tree.Live() != 2 || tb.Stats().Blocks != 2 {
		t.Errorf("%d streams with %d blocks, expected 2 and 2: b forks from a, whose rest is forgotten", tree.Live(), tb.Stats().Blocks)
	}
	again := tb.mustPlace(t, 1, 2, 3, 4) // a's end was forgotten, and other content may have been sent as its continuation
	if again.Stream == a.Stream || tree.Stream(again.Stream).Parent != a.Stream {
		t.Errorf("the same prompt again is %v, expected a fork of stream %d", again, a.Stream)
	}
	tb.Drop(again.Stream)
	tb.Drop(b.Stream)
	if s := tb.Stats(); s.Streams != 0 || s.Blocks != 0 || s.Held != 0 || len(tb.heads) != 0 {
		t.Errorf("after all: %+v, %d heads", s, len(tb.heads))
	}
	c := tb.mustPlace(t, 7, 7)
	if tree.Generation(c.Stream) == 0 || tree.Len() > 4 {
		t.Errorf("the next prompt has a slot of generation %d of %d", tree.Generation(c.Stream), tree.Len())
	}
}

func TestIdleStreamsCanBeFoundUntilOthersNeedTheRoom(t *testing.T) {
	tb, tree := newTable(t, 2, Options{IdleBlocks: 4})
	a := tb.mustPlace(t, 1, 1, 1, 1)
	tb.Drop(a.Stream)
	if again := tb.mustPlace(t, 1, 1, 1, 1); again != a {
		t.Errorf("an idle prompt is %v again, expected %v", again, a)
	}
	tb.Drop(a.Stream)
	b := tb.mustPlace(t, 2, 2, 2, 2)
	tb.Drop(b.Stream)
	c := tb.mustPlace(t, 3, 3)
	tb.Drop(c.Stream) // the fifth idle block: a goes, it was used before b
	if tree.Live() != 2 || tb.Stats().IdleBlocks != 3 || !tree.Released(a.Stream) {
		t.Errorf("%+v, expected b and c", tb.Stats())
	}
	if again := tb.mustPlace(t, 2, 2, 2, 2); again != b {
		t.Errorf("the idle prompt b is %v, expected %v", again, b)
	}
}

func TestTableIsFull(t *testing.T) {
	tb, _ := newTable(t, 2, Options{MaxBlocks: 4})
	a := tb.mustPlace(t, 1, 1, 1, 1, 1, 1)
	_, err := tb.Place(chainOf(t, tb.hasher, "m", 2, 2, 2, 2))
	if !errors.Is(err, ErrFull) || tb.Stats().Full != 1 || tb.Stats().Streams != 1 {
		t.Errorf("got %v and %+v, expected ErrFull and one stream", err, tb.Stats())
	}
	tb.Drop(a.Stream)
	tb.mustPlace(t, 2, 2, 2, 2) // at the cost of what is idle
	for _, c := range []Chain{{}, {Blocks: []uint64{1, 2}, Tokens: 3}, {Tokens: -1}, {Tokens: MaxPromptTokens + 1}} {
		if _, err := tb.Place(c); err == nil || errors.Is(err, ErrFull) {
			t.Errorf("chain %v: %v", c, err)
		}
	}
}

// The memory of a table follows the sessions that live, however many there were.
func TestManySessions(t *testing.T) {
	const live, turns, all = 64, 2, 100_000
	tb, tree := newTable(t, 16, Options{IdleBlocks: 4096})
	system := make([]int32, 32)
	held := make([]prefix.Prefix, 0, live)
	var c Chain
	most := int64(0)
	for n := range int32(all) {
		ids := append(slices.Clone(system), n, n+1)
		var last prefix.Prefix
		for k := range int32(turns) {
			for range 16 {
				ids = append(ids, n^k<<20)
			}
			var err error
			if c, err = tb.hasher.Tokens(c, "m", ids); err != nil {
				t.Fatal(err)
			}
			p, err := tb.Place(c)
			if err != nil {
				t.Fatal(err)
			}
			if k > 0 {
				tb.Drop(last.Stream)
			}
			last = p
		}
		if held = append(held, last); len(held) == live {
			tb.Drop(held[0].Stream)
			held = held[1:]
		}
		most = max(most, tb.Stats().Blocks)
	}
	s := tb.Stats()
	t.Logf("%d sessions of %d turns: %d slots, at most %d blocks, %+v", all, turns, tree.Len(), most, s)
	if tree.Len() > 4096 || most > 4096+live*8+8 || len(tb.heads) > tree.Len() || s.Released < all-4096 {
		t.Errorf("memory grows with the sessions that were: %d slots, %d blocks, %d heads", tree.Len(), most, len(tb.heads))
	}
}

func stored(parent kvevents.Hash, hashes []kvevents.Hash, size int32, tokens ...int32) kvevents.Event {
	return kvevents.Event{Kind: kvevents.BlockStored, Hashes: hashes, HasParent: parent != 0, Parent: parent, Tokens: tokens, BlockTokens: size, Group: -1}
}

func removed(hashes ...kvevents.Hash) kvevents.Event {
	return kvevents.Event{Kind: kvevents.BlockRemoved, Hashes: hashes, Group: -1}
}

// show is facts in short.
func show(facts []policies.Fact) []string {
	out := []string{}
	for _, f := range facts {
		switch f.Kind {
		case policies.BlocksCleared:
			out = append(out, fmt.Sprintf("r%d cleared", f.Replica))
		default:
			out = append(out, fmt.Sprintf("r%d %s s%d %d-%d of %d", f.Replica, f.Kind, f.Stream, f.Lo, f.Hi, f.BlockTokens))
		}
	}
	return out
}

func TestEventsBecomeFacts(t *testing.T) {
	type hs = []kvevents.Hash
	cpu, layer, salted := stored(0, hs{90}, 2, 1, 2), stored(0, hs{91}, 2, 1, 2), stored(0, hs{92}, 2, 1, 2)
	cpu.Medium, layer.Attention, salted.Extra = "CPU", "sliding_window", true
	group := func(e kvevents.Event, n int32) kvevents.Event { e.Group = n; return e }
	for _, c := range []struct {
		name     string
		events   []kvevents.Event
		want     []string
		unplaced int64
		ignored  int64
	}{
		{"a prompt", []kvevents.Event{stored(0, hs{11, 12}, 2, 1, 2, 3, 4)}, []string{"r1 blocks_stored s0 0-2 of 2"}, 0, 0},
		{"output, block by block", []kvevents.Event{stored(0, hs{11}, 2, 1, 2), stored(11, hs{12}, 2, 3, 4), stored(12, hs{13}, 2, 5, 6)},
			[]string{"r1 blocks_stored s0 0-3 of 2"}, 0, 0},
		{"two outputs of one prompt", []kvevents.Event{stored(0, hs{11}, 2, 1, 2), stored(11, hs{12}, 2, 3, 4), stored(11, hs{13}, 2, 5, 6)},
			[]string{"r1 blocks_stored s0 0-2 of 2", "r1 blocks_stored s1 1-2 of 2"}, 0, 0},
		{"evicted from the end", []kvevents.Event{stored(0, hs{11, 12, 13}, 2, 1, 2, 3, 4, 5, 6), removed(13, 12)},
			[]string{"r1 blocks_stored s0 0-3 of 2", "r1 blocks_evicted s0 1-3 of 2"}, 0, 0},
		{"evicted from the front", []kvevents.Event{stored(0, hs{11, 12, 13}, 2, 1, 2, 3, 4, 5, 6), removed(11, 12)},
			[]string{"r1 blocks_stored s0 0-3 of 2", "r1 blocks_evicted s0 0-2 of 2"}, 0, 0},
		{"two copies", []kvevents.Event{stored(0, hs{11}, 2, 1, 2), stored(0, hs{11}, 2, 1, 2), removed(11)},
			[]string{"r1 blocks_stored s0 0-1 of 2", "r1 blocks_stored s0 0-1 of 2", "r1 blocks_evicted s0 0-1 of 2"}, 0, 0},
		{"blocks of four of two", []kvevents.Event{stored(0, hs{11, 12}, 4, 1, 2, 3, 4, 5, 6, 7, 8)}, []string{"r1 blocks_stored s0 0-2 of 4"}, 0, 0},
		{"blocks that do not fit", []kvevents.Event{stored(0, hs{11}, 3, 1, 2, 3)}, []string{}, 1, 0},
		{"a parent that was lost", []kvevents.Event{stored(77, hs{11, 12}, 2, 1, 2, 3, 4), stored(12, hs{13}, 2, 5, 6), removed(11)}, []string{}, 4, 0},
		{"other tiers and layers", []kvevents.Event{cpu, layer}, []string{}, 0, 2},
		{"more than tokens in the hash", []kvevents.Event{salted}, []string{}, 1, 0},
		{"of two groups the first", []kvevents.Event{group(stored(0, hs{11}, 2, 1, 2), 1), group(stored(0, hs{11}, 2, 1, 2), 0), group(removed(11), 0)},
			[]string{"r1 blocks_stored s0 0-1 of 2"}, 0, 2},
		{"cleared", []kvevents.Event{stored(0, hs{11}, 2, 1, 2), {Kind: kvevents.AllBlocksCleared}, removed(11)},
			[]string{"r1 blocks_stored s0 0-1 of 2", "r1 cleared"}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			tb, _ := newTable(t, 2, Options{})
			got := show(tb.Apply(1, &kvevents.Batch{Events: c.events}, nil))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("facts (-expected +got):\n%s", diff)
			}
			if s := tb.Stats(); s.Unplaced != c.unplaced || s.Ignored != c.ignored {
				t.Errorf("%d unplaced, %d ignored, expected %d and %d", s.Unplaced, s.Ignored, c.unplaced, c.ignored)
			}
		})
	}
}

// Blocks of an engine that are larger than those that are hashed belong to the stream that owns their end.
func TestForkWithinAnEnginesBlock(t *testing.T) {
	tb, tree := newTable(t, 2, Options{})
	tb.mustPlace(t, 1, 2, 3, 4, 5, 6, 7, 8)
	fork := tb.mustPlace(t, 1, 2, 3, 4, 5, 6, 9, 9)
	got := show(tb.Apply(0, &kvevents.Batch{Events: []kvevents.Event{stored(0, []kvevents.Hash{11, 12}, 4, 1, 2, 3, 4, 5, 6, 9, 9)}}, nil))
	if diff := cmp.Diff([]string{"r0 blocks_stored s0 0-1 of 4", "r0 blocks_stored s1 1-2 of 4"}, got); diff != "" {
		t.Errorf("facts (-expected +got):\n%s", diff)
	}
	if diff := cmp.Diff([]prefix.Segment{{Stream: 0, Lo: 0, Hi: 1}, {Stream: 1, Lo: 1, Hi: 2}}, tree.Segments(fork, 4, nil)); diff != "" {
		t.Errorf("the tree has it otherwise (-expected +got):\n%s", diff)
	}
}

func TestAdaptersAreApart(t *testing.T) {
	tb, tree := newTable(t, 2, Options{})
	e := stored(0, []kvevents.Hash{11, 12}, 2, 1, 2, 3, 4)
	e.LoRA = "lora"
	tb.Apply(0, &kvevents.Batch{Events: []kvevents.Event{e}}, nil)
	base := tb.mustPlace(t, 1, 2, 3, 4)
	p, err := tb.Place(chainOf(t, tb.hasher, "lora", 1, 2, 3, 4))
	if err != nil || p.Stream != 0 || tree.Common(p, base) != 0 {
		t.Errorf("the adapter's prompt is %v (%v), the base model's %v", p, err, base)
	}
}

// Whoever forgot what a replica holds is told again.
func TestAnnounce(t *testing.T) {
	tb, _ := newTable(t, 2, Options{})
	type hs = []kvevents.Hash
	tb.Apply(0, &kvevents.Batch{Events: []kvevents.Event{stored(0, hs{11, 12}, 2, 1, 2, 3, 4), stored(11, hs{13}, 2, 9, 9), stored(0, hs{11}, 2, 1, 2)}}, nil)
	want := []string{"r0 blocks_stored s0 0-2 of 2", "r0 blocks_stored s1 1-2 of 2", "r0 blocks_stored s0 0-1 of 2"}
	if diff := cmp.Diff(want, show(tb.Announce(0, nil))); diff != "" {
		t.Errorf("facts (-expected +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"r0 cleared"}, show(tb.Clear(0, nil))); diff != "" || len(tb.Announce(0, nil)) != 0 || tb.Stats().ResidentBlocks != 0 {
		t.Errorf("after it was cleared: %s %v", diff, tb.Stats())
	}
}
