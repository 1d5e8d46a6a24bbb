package kv

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/prefix"
	"pgregory.net/rapid"
)

var fuzzOps = flag.Int("kv.ops", 200_000, "operations of TestPoolsAgree")

// chooser makes the choices of a random run: a seeded generator, rapid, or the bytes of a fuzz input.
type chooser interface {
	intn(n int) int // 0 <= result < n
}

type seeded struct{ r *rand.Rand }

func newSeeded(seed uint64) seeded { return seeded{rand.New(rand.NewPCG(seed, 2))} }

func (c seeded) intn(n int) int { return c.r.IntN(n) }

type rapidChooser struct{ t *rapid.T }

func (c rapidChooser) intn(n int) int { return rapid.IntRange(0, n-1).Draw(c.t, "n") }

type byteChooser struct{ b []byte }

func (c *byteChooser) intn(n int) int {
	if len(c.b) == 0 {
		return 0
	}
	x := int(c.b[0])
	c.b = c.b[1:]
	return x % n
}

// world drives a Reference and an Extent with the same operations and compares them after each.
type world struct {
	c       chooser
	block   int32 // tokens per block
	caching bool
	tree    prefix.Tree
	prompts []prefix.Prefix // prompts seen, to extend, fork or repeat
	live    []*request
	ref     *Reference
	ext     *Extent
	op      string // what is being done, for messages
	counts  map[string]int
	segs    []prefix.Segment
	queues  [2][]key
	content [2][]Event
}

// request is a table in both pools: tokens of prompt computed so far, and how many blocks are registered.
type request struct {
	h          Handle
	prompt     prefix.Prefix
	computed   int32
	held       int32
	registered int32
	async      bool // registers a step later
}

func newWorld(c chooser) *world {
	usable := int32(4 + c.intn(60))
	w := &world{
		c: c, block: []int32{1, 2, 4, 16}[c.intn(4)], caching: c.intn(16) != 1,
		counts: map[string]int{},
	}
	w.ref, w.ext = NewReference(usable, w.caching), NewExtent(usable, w.caching)
	w.ref.Record(true, true)
	w.ext.Record(true, true)
	return w
}

func (w *world) path(p prefix.Prefix) []prefix.Segment {
	w.segs = w.tree.Segments(p, w.block, w.segs[:0])
	return w.segs
}

// prompt picks the prompt of a new request: a new root, or an earlier prompt as it was, longer, shorter or forked.
func (w *world) prompt() prefix.Prefix {
	some := func() int32 { return int32(w.c.intn(int(w.block)*8 + 1)) }
	kind := w.c.intn(8)
	if len(w.prompts) == 0 {
		kind = 0
	}
	var p prefix.Prefix
	if kind != 0 {
		p = w.prompts[len(w.prompts)-1-w.c.intn(min(len(w.prompts), 16))]
	}
	switch kind {
	case 0:
		p = prefix.Prefix{Stream: w.tree.Root(), Tokens: 1 + some()}
	case 1, 2:
	case 3:
		p.Tokens += some()
	case 4: // to the next full block, so that the last block of a full hit is computed again
		p.Tokens = (p.Tokens/w.block + 1) * w.block
	case 5:
		p.Tokens = max(1, p.Tokens-some())
	default:
		at := prefix.Prefix{Stream: p.Stream, Tokens: max(0, p.Tokens-some())}
		if w.c.intn(2) == 0 {
			at.Tokens -= at.Tokens % w.block
		}
		p = prefix.Prefix{Stream: w.tree.Fork(at), Tokens: at.Tokens + 1 + some()}
	}
	p.Tokens = min(p.Tokens, w.block*w.ref.Usable()*5/4)
	w.prompts = append(w.prompts, p)
	return p
}

// step does one random operation and compares.
func (w *world) step() error {
	kind := w.c.intn(16)
	switch {
	case kind == 0 && w.c.intn(4) == 0:
		if err := w.reset(); err != nil {
			return err
		}
	case kind < 5 || len(w.live) == 0:
		w.admit()
	default:
		r := w.live[w.c.intn(len(w.live))]
		switch {
		case kind < 8:
			w.release(r)
		case kind < 10:
			w.register(r, r.registered+int32(w.c.intn(int(r.computed/w.block-r.registered)+1)))
		default:
			w.compute(r)
		}
	}
	if err := w.compare(); err != nil {
		return fmt.Errorf("%s: %w", w.op, err)
	}
	return nil
}

