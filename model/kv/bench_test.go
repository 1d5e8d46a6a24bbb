package kv

import (
	"fmt"
	"testing"

	"github.com/sluice-sim/sluice/prefix"
)

const added = 8 // blocks by which a turn of steady exceeds its history

// steady plays turns on a history of n blocks in a pool that is full of old turns: each turn finds the history, adds
// blocks of its own, of which the oldest turns make room, and leaves them behind.
type steady struct {
	p    Pool
	path []prefix.Segment
	turn int32
}

func newSteady(p Pool, n int32) *steady {
	s := &steady{p: p, path: []prefix.Segment{{Stream: 0, Lo: 0, Hi: n}, {Lo: n, Hi: n + added}}}
	h := p.Open()
	p.Grow(h, n)
	p.Register(h, s.path, 0, n)
	p.Release(h)
	for p.Cached() < int64(p.Usable()-added) {
		s.play()
	}
	for range 100 {
		s.play()
	}
	return s
}

func (s *steady) play() {
	n := s.path[0].Hi
	s.turn++
	s.path[1].Stream = prefix.StreamID(1 + s.turn%4096)
	hits, _ := s.p.Lookup(s.path, n+added-1)
	if hits != n {
		panic(fmt.Sprintf("%d hits of %d", hits, n))
	}
	h := s.p.Open()
	s.p.Hold(h, s.path, hits)
	for at := n; at < n+added; at += added / 2 {
		s.p.Grow(h, added/2)
		s.p.Register(h, s.path, at, at+added/2)
	}
	s.p.Grow(h, 1)
	s.p.Release(h)
}

func TestNoAllocationUnderEviction(t *testing.T) {
	p := NewExtent(8192, true)
	s := newSteady(p, 4096)
	if n := testing.AllocsPerRun(2000, s.play); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
	if p.check() != nil || p.bare > added {
		t.Errorf("pool is not full: %d bare; %v", p.bare, p.check())
	}
}

var pools = []struct {
	name string
	make func(usable int32) Pool
}{
	{"reference", func(n int32) Pool { return NewReference(n, true) }},
	{"extent", func(n int32) Pool { return NewExtent(n, true) }},
}

// BenchmarkTurn is one turn under steady eviction. The extent pool must not depend on the number of blocks.
func BenchmarkTurn(b *testing.B) {
	for _, pool := range pools {
		for _, n := range []int32{256, 2048, 8192, 32768} {
			b.Run(fmt.Sprintf("%s/blocks=%d", pool.name, n), func(b *testing.B) {
				s := newSteady(pool.make(n+4096), n)
				b.ReportAllocs()
				for b.Loop() {
					s.play()
				}
			})
		}
	}
}

// BenchmarkColdTurn is a turn that finds nothing and evicts as much as it computes.
func BenchmarkColdTurn(b *testing.B) {
	for _, pool := range pools {
		for _, n := range []int32{256, 32768} {
			b.Run(fmt.Sprintf("%s/blocks=%d", pool.name, n), func(b *testing.B) {
				p := pool.make(3 * n)
				path := one(0, n)
				b.ReportAllocs()
				for b.Loop() {
					path[0].Stream = (path[0].Stream + 1) % 64
					p.Lookup(path, n-1)
					h := p.Open()
					p.Grow(h, n)
					p.Register(h, path, 0, n)
					p.Release(h)
				}
			})
		}
	}
}

// BenchmarkForks is a turn on one of many forks from one history, each at a place of its own, so that the history is
// as many pieces as there are forks.
func BenchmarkForks(b *testing.B) {
	const n = 32768
	for _, pool := range pools {
		for _, forks := range []int{16, 256, 4096} {
			b.Run(fmt.Sprintf("%s/forks=%d", pool.name, forks), func(b *testing.B) {
				p := pool.make(n + int32(forks))
				c := newSeeded(1)
				at := make([]int32, forks)
				for i := range at {
					at[i] = 1 + int32(c.intn(n-1))
				}
				path := make([]prefix.Segment, 2)
				b.ReportAllocs()
				for b.Loop() {
					i := c.intn(forks)
					path[0] = prefix.Segment{Stream: 0, Lo: 0, Hi: at[i]}
					path[1] = prefix.Segment{Stream: prefix.StreamID(1 + i), Lo: at[i], Hi: at[i] + 1}
					turnOn(p, path, n)
				}
			})
		}
	}
}

// BenchmarkLanes is a turn on a history of which there are many copies: of its last block only, as when a prompt of full
// blocks comes again and again, or of all of it, as from requests that do not read the cache. Of the latter each turn
// evicts the oldest, which is the one that lookups find.
func BenchmarkLanes(b *testing.B) {
	const n = 256
	for _, pool := range pools {
		for _, lanes := range []int32{1, 16, 256, 4096} {
			for _, whole := range []bool{false, true} {
				usable, limit, name := n+lanes-1, int32(n-1), "tails"
				if whole && lanes > 256 {
					continue // takes minutes to fill the reference pool
				}
				if whole {
					usable, limit, name = n*lanes, 0, "whole"
				}
				b.Run(fmt.Sprintf("%s/%s=%d", pool.name, name, lanes), func(b *testing.B) {
					p := pool.make(usable)
					path := one(0, n)
					for range lanes + 1 {
						turnOn(p, path, limit)
					}
					b.ReportAllocs()
					for b.Loop() {
						turnOn(p, path, limit)
					}
				})
			}
		}
	}
}

// turnOn computes path, with hits up to limit, and releases it.
func turnOn(p Pool, path []prefix.Segment, limit int32) {
	n := path[len(path)-1].Hi
	hits, _ := p.Lookup(path, limit)
	h := p.Open()
	p.Hold(h, path, hits)
	p.Grow(h, n-hits)
	p.Register(h, path, hits, n)
	p.Release(h)
}

// BenchmarkIndex is the price of finding a stream: the open-addressing index against a slice with an entry for every
// stream that ever was.
func BenchmarkIndex(b *testing.B) {
	const streams, resident = 1 << 20, 1 << 10
	c := newSeeded(1)
	ids := make([]prefix.StreamID, resident)
	for i := range ids {
		ids[i] = prefix.StreamID(c.intn(streams))
	}
	b.Run("index", func(b *testing.B) {
		x := newStreamIndex()
		for i, s := range ids {
			x.set(s, int32(i))
		}
		for i := 0; b.Loop(); i++ {
			_ = x.get(ids[i%resident])
		}
		b.ReportMetric(float64(8*len(x.slots)), "bytes")
	})
	b.Run("slice", func(b *testing.B) {
		x := make([]int32, streams)
		for i := 0; b.Loop(); i++ {
			_ = x[ids[i%resident]]
		}
		b.ReportMetric(4*streams, "bytes")
	})
}
