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
		const replicas, blocks = 3, 8
		sizes := [replicas]int32{4, 4, 8}
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
		for range rapid.IntRange(0, 40).Draw(t, "facts") {
			f := Fact{
				Replica: ReplicaID(rapid.IntRange(0, replicas-1).Draw(t, "replica")), Stream: prefix.StreamID(rapid.IntRange(0, tree.Len()-1).Draw(t, "stream")),
				Kind: rapid.SampledFrom([]FactKind{BlocksStored, BlocksStored, BlocksStored, BlocksEvicted, BlocksEvicted, BlocksCleared}).Draw(t, "kind"),
			}
			if f.Kind == BlocksCleared && rapid.IntRange(0, 5).Draw(t, "rarely") > 0 {
				continue
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

// checkRuns holds the runs of every stream to their order, and the memory to what is in use.
func checkRuns(t *rapid.T, x *index) {
	used := 0
	for s := range x.heads {
		last := run{replica: -1}
		for at := x.heads[s]; at != noSlot; at = x.runs[at].next {
			n := x.runs[at]
			used++
			touching := n.replica == last.replica && n.lo == last.hi && n.copies == last.copies
			if n.lo >= n.hi || n.copies <= 0 || n.replica < last.replica || n.replica == last.replica && n.lo < last.hi || touching {
				t.Fatalf("stream %d: run %+v after %+v", s, n, last)
			}
			last = n
		}
	}
	if used+len(x.free) != len(x.runs) {
		t.Fatalf("%d runs, %d in use, %d free", len(x.runs), used, len(x.free))
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
	if got := v.index.runs[v.index.heads[0]]; got != (run{replica: 0, lo: 0, hi: 700, copies: 1, next: noSlot}) {
		t.Errorf("%+v", got)
	}
}
