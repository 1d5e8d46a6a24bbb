package policies

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
)

// The index against a plain count of copies for every block, under random facts, forks that split blocks, two block
// sizes and evictions of what is not there.
func TestIndexAgainstBlockCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const replicas, blocks = 7, 8
		sizes := [replicas]int32{4, 4, 8, 4, 4, 4, 8}
		tree := &prefix.Tree{}
		tree.Root()
		for range rapid.IntRange(0, 5).Draw(t, "forks") {
			tree.Fork(prefix.Prefix{
				Stream: prefix.StreamID(rapid.IntRange(0, tree.Len()-1).Draw(t, "parent")), Tokens: int32(rapid.IntRange(0, 20).Draw(t, "at")),
			})
		}
		v := newView(tree, make([]Capability, replicas), nil, nil)
		for r := range ReplicaID(replicas) {
			v.setState(r, Up)
		}
		type block struct {
			r ReplicaID
			s prefix.StreamID
			i int32
		}
		copies := map[block]int{}
		heard := [replicas]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "facts") {
			f := Fact{
				Replica: ReplicaID(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6}).Draw(t, "replica")), Stream: prefix.StreamID(rapid.IntRange(0, tree.Len()-1).Draw(t, "stream")),
				Kind: rapid.SampledFrom([]FactKind{BlocksStored, BlocksStored, BlocksStored, BlocksEvicted, BlocksEvicted, BlocksCleared}).Draw(t, "kind"),
			}
			if f.Kind == BlocksCleared && rapid.IntRange(0, 5).Draw(t, "rarely") > 0 {
				continue
			}
			if f.Kind != BlocksCleared && rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
				sizes[f.Replica] = 12 - sizes[f.Replica] // what it holds stays, under other numbers
			}
			f.BlockTokens = sizes[f.Replica]
			f.Lo = int32(rapid.IntRange(0, blocks-1).Draw(t, "lo"))
			f.Hi = int32(rapid.IntRange(int(f.Lo)+1, blocks).Draw(t, "hi"))
			v.setBlocks(&f)
			if f.Kind == BlocksCleared {
				for i := range blocks {
					for s := range tree.Len() {
						delete(copies, block{f.Replica, prefix.StreamID(s), int32(i)})
					}
				}
				continue
			}
			heard[f.Replica] = true
			for i := f.Lo; i < f.Hi; i++ {
				if b := (block{f.Replica, f.Stream, i}); f.Kind == BlocksStored {
					copies[b]++
				} else if copies[b] > 0 {
					copies[b]--
				}
			}
		}
		p := prefix.Prefix{Stream: prefix.StreamID(rapid.IntRange(0, tree.Len()-1).Draw(t, "of")), Tokens: int32(rapid.IntRange(1, 50).Draw(t, "tokens"))}
		all := make([]int32, replicas)
		v.AllHitTokens(p, all)
		for r := range ReplicaID(replicas) {
			want := int32(0)
			b := sizes[r]
			for i := int32(0); (i+1)*b <= p.Tokens-1; i++ {
				owner := p.Stream // the deepest stream of the path whose fork lies in or before block i
				for tree.Stream(owner).ForkAt/b > i {
					owner = tree.Stream(owner).Parent
				}
				if copies[block{r, owner, i}] == 0 {
					break
				}
				want += b
			}
			got, ok := v.HitTokens(r, p)
			if ok != heard[r] || ok && got != want || !ok && all[r] != -1 || ok && all[r] != want {
				t.Fatalf("replica %d: hit %d (%v), all %d, want %d (%v)", r, got, ok, all[r], want, heard[r])
			}
		}
		checkRuns(t, &v.index)
	})
}

// checkRuns holds the runs of every holder to their order, the tables to the holders, and the memory to what is
// in use.
func checkRuns(t *rapid.T, x *index) {
	used, holders := 0, 0
	for s := range x.streams {
		st := x.streams[s]
		count := int32(0)
		for at := st.first; at != noSlot; at = x.holders[at].next {
			h := x.holders[at]
			count++
			last := run{lo: -1, hi: -1}
			for k := h.runs; k != noSlot; k = x.runs[k].next {
				n := x.runs[k]
				used++
				if n.lo >= n.hi || n.copies <= 0 || n.lo < last.hi || n.lo == last.hi && n.copies == last.copies {
					t.Fatalf("stream %d, replica %d: run %+v after %+v", s, h.replica, n, last)
				}
				last = n
			}
			if last.lo < 0 || int(h.stream) != s || x.find(h.stream, h.replica) != at {
				t.Fatalf("stream %d: holder %+v has no runs or is not found", s, h)
			}
		}
		holders += int(count)
		if count != st.count || count > x.wideOver && st.table == noSlot || count <= x.wideOver/2 && st.table != noSlot {
			t.Fatalf("stream %d: %+v, %d holders", s, st, count)
		}
	}
	if used+len(x.spareRuns) != len(x.runs) || holders+len(x.spareHolders) != len(x.holders) {
		t.Fatalf("%d runs, %d in use, %d spare; %d holders, %d in use, %d spare", len(x.runs), used, len(x.spareRuns), len(x.holders), holders, len(x.spareHolders))
	}
}

func TestUsualResidencyIsOneRun(t *testing.T) {
	tree := &prefix.Tree{}
	tree.Root()
	v := newView(tree, make([]Capability, 1), nil, nil)
	v.setState(0, Up)
	for i := range int32(100) {
		v.setBlocks(&Fact{Kind: BlocksStored, Lo: 10 * i, Hi: 10*i + 10, BlockTokens: 16})
	}
	for i := range int32(300) {
		v.setBlocks(&Fact{Kind: BlocksEvicted, Lo: 999 - i, Hi: 1000 - i, BlockTokens: 16})
	}
	if got := v.index.runs[v.index.holders[v.index.streams[0].first].runs]; got != (run{lo: 0, hi: 700, copies: 1, next: noSlot}) {
		t.Errorf("%+v", got)
	}
}

// A run that grows at its end keeps its number of copies to itself.
func TestCopiesOfNeighbours(t *testing.T) {
	tree := &prefix.Tree{}
	tree.Root()
	v := newView(tree, make([]Capability, 1), nil, nil)
	v.setState(0, Up)
	for _, f := range []Fact{{Kind: BlocksStored, Hi: 4}, {Kind: BlocksStored, Hi: 4}, {Kind: BlocksStored, Lo: 4, Hi: 6}, {Kind: BlocksEvicted, Lo: 4, Hi: 6}} {
		f.BlockTokens = 16
		v.setBlocks(&f)
	}
	if got, _ := v.HitTokens(0, prefix.Prefix{Tokens: 200}); got != 64 {
		t.Errorf("hit %d, want 64", got)
	}
}
