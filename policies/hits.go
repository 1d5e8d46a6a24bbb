package policies

import "github.com/sluice-sim/sluice/prefix"

// segmentsOf is which streams own which blocks of p. Streams never split, so the last answer stays right until a slot of the
// tree changes hands.
func (x *index) segmentsOf(p prefix.Prefix, blockTokens int32) []prefix.Segment {
	if x.segmented != p || x.segmentBy != blockTokens || x.segmentAt != x.tree.Changes() {
		x.segments = x.tree.Segments(p, blockTokens, x.segments[:0])
		x.segmented, x.segmentBy, x.segmentAt = p, blockTokens, x.tree.Changes()
	}
	return x.segments
}

// hit is View.HitTokens.
func (x *index) hit(r ReplicaID, p prefix.Prefix) (tokens int32, ok bool) {
	if int(r) >= len(x.blockTokens) || r < 0 || x.blockTokens[r] == 0 {
		return 0, false
	}
	return x.follow(r, p, false), true
}

// wideHit is r's hit by wide streams alone: the same for all replicas of its class.
func (x *index) wideHit(r ReplicaID, p prefix.Prefix) int32 {
	if x.blockTokens[r] == 0 {
		return 0
	}
	return x.follow(r, p, true)
}

// follow is the tokens of p that r holds, up to the first stream that is not wide if wide is set.
func (x *index) follow(r ReplicaID, p prefix.Prefix, wide bool) int32 {
	reach := int32(0)
	for _, g := range x.segmentsOf(p, x.blockTokens[r]) {
		if reach < g.Lo || int(g.Stream) >= len(x.streams) || wide && x.streams[g.Stream].table == noSlot {
			break
		}
		at := x.find(g.Stream, r)
		if at == noSlot || x.holders[at].extent <= g.Lo {
			break
		}
		reach = min(x.holders[at].extent, g.Hi)
	}
	return hitTokens(reach, x.blockTokens[r], p)
}

// widePath is the last of p's streams up to which all are wide; None if the first is not.
func (x *index) widePath(p prefix.Prefix) prefix.StreamID {
	last := prefix.None
	for _, b := range x.sizes {
		for _, g := range x.segmentsOf(p, b) {
			if int(g.Stream) >= len(x.streams) || x.streams[g.Stream].table == noSlot {
				break
			}
			if last == prefix.None || x.tree.Stream(g.Stream).ForkAt > x.tree.Stream(last).ForkAt {
				last = g.Stream
			}
		}
	}
	return last
}

// classOn is what r holds of the wide streams from s to its root, and its block size, as one number.
func (x *index) classOn(s prefix.StreamID, r ReplicaID) uint64 {
	class := classOfSize(x.blockTokens[r])
	for ; s != prefix.None; s = x.tree.Stream(s).Parent {
		if x.streams[s].table == noSlot {
			continue
		}
		if at := x.find(s, r); at != noSlot {
			class ^= classOfExtent(s, x.holders[at].extent)
		}
	}
	return class
}

// firstNarrow is the first holder of the first stream of p that is not wide: with those after it, all replicas whose hit
// may be more than that of their class, among those whose blocks have blockTokens tokens.
func (x *index) firstNarrow(p prefix.Prefix, blockTokens int32) int32 {
	for _, g := range x.segmentsOf(p, blockTokens) {
		if int(g.Stream) >= len(x.streams) {
			return noSlot
		}
		if st := &x.streams[g.Stream]; st.table == noSlot {
			return st.first
		}
	}
	return noSlot
}

// hits is View.AllHitTokens.
func (x *index) hits(p prefix.Prefix, dst []int32) {
	for i := range dst {
		dst[i] = -1
		if x.blockTokens[i] > 0 {
			dst[i] = 0
		}
	}
	for _, b := range x.sizes {
		clear(x.reach)
		for _, g := range x.segmentsOf(p, b) {
			if int(g.Stream) >= len(x.streams) {
				continue
			}
			for at := x.streams[g.Stream].first; at != noSlot; at = x.holders[at].next {
				h := &x.holders[at]
				if x.reach[h.replica] >= g.Lo && h.extent > g.Lo {
					x.reach[h.replica] = min(h.extent, g.Hi)
				}
			}
		}
		for i, reach := range x.reach {
			if reach > 0 && x.blockTokens[i] == b {
				dst[i] = hitTokens(reach, b, p)
			}
		}
	}
}

// hitTokens is the tokens of the first blocks of p, at most the whole blocks before its last token.
func hitTokens(blocks, blockTokens int32, p prefix.Prefix) int32 {
	return max(0, min(blocks, (p.Tokens-1)/blockTokens)) * blockTokens
}
