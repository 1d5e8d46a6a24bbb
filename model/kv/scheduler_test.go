package kv

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/prefix"
)

// scheduler drives both pools the way vLLM's scheduler does: running requests first, preempting the last when blocks
// are short, then the head of the queue with its hits, registering at schedule time or, for blocks filled by decoding
// under asynchronous scheduling, one update later (spec: vllm 3-9). It plays sessions whose turns extend each other.
type scheduler struct {
	c        chooser
	block    int32
	budget   int32
	async    bool
	tree     prefix.Tree
	ref, ext Pool
	running  []*turn
	waiting  []*turn
	idle     []*turn // between turns
	segs     []prefix.Segment

	hits, evicted, preempted, copies int64
}

type turn struct {
	h              Handle
	stream         prefix.StreamID
	tokens, stop   int32 // tokens so far, and at the end of the turn
	computed       int32
	held, cached   int32 // blocks in the table, and registered
	turns, restart int32
}

func (s *scheduler) path(r *turn) []prefix.Segment {
	s.segs = s.tree.Segments(prefix.Prefix{Stream: r.stream, Tokens: r.tokens}, s.block, s.segs[:0])
	return s.segs
}

// allocate takes what r needs to compute n more tokens and registers full blocks, or returns false.
func (s *scheduler) allocate(r *turn, n int32) bool {
	need := (r.computed+n+s.block-1)/s.block - r.held
	if need > s.ref.Free() {
		return false
	}
	if need > 0 {
		s.ref.Grow(r.h, need)
		s.ext.Grow(r.h, need)
		r.held += need
	}
	known := r.computed + n
	if s.async && r.computed == r.tokens-1 {
		known = r.computed // the token in flight is not known yet
	}
	r.computed += n
	s.register(r, known)
	return true
}

func (s *scheduler) register(r *turn, tokens int32) {
	to := tokens / s.block
	if to <= r.cached {
		return
	}
	path := s.path(r)
	s.ref.Register(r.h, path, r.cached, to)
	s.ext.Register(r.h, path, r.cached, to)
	r.cached = to
}

func (s *scheduler) release(r *turn) {
	s.ref.Release(r.h)
	s.ext.Release(r.h)
	r.computed, r.held, r.cached = 0, 0, 0
}

// admit considers the head of the queue.
func (s *scheduler) admit(left int32) (used int32, ok bool, err error) {
	r := s.waiting[0]
	path := s.path(r)
	hits, idle := s.ref.Lookup(path, (r.tokens-1)/s.block)
	if h, i := s.ext.Lookup(path, (r.tokens-1)/s.block); h != hits || i != idle {
		return 0, false, fmt.Errorf("lookup of %+v: %d hits, %d idle, extent %d, %d", *r, hits, idle, h, i)
	}
	if (r.tokens+s.block-1)/s.block-hits+idle > s.ref.Free() {
		return 0, false, nil
	}
	r.h = s.ref.Open()
	s.ext.Open()
	s.ref.Hold(r.h, path, hits)
	s.ext.Hold(r.h, path, hits)
	r.computed, r.held, r.cached = hits*s.block, hits, hits
	n := min(left, r.tokens-r.computed)
	if !s.allocate(r, n) {
		return 0, false, fmt.Errorf("%+v does not fit after the check", *r)
	}
	s.hits += int64(hits)
	s.waiting = s.waiting[1:]
	s.running = append(s.running, r)
	return n, true, nil
}

func (s *scheduler) step() error {
	left := s.budget
	preempted := false
	for i := 0; i < len(s.running) && left > 0; i++ {
		r := s.running[i]
		n := min(left, r.tokens-r.computed)
		for !s.allocate(r, n) {
			last := s.running[len(s.running)-1]
			s.running = s.running[:len(s.running)-1]
			s.release(last)
			s.waiting = slices.Insert(s.waiting, 0, last)
			s.preempted++
			preempted = true
			if last == r {
				n = 0
				break
			}
		}
		left -= n
	}
	for len(s.waiting) > 0 && left > 0 && !preempted {
		n, ok, err := s.admit(left)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		left -= n
	}
	s.update()
	return s.compare()
}

