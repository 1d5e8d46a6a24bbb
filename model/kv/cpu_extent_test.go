package kv

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
)

// bothTiers holds an ExtentCPUTier equal to a ReferenceCPUTier: what calls return, counts, what is present and what was
// evicted, in order.
type bothTiers struct {
	ref *ReferenceCPUTier
	ext *ExtentCPUTier
}

func newBothTiers(cfg CPUConfig) *bothTiers {
	b := &bothTiers{NewReferenceCPUTier(cfg), NewExtentCPUTier(cfg)}
	limit := max(1, cfg.Chunks/2) // of counted chunks, so that some are forgotten
	b.ref.counts.limit, b.ext.counts.limit = int(limit), limit
	return b
}

// same compares the tiers after an operation.
func (b *bothTiers) same() error {
	r, e := b.ref, b.ext
	if x, y := [4]int32{r.Free(), r.Used(), r.Evictable(), r.Pending()}, [4]int32{e.Free(), e.Used(), e.Evictable(), e.Pending()}; x != y {
		return fmt.Errorf("free, used, evictable, pending %v, expected %v", y, x)
	}
	if x, y := evictedKeys(r.Evicted()), evictedKeys(e.Evicted()); !slices.Equal(x, y) {
		return fmt.Errorf("evicted %x, expected %x", y, x)
	}
	if r.target != e.target {
		return fmt.Errorf("target %v, expected %v", e.target, r.target)
	}
	r.ClearEvicted()
	e.ClearEvicted()
	return nil
}

// sameLists compares every list chunk by chunk, and walks the pieces of every stream.
func (b *bothTiers) sameLists() error {
	r, e := b.ref, b.ext
	listed := 0
	for l := range numLists {
		var want, got []string
		for i := r.lists[l].head; i != nowhere; i = r.entries[i].next {
			want = append(want, fmt.Sprintf("%x:%d", r.entries[i].key, r.entries[i].ref))
		}
		for i := e.lists[l].head; i != nowhere; i = e.pieces[i].next {
			x := e.pieces[i]
			listed++
			for _, k := range evictedKeys([]EvictedRun{{x.stream, x.lo, x.hi, x.up}}) {
				got = append(got, fmt.Sprintf("%x:%d", k, x.ref))
			}
		}
		if !slices.Equal(want, got) || int(e.lists[l].len) != len(got) {
			return fmt.Errorf("list %d of length %d is %v, expected %v", l, e.lists[l].len, got, want)
		}
	}
	if x, y := countedKeys(&r.counts, r.cfg.StoreThreshold), countedRuns(&e.counts); !slices.Equal(x, y) {
		return fmt.Errorf("lookups %v, expected %v", y, x)
	}
	inStreams, unlisted, chunks := 0, 0, 0
	for _, s := range e.index.slots {
		last := int32(0)
		for i := s.lane; s.key != 0 && i != nowhere; i = e.pieces[i].right {
			x := e.pieces[i]
			if x.lo < last || x.lo >= x.hi || int32(x.stream)+1 != s.key {
				return fmt.Errorf("piece %+v of stream %d after %d", x, s.key-1, last)
			}
			last = x.hi
			inStreams++
			chunks += int(x.hi - x.lo)
			if x.in == none {
				unlisted++
			}
			for c := x.lo; c < x.hi; c++ {
				j := r.index.get(Chunk(x.stream, c))
				if j == nowhere || r.entries[j].ref != x.ref || r.entries[j].in != x.in {
					return fmt.Errorf("chunk %d of stream %d has %+v, expected index %d", c, x.stream, x, j)
				}
			}
		}
	}
	if inStreams != listed+unlisted || chunks != r.index.used {
		return fmt.Errorf("%d pieces in streams, %d in lists, %d in none; %d chunks, expected %d", inStreams, listed, unlisted, chunks, r.index.used)
	}
	return nil
}

// countedKeys lists counted chunks, the one looked up longest ago first; counts over the threshold say no more.
func countedKeys(c *lookupCounts, threshold int32) (all []string) {
	for i := c.order.head; i != nowhere; i = c.entries[i].next {
		all = append(all, fmt.Sprintf("%x:%d", c.entries[i].key, min(c.entries[i].n, threshold)))
	}
	return all
}

func countedRuns(c *runCounts) (all []string) {
	for i := c.lists[recent].head; i != nowhere; i = c.pieces[i].next {
		x := c.pieces[i]
		for _, k := range evictedKeys([]EvictedRun{{x.stream, x.lo, x.hi, x.up}}) {
			all = append(all, fmt.Sprintf("%x:%d", k, x.ref))
		}
	}
	return all
}

// tierWorld is paths that share content, and transfers under way.
type tierWorld struct {
	both   *bothTiers
	paths  [][]prefix.Segment // in chunks
	loads  [][]prefix.Segment
	stores [][]prefix.Segment
}