func (w *world) reset() error {
	a, b := w.ref.Reset(), w.ext.Reset()
	w.op = fmt.Sprintf("reset %v", a)
	w.counts[w.op]++
	if a != b {
		return fmt.Errorf("reset: %v, extent %v", a, b)
	}
	return nil
}

// admit starts a request: it holds its hits (or, now and then, fewer) and computes a first chunk.
func (w *world) admit() {
	r := &request{prompt: w.prompt(), async: w.c.intn(3) == 0}
	limit := (r.prompt.Tokens - 1) / w.block
	if w.c.intn(6) == 0 {
		limit = int32(w.c.intn(int(limit) + 1))
	}
	hits, idle := w.ref.Lookup(w.path(r.prompt), limit)
	w.op = fmt.Sprintf("admit %+v limit %d hits %d", r.prompt, limit, hits)
	if idle > w.ref.Free() {
		return
	}
	r.h = w.ref.Open()
	if h := w.ext.Open(); h != r.h {
		panic(fmt.Sprintf("handles %d and %d", r.h, h))
	}
	if hits > 0 {
		w.ref.Hold(r.h, w.segs, hits)
		w.ext.Hold(r.h, w.segs, hits)
		w.counts["hit blocks"] += int(hits)
	}
	r.held, r.registered, r.computed = hits, hits, hits*w.block
	w.live = append(w.live, r)
	w.compute(r)
}

// compute takes blocks for the next chunk of r, or for one more token when the prompt is done, and registers what is
// full: at once, or, for a delayed request, what was full before.
func (w *world) compute(r *request) {
	n := int32(1)
	if left := r.prompt.Tokens - r.computed; left > 0 {
		n = 1 + int32(w.c.intn(int(left)))
	}
	need := (r.computed+n+w.block-1)/w.block - r.held
	if need > w.ref.Free() {
		w.op = "abort for want of blocks: " + w.op
		w.release(r)
		return
	}
	if need > 0 {
		w.ref.Grow(r.h, need)
		w.ext.Grow(r.h, need)
		r.held += need
	}
	full := r.computed / w.block
	r.computed += n
	r.prompt.Tokens = max(r.prompt.Tokens, r.computed)
	w.op = fmt.Sprintf("compute %+v +%d", *r, n)
	if !r.async {
		full = r.computed / w.block
	}
	w.register(r, full)
}

func (w *world) register(r *request, to int32) {
	if to <= r.registered {
		return
	}
	w.op += fmt.Sprintf("; register %+v to %d", *r, to)
	path := w.path(r.prompt)
	w.ref.Register(r.h, path, r.registered, to)
	w.ext.Register(r.h, path, r.registered, to)
	r.registered = to
	if n := len(w.ext.tables[r.h].spans); n > 0 {
		if l := w.ext.lanes[w.ext.tables[r.h].spans[n-1].lane]; l.prev != nowhere || l.next != nowhere {
			w.counts["registered beside a copy"]++
		}
	}
}

func (w *world) release(r *request) {
	w.op = fmt.Sprintf("release %+v", *r)
	if r.computed/w.block > r.registered {
		w.counts["released before registered"]++
	}
	w.ref.Release(r.h)
	w.ext.Release(r.h)
	i := slices.Index(w.live, r)
	w.live = slices.Delete(w.live, i, i+1)
	w.prompts = append(w.prompts, r.prompt)
}

// compare holds the two pools equal in everything that has no block id in it: counts, hits of some paths, changes of
// content in order, and the whole free queue.
func (w *world) compare() error {
	if a, b := w.ref.Free(), w.ext.Free(); a != b {
		return fmt.Errorf("%d free, extent %d", a, b)
	}
	if a, b := w.ref.Bare(), w.ext.Bare(); a != b {
		return fmt.Errorf("%d bare, extent %d", a, b)
	}
	for _, n := range []int32{1, 7, w.ref.Free()} {
		if a, b := w.ref.Oldest(n, nil), slices.Compact(w.ext.Oldest(n, nil)); !slices.Equal(a, b) {
			return fmt.Errorf("the next %d blocks evict of streams %v, extent %v", n, a, b)
		}
	}
	if a, b := w.ref.Evicted(), w.ext.Evicted(); a != b {
		return fmt.Errorf("%d blocks evicted, extent %d", a, b)
	}
	if a, b := w.ref.Cached(), w.ext.Cached(); a != b {
		return fmt.Errorf("%d cached, extent %d", a, b)
	}
	for range 3 {
		if len(w.prompts) == 0 {
			break
		}
		p := w.prompts[len(w.prompts)-1-w.c.intn(min(len(w.prompts), 16))]
		limit := int32(w.c.intn(int(p.Tokens/w.block) + 2))
		path := w.path(p)
		a, b := w.ref.Lookup(path, limit)
		c, d := w.ext.Lookup(path, limit)
		if a != c || b != d {
			return fmt.Errorf("lookup %v limit %d: %d hits, %d idle, extent %d, %d", path, limit, a, b, c, d)
		}
	}
	for i, p := range []Pool{w.ref, w.ext} {
		w.content[i] = contentOf(p.Events(), w.content[i][:0])
		p.ClearEvents()
	}
	if !slices.Equal(w.content[0], w.content[1]) {
		return fmt.Errorf("events %+v, extent %+v", w.content[0], w.content[1])
	}
	for _, e := range w.content[0] {
		w.counts[[]string{Stored: "stored", Evicted: "evicted", Cleared: "cleared"}[e.Kind]] += int(e.Hi - e.Lo)
	}
	w.queues[0] = w.ref.queueContent(w.queues[0][:0])
	w.queues[1] = w.ext.queueContent(w.queues[1][:0])
	if !slices.Equal(w.queues[0], w.queues[1]) {
		return fmt.Errorf("free queue %v, extent %v", w.queues[0], w.queues[1])
	}
	return nil
}