// update gives every request that computed all its tokens one more, and ends turns.
func (s *scheduler) update() {
	still := s.running[:0]
	for _, r := range s.running {
		if r.computed == r.tokens {
			r.tokens++
			s.register(r, r.computed)
		}
		if r.tokens >= r.stop {
			s.release(r)
			s.idle = append(s.idle, r)
			continue
		}
		still = append(still, r)
	}
	s.running = still
	for len(s.idle) > 0 && s.c.intn(3) != 0 {
		s.next(s.c.intn(len(s.idle)))
	}
}

// next starts the next turn of idle session i: it appends to the history, cuts it back (compaction, or a retry with
// another answer), repeats the last prompt word for word, or begins anew.
func (s *scheduler) next(i int) {
	r := s.idle[i]
	s.idle = slices.Delete(s.idle, i, i+1)
	r.turns++
	switch {
	case r.turns > r.restart:
		r.turns, r.restart = 0, int32(s.c.intn(20))
		r.stream, r.tokens = s.tree.Fork(prefix.Prefix{Stream: 0, Tokens: 10 * s.block}), 10*s.block
	case s.c.intn(6) == 0:
		r.tokens = max(10*s.block, r.tokens-int32(s.c.intn(int(r.tokens))))
		r.stream = s.tree.Fork(prefix.Prefix{Stream: r.stream, Tokens: r.tokens})
	case s.c.intn(6) == 0: // the last block of a full hit is computed again
		r.tokens = r.tokens / s.block * s.block
		r.stop = r.tokens + 1 + int32(s.c.intn(3))
		s.copies++
		s.waiting = append(s.waiting, r)
		return
	}
	r.tokens += 1 + int32(s.c.intn(int(20*s.block)))
	r.stop = r.tokens + 1 + int32(s.c.intn(int(12*s.block)))
	s.waiting = append(s.waiting, r)
}

func (s *scheduler) compare() error {
	if s.ref.Free() != s.ext.Free() || s.ref.Cached() != s.ext.Cached() {
		return fmt.Errorf("%d free, %d cached; extent %d, %d", s.ref.Free(), s.ref.Cached(), s.ext.Free(), s.ext.Cached())
	}
	a, b := contentOf(s.ref.Events(), nil), contentOf(s.ext.Events(), nil)
	if !slices.Equal(a, b) {
		return fmt.Errorf("events %+v, extent %+v", a, b)
	}
	for _, e := range a {
		if e.Kind == Evicted {
			s.evicted++
		}
	}
	s.ref.ClearEvents()
	s.ext.ClearEvents()
	return nil
}

func TestPoolsAgreeUnderScheduler(t *testing.T) {
	const usable, steps = 800, 10_000
	for seed := range uint64(4) {
		ext := NewExtent(usable, true)
		s := &scheduler{
			c: newSeeded(seed), block: []int32{16, 4}[seed/2], async: seed%2 == 1,
			ref: NewReference(usable, true), ext: ext,
		}
		s.budget = 40 * s.block
		s.ref.Record(true, true)
		s.ext.Record(true, true)
		s.tree.Root()
		for range 24 {
			s.idle = append(s.idle, &turn{})
		}
		for i := range steps {
			err := s.step()
			if err == nil && i%100 == 0 {
				err = ext.check()
			}
			if err != nil {
				t.Fatalf("seed %d step %d: %v", seed, i, err)
			}
		}
		t.Logf("seed %d: %d hit blocks, %d evicted, %d preemptions, %d full hits, %d pieces, %d lanes", seed, s.hits, s.evicted, s.preempted, s.copies, len(ext.pieces), len(ext.lanes))
		if s.hits < 10*usable || s.evicted < 10*usable || s.preempted < 10 || s.copies < 10 {
			t.Errorf("seed %d: too little happened", seed)
		}
	}
}