// newTierWorld makes paths out of a random tree of streams; draw(n) is from 0 to n.
func newTierWorld(cfg CPUConfig, streams, most int, draw func(n int) int) *tierWorld {
	w := &tierWorld{both: newBothTiers(cfg)}
	var tree prefix.Tree
	known := []prefix.Prefix{{Stream: prefix.None}}
	for range streams {
		from := known[draw(len(known)-1)]
		from.Tokens = int32(draw(int(from.Tokens)))
		p := prefix.Prefix{Stream: tree.Fork(from), Tokens: from.Tokens + int32(1+draw(most-1))}
		known = append(known, p)
		w.paths = append(w.paths, tree.Segments(p, 1, nil))
	}
	return w
}

// step does one random operation on both tiers and returns what differs.
func (w *tierWorld) step(draw func(n int) int) error {
	r, e := w.both.ref, w.both.ext
	path := w.paths[draw(len(w.paths)-1)]
	n := draw(int(path[len(path)-1].Hi))
	from := draw(n)
	what := ""
	switch draw(9) {
	case 0, 1:
		what = fmt.Sprintf("match and touch %v %d to %d", path, from, n)
		a, a1, a2 := r.Match(path, int32(from), int32(n))
		b, b1, b2 := e.Match(path, int32(from), int32(n))
		if a != b || a1 != b1 || a2 != b2 {
			return fmt.Errorf("%s: %d %v %v, expected %d %v %v", what, b, b1, b2, a, a1, a2)
		}
		r.Touch(path, int32(n))
		e.Touch(path, int32(n))
	case 2, 3, 4, 5:
		what = fmt.Sprintf("store %v %d to %d", path, from, n)
		runs, ok := r.PrepareStore(path, int32(from), int32(n), nil)
		got, ok2 := e.PrepareStore(path, int32(from), int32(n), nil)
		if ok != ok2 || !slices.Equal(runs, got) {
			return fmt.Errorf("%s: %v %v, expected %v %v", what, got, ok2, runs, ok)
		}
		if len(runs) > 0 {
			w.stores = append(w.stores, runs)
			if draw(2) > 0 {
				r.Touch(path, int32(n))
				e.Touch(path, int32(n))
			}
		}
	case 6:
		end, arrives, _ := r.Match(path, int32(from), int32(n))
		e.Match(path, int32(from), int32(n))
		what = fmt.Sprintf("load %v %d to %d", path, from, end)
		if arrives || end == int32(from) {
			return nil
		}
		r.PrepareLoad(path, int32(from), end)
		e.PrepareLoad(path, int32(from), end)
		var runs []prefix.Segment
		for _, s := range path {
			if lo, hi := max(s.Lo, int32(from)), min(s.Hi, end); lo < hi {
				runs = append(runs, prefix.Segment{Stream: s.Stream, Lo: lo, Hi: hi})
			}
		}
		w.loads = append(w.loads, runs)
	case 7:
		if len(w.loads) == 0 {
			return nil
		}
		i := draw(len(w.loads) - 1)
		what = fmt.Sprintf("end of load %v", w.loads[i])
		r.CompleteLoad(w.loads[i])
		e.CompleteLoad(w.loads[i])
		w.loads = slices.Delete(w.loads, i, i+1)
	case 8, 9:
		if draw(300) == 0 {
			what = "reset"
			r.Reset()
			e.Reset()
			w.loads, w.stores = nil, nil
		} else if len(w.stores) > 0 {
			i := draw(len(w.stores) - 1)
			what = fmt.Sprintf("end of store %v", w.stores[i])
			r.CompleteStore(w.stores[i])
			e.CompleteStore(w.stores[i])
			w.stores = slices.Delete(w.stores, i, i+1)
		}
	}
	if err := w.both.same(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if a, b := r.Settled(path, int32(n)), e.Settled(path, int32(n)); a != b {
		return fmt.Errorf("settled %v, expected %v", b, a)
	}
	return nil
}

// TestExtentCPUTier holds the tier of runs equal to the reference over random operations, and compares their lists after
// each.
func TestExtentCPUTier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n).Draw(t, "draw") }
		w := newTierWorld(CPUConfig{Chunks: int32(1 + draw(30)), ARC: draw(1) == 1, StoreThreshold: int32(max(0, draw(5)-2))}, 1+draw(7), 12, draw)
		for i := range 60 {
			err := w.step(draw)
			if err == nil {
				err = w.both.sameLists()
			}
			if err != nil {
				t.Fatalf("operation %d: %v", i, err)
			}
		}
	})
}

// TestExtentCPUTierLong does the same over long seeded runs, with longer paths and more of them.
func TestExtentCPUTierLong(t *testing.T) {
	evicted, refused := 0, 0
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 7))
		draw := func(n int) int { return rng.IntN(n + 1) }
		w := newTierWorld(CPUConfig{Chunks: int32(40 + draw(400)), ARC: seed%2 == 1, StoreThreshold: int32(max(0, seed%6, 1) - 1)}, 4+draw(30), 60, draw)
		for i := range 4000 {
			used := w.both.ref.Used()
			if err := w.step(draw); err != nil {
				t.Fatalf("seed %d, operation %d: %v", seed, i, err)
			}
			if w.both.ref.Used() == used && used > 0 {
				refused++
			}
			if i%50 == 0 {
				if err := w.both.sameLists(); err != nil {
					t.Fatalf("seed %d, operation %d: %v", seed, i, err)
				}
			}
			if w.both.ref.Free() == 0 {
				evicted++
			}
		}
	}
	if evicted < 1000 || refused < 1000 {
		t.Errorf("the tier was full after %d operations and as full as before after %d", evicted, refused)
	}
}