// contentOf appends events with evictions block by block and without block ids.
func contentOf(events, dst []Event) []Event {
	for _, e := range events {
		e.Block = 0
		if e.Kind != Evicted {
			dst = append(dst, e)
			continue
		}
		for lo, hi := e.Lo, e.Hi; hi > lo; hi-- {
			e.Lo, e.Hi = hi-1, hi
			dst = append(dst, e)
		}
	}
	return dst
}

// bareKey stands for a free block without content.
var bareKey = key{prefix.None, 0}

func (p *Reference) queueContent(dst []key) []key {
	for b := p.blocks[0].next; b != 0; b = p.blocks[b].next {
		if p.blocks[b].hashed {
			dst = append(dst, p.blocks[b].key)
		} else {
			dst = append(dst, bareKey)
		}
	}
	return dst
}

func (p *Extent) queueContent(dst []key) []key {
	for range p.bare {
		dst = append(dst, bareKey)
	}
	for i := p.oldestIdle; i != nowhere; i = p.pieces[i].newer {
		x := p.pieces[i]
		for b := x.hi - 1; b >= x.lo; b-- {
			dst = append(dst, key{p.contents[p.lanes[x.lane].content].stream, b})
		}
	}
	return dst
}

// run does n operations, testing the extent pool's own invariants after every one of them, releases everything and
// compares once more.
func (w *world) run(n int) error {
	for i := range n {
		if err := w.step(); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		if err := w.ext.check(); err != nil {
			return fmt.Errorf("operation %d: %s: %w", i, w.op, err)
		}
	}
	for len(w.live) > 0 {
		w.release(w.live[0])
		if err := errors.Join(w.compare(), w.ext.check()); err != nil {
			return fmt.Errorf("last releases: %w", err)
		}
	}
	return w.reset()
}

func TestPoolsAgree(t *testing.T) {
	const each = 400
	counts := map[string]int{}
	for seed := range uint64(*fuzzOps / each) {
		w := newWorld(newSeeded(seed))
		if err := w.run(each); err != nil {
			t.Fatalf("seed %d: %d blocks of %d tokens, caching %v: %v", seed, w.ref.Usable(), w.block, w.caching, err)
		}
		for k, n := range w.counts {
			counts[k] += n
		}
		counts["streams"] += w.tree.Len()
	}
	t.Log(counts)
	for _, k := range []string{"hit blocks", "stored", "evicted", "reset true", "reset false", "released before registered", "registered beside a copy"} {
		if counts[k] < *fuzzOps/1000 {
			t.Errorf("only %d %s: the run tests nothing of it", counts[k], k)
		}
	}
}

func TestPoolsAgreeRapid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapidChooser{t})
		if err := w.run(rapid.IntRange(1, 60).Draw(t, "operations")); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzPools(f *testing.F) {
	f.Add([]byte("a few operations on a small pool, chosen by these bytes"))
	c := newSeeded(3)
	for range 4 {
		b := make([]byte, 2000)
		for i := range b {
			b[i] = byte(c.intn(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &byteChooser{b}
		w := newWorld(c)
		for i := 0; len(c.b) > 0 && i < 2000; i++ {
			if err := errors.Join(w.step(), w.ext.check()); err != nil {
				t.Fatalf("operation %d: %v", i, err)
			}
		}
	})
}
