package policies

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
)

// remembered is one block of the slow model: when it was last sent, in which insertion, and how deep it lies.
type remembered struct {
	at, insertion int
	depth         int32
}

type blockOf struct {
	r ReplicaID
	s prefix.StreamID
	i int32
}

// The index against a plain table of blocks with the moment each was last sent, under random forks, insertions,
// capacities, times to live and replicas that go down.
func TestApproxIndexAgainstATableOfBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const replicas = 3
		block := int32(rapid.SampledFrom([]int{1, 4}).Draw(t, "block"))
		capacity := rapid.SampledFrom([]int64{0, 5, 12}).Draw(t, "capacity")
		ttl := rapid.SampledFrom([]Time{Never, 3, 10}).Draw(t, "ttl")
		tree := &prefix.Tree{}
		tree.Root()
		for range rapid.IntRange(0, 6).Draw(t, "forks") {
			tree.Fork(prefix.Prefix{
				Stream: prefix.StreamID(rapid.IntRange(0, tree.Len()-1).Draw(t, "parent")), Tokens: int32(rapid.IntRange(0, 30).Draw(t, "at")),
			})
		}
		v := newView(tree, make([]Capability, replicas), nil, nil)
		x := NewApproxIndex(block, capacity, ttl)
		table := map[blockOf]remembered{}
		now := 0
		for n := range rapid.IntRange(1, 40).Draw(t, "insertions") {
			now += rapid.IntRange(0, 2).Draw(t, "pass")
			r := ReplicaID(rapid.IntRange(0, replicas-1).Draw(t, "replica"))
			p := prefix.Prefix{Stream: prefix.StreamID(rapid.IntRange(0, tree.Len()-1).Draw(t, "stream")), Tokens: int32(rapid.IntRange(1, 60).Draw(t, "tokens"))}
			if rapid.IntRange(0, 12).Draw(t, "down") == 0 {
				x.Forget(r)
				for b := range table {
					if b.r == r {
						delete(table, b)
					}
				}
			}
			x.Insert(Time(now), v, p, r)
			for b, m := range table {
				if b.r == r && Time(now-m.at) >= ttl {
					delete(table, b)
				}
			}
			for _, g := range tree.Segments(p, block, nil) {
				for i := g.Lo; i < g.Hi; i++ {
					table[blockOf{r, g.Stream, i}] = remembered{now, n, i}
				}
			}
			evictOldest(table, r, capacity)

			q := prefix.Prefix{Stream: prefix.StreamID(rapid.IntRange(0, tree.Len()-1).Draw(t, "asked")), Tokens: int32(rapid.IntRange(1, 60).Draw(t, "asked tokens"))}
			got := make([]int32, replicas)
			x.Hits(Time(now), v, q, got)
			for r := range ReplicaID(replicas) {
				want, size := int32(0), int64(0)
				whole := true
				for _, g := range tree.Segments(q, block, nil) {
					for i := g.Lo; i < g.Hi && whole; i++ {
						m, ok := table[blockOf{r, g.Stream, i}]
						if whole = ok && Time(now-m.at) < ttl; whole {
							want += block
						}
					}
				}
				for b := range table {
					if b.r == r {
						size++
					}
				}
				if got[r] != want || x.Tokens(r) != size*int64(block) {
					t.Fatalf("insertion %d: replica %d holds %d of %+v and %d in all, want %d and %d", n, r, got[r], q, x.Tokens(r), want, size*int64(block))
				}
			}
		}
	})
}

// evictOldest drops blocks of r beyond capacity: those of the oldest insertion first, and of these the deepest.
func evictOldest(table map[blockOf]remembered, r ReplicaID, capacity int64) {
	for capacity > 0 {
		n := int64(0)
		var worst blockOf
		for b, m := range table {
			if b.r != r {
				continue
			}
			if w := table[worst]; n == 0 || m.insertion < w.insertion || m.insertion == w.insertion && m.depth > w.depth {
				worst = b
			}
			n++
		}
		if n <= capacity {
			return
		}
		delete(table, worst)
	}
}

// What a lookup and an insertion cost does not depend on the length of the prompt.
func BenchmarkApproxIndex(b *testing.B) {
	for _, tokens := range []int32{1 << 10, 1 << 20} {
		b.Run(map[bool]string{true: "1k", false: "1M"}[tokens == 1<<10], func(b *testing.B) {
			const replicas, threads = 64, 512
			tree := &prefix.Tree{}
			tree.Root()
			for range threads {
				tree.Fork(prefix.Prefix{Tokens: tokens / 2})
			}
			v := newView(tree, make([]Capability, replicas), nil, nil)
			x := NewApproxIndex(16, 1<<24, Never)
			hits := make([]int32, replicas)
			i := int32(0)
			b.ReportAllocs()
			for b.Loop() {
				p := prefix.Prefix{Stream: prefix.StreamID(1 + i%threads), Tokens: tokens}
				x.Hits(Time(i), v, p, hits)
				x.Insert(Time(i), v, p, ReplicaID(i*7%replicas))
				i++
			}
		})
	}
}
