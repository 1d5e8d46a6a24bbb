package kv

import "github.com/sluice-sim/sluice/prefix"

// runCounts is lookupCounts in runs: a piece is chunks looked up equally often, one after the other. Lookups end where
// nothing is stored, so that the leading chunks of a path have been looked up more and more often; counts therefore go no
// further than the threshold.
type runCounts struct {
	cpuPieces
	limit     int32 // chunks counted
	threshold int32
}

// add counts one lookup of chunks of a path, in order.
func (c *runCounts) add(path []prefix.Segment, from, to int32) {
	for _, s := range path {
		at, hi := max(s.Lo, from), min(s.Hi, to)
		for at < hi {
			i := c.find(s.Stream, at)
			if i != nowhere && c.pieces[i].lo <= at {
				i = c.isolate(i, at, hi)
				at = c.pieces[i].hi
				c.unlink(i)
				c.pieces[i].ref = min(c.pieces[i].ref+1, c.threshold)
				c.push(recent, i, true)
				continue
			}
			end := min(hi, at+c.limit)
			if i != nowhere {
				end = min(end, c.pieces[i].lo)
			}
			c.forget(c.lists[recent].len + end - at - c.limit)
			c.push(recent, c.newPiece(cpuPiece{stream: s.Stream, lo: at, hi: end, ref: 1}), true)
			at = end
		}
	}
}

// forget drops the n chunks looked up longest ago.
func (c *runCounts) forget(n int32) {
	for n > 0 {
		i := c.lists[recent].head
		k := min(n, c.pieces[i].hi-c.pieces[i].lo)
		i = c.oldest(i, k)
		c.unlink(i)
		c.drop(i)
		n -= k
	}
}

// reaching appends those of chunks [lo, hi) of stream s to dst that were looked up as often as the threshold asks for.
func (c *runCounts) reaching(s prefix.StreamID, lo, hi int32, dst []prefix.Segment) []prefix.Segment {
	for i := c.find(s, lo); i != nowhere && c.pieces[i].lo < hi; i = c.pieces[i].right {
		x := &c.pieces[i]
		if x.ref < c.threshold {
			continue
		}
		a, b := max(x.lo, lo), min(x.hi, hi)
		if last := len(dst) - 1; last >= 0 && dst[last].Stream == s && dst[last].Hi == a {
			dst[last].Hi = b
		} else {
			dst = append(dst, prefix.Segment{Stream: s, Lo: a, Hi: b})
		}
	}
	return dst
}