// TestAddTimes holds the sums done at once against those done one by one.
func TestAddTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunks := float64(rapid.Int32Range(1, 1<<20).Draw(t, "chunks"))
		count := rapid.Int32Range(1, 5000)
		ratio := rapid.Custom(func(t *rapid.T) float64 {
			return max(1, float64(count.Draw(t, "one"))/float64(count.Draw(t, "other")))
		})
		x := 0.0
		for range 5 {
			n, step := rapid.Int32Range(1, 20000).Draw(t, "times"), ratio.Draw(t, "step")
			want, got := x, 0.0
			if rapid.Bool().Draw(t, "up") {
				for range n {
					want = min(want+step, chunks)
				}
				got = addTimes(x, step, n, chunks)
			} else {
				for range n {
					want = max(want-step, 0)
				}
				got = addTimes(x, -step, n, 0)
			}
			if got != want {
				t.Fatalf("%v and %d times %v up to %v: %v, expected %v", x, n, step, chunks, got, want)
			}
			x = want
		}
	})
}

// TestSettled holds what Settled says to the reference: matching and touching paths a second time, one after the other,
// changes no list and no target if each is settled.
func TestSettled(t *testing.T) {
	settled := 0
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n).Draw(t, "draw") }
		w := newTierWorld(CPUConfig{Chunks: int32(1 + draw(15)), ARC: draw(3) > 0}, 1+draw(7), 12, draw)
		for range 20 + 20*draw(6) {
			if err := w.step(draw); err != nil {
				t.Fatal(err)
			}
		}
		var asked [][]prefix.Segment
		for range 1 + draw(2) {
			asked = append(asked, w.paths[draw(len(w.paths)-1)])
		}
		round := func() {
			for _, p := range asked {
				n := p[len(p)-1].Hi
				w.both.ref.Touch(p, n)
				w.both.ext.Touch(p, n)
			}
		}
		round()
		for _, p := range asked {
			if !w.both.ref.Settled(p, p[len(p)-1].Hi) {
				return
			}
		}
		settled++
		before := w.both.order()
		round()
		if after := w.both.order(); before != after {
			t.Fatalf("touching %v again leads from\n%s\nto\n%s", asked, before, after)
		}
	})
	if settled < 20 {
		t.Errorf("only %d settled worlds", settled)
	}
}

// order describes the lists of the reference.
func (b *bothTiers) order() string {
	s := fmt.Sprint(b.ref.target)
	for l := range numLists {
		s += "\n"
		for i := b.ref.lists[l].head; i != nowhere; i = b.ref.entries[i].next {
			s += fmt.Sprintf(" %x", b.ref.entries[i].key)
		}
	}
	return s
}

// BenchmarkCPUTier is one turn of a session: look up and touch all its chunks of 16 tokens, store those that are new or were
// evicted, in a tier that cannot keep every session.
func BenchmarkCPUTier(b *testing.B) {
	for _, tier := range []string{"extent/lru", "extent/arc", "reference/lru", "reference/arc"} {
		for _, tokens := range []int32{4000, 32_000, 128_000} {
			b.Run(fmt.Sprintf("%s/context=%dk", tier, tokens/1000), func(b *testing.B) {
				const sessions, fresh = 20, 60
				chunks := tokens / 16
				cfg := CPUConfig{Chunks: chunks * sessions, ARC: tier[len(tier)-3:] == "arc", Places: tier[0] == 'r'}
				t := NewCPUTier(cfg)
				stored := int32(0)
				path := make([]prefix.Segment, 1)
				var runs []prefix.Segment
				// A session's prompts grow from a half to one and a half times the context and start again.
				turn := func(n int) {
					s, number := n%sessions, int32(n/sessions)
					turns := chunks / fresh
					path[0] = prefix.Segment{Stream: prefix.StreamID(int32(s) + sessions*(number/turns)), Hi: chunks/2 + number%turns*fresh}
					end, _, _ := t.Match(path, 0, path[0].Hi)
					t.Touch(path, path[0].Hi)
					runs, _ = t.PrepareStore(path, end, path[0].Hi, runs[:0])
					t.Touch(path, path[0].Hi)
					t.CompleteStore(runs)
					t.ClearEvicted()
					for _, r := range runs {
						stored += r.Hi - r.Lo
					}
				}
				n := 0
				for range 4 * sessions * int(chunks/fresh) {
					turn(n)
					n++
				}
				b.ReportAllocs()
				first := n
				stored = 0
				for b.Loop() {
					turn(n)
					n++
				}
				b.ReportMetric(float64(stored)/float64(n-first), "stored/op") // ARC can come to refuse every store
			})
		}
	}
}
