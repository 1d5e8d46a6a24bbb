package sim

import (
	"github.com/sluice-sim/sluice/prefetch"
	"github.com/sluice-sim/sluice/prefix"
)

// history is what content was ever computed, in whole blocks: of every stream, the end of the part that was registered,
// since computation goes from the head of a stream on. What only one session has is forgotten with the session.
type history struct {
	at       []int32 // by stream: its place in known, unknown, or over
	known    []known // place 0 is of no stream
	spare    []int32
	replicas int
}

const (
	unknown int32 = 0
	over    int32 = -1 // the only session that had it has ended
)

// manyHolders is how many replicas hold some of a stream before it gets a table of them.
const manyHolders = 8

// known is what was computed of one stream, and where.
type known struct {
	anywhere int32
	writers  int32    // dispatched attempts whose output goes there
	holders  []holder // in the order in which they first held some of it
	table    []int32  // by replica: place in holders + 1; nil while there are few
	evictors []evictor
}

// holder is a replica that ever held some of a stream.
type holder struct {
	replica int32
	here    int32 // computed since it started
	lost    int32 // before that
}

// extent says which computation counts.
type extent uint8

const (
	anywhere extent = iota
	here
	lost
)

func newHistory(replicas, streams int) history {
	return history{at: make([]int32, streams), known: make([]known, 1), replicas: replicas}
}

// of is what is known of a stream, nil for nothing.
func (h *history) of(s prefix.StreamID) *known {
	if int(s) >= len(h.at) || h.at[s] <= 0 {
		return nil
	}
	return &h.known[h.at[s]]
}

// enter is of, with an entry made for a stream that has none; nil for one that is over.
func (h *history) enter(s prefix.StreamID) *known {
	for int(s) >= len(h.at) {
		h.at = append(h.at, unknown)
	}
	switch at := h.at[s]; {
	case at == over:
		return nil
	case at > 0:
		return &h.known[at]
	}
	if n := len(h.spare); n > 0 {
		h.at[s], h.spare = h.spare[n-1], h.spare[:n-1]
	} else {
		h.at[s] = int32(len(h.known))
		h.known = append(h.known, known{})
	}
	return &h.known[h.at[s]]
}

// end forgets a stream for good; false if that was done.
func (h *history) end(s prefix.StreamID) bool {
	for int(s) >= len(h.at) {
		h.at = append(h.at, unknown)
	}
	at := h.at[s]
	if at == over {
		return false
	}
	h.at[s] = over
	if at != unknown {
		x := &h.known[at]
		*x = known{holders: x.holders[:0], evictors: x.evictors[:0]}
		h.spare = append(h.spare, at)
	}
	return true
}

// restarted notes that replica i lost all that it held.
func (h *history) restarted(i int32) {
	for k := range h.known {
		if x := h.known[k].holder(i); x != nil {
			x.lost, x.here = max(x.lost, x.here), 0
		}
	}
}

func (k *known) holder(replica int32) *holder {
	if k.table != nil {
		if at := k.table[replica]; at > 0 {
			return &k.holders[at-1]
		}
		return nil
	}
	for n := range k.holders {
		if k.holders[n].replica == replica {
			return &k.holders[n]
		}
	}
	return nil
}

func (h *history) computed(replica int32, s prefix.StreamID, hi int32) {
	k := h.enter(s)
	if k == nil {
		return
	}
	k.anywhere = max(k.anywhere, hi)
	x := k.holder(replica)
	if x == nil {
		x = k.add(replica, h.replicas)
	}
	x.here = max(x.here, hi)
}

func (k *known) add(replica int32, replicas int) *holder {
	k.holders = append(k.holders, holder{replica: replica})
	switch n := len(k.holders); {
	case k.table != nil:
		k.table[replica] = int32(n)
	case n > manyHolders:
		k.table = make([]int32, replicas)
		for i := range k.holders {
			k.table[k.holders[i].replica] = int32(i + 1)
		}
	}
	return &k.holders[len(k.holders)-1]
}

// holders are the replicas that ever held some of the stream that block at of a path belongs to.
func (h *history) holders(path []prefix.Segment, at int32) []holder {
	for _, s := range path {
		if at < s.Hi {
			if k := h.of(s.Stream); k != nil {
				return k.holders
			}
			return nil
		}
	}
	return nil
}

// reach is how many leading blocks of path, at most limit, were ever computed; where that matters, by a replica.
func (h *history) reach(which extent, replica int32, path []prefix.Segment, limit int32) int32 {
	for _, s := range path {
		end := int32(0)
		if k := h.of(s.Stream); k != nil {
			end = k.end(which, replica)
		}
		if hi := min(s.Hi, limit); end < hi {
			return max(end, s.Lo)
		} else if hi == limit {
			return limit
		}
	}
	if n := len(path); n > 0 {
		return min(path[n-1].Hi, limit)
	}
	return 0
}

func (k *known) end(which extent, replica int32) int32 {
	if which == anywhere {
		return k.anywhere
	}
	x := k.holder(replica)
	switch {
	case x == nil:
		return 0
	case which == here:
		return x.here
	}
	return x.lost
}

// forget ends the streams that only this session had.
func (r *run) forget(ss *sessionState) {
	for i := range ss.forks {
		r.history.end(ss.forks[i].run)
	}
	for i := range ss.trace.Turns {
		for s := ss.trace.Turns[i].Prompt.Stream; s != prefix.None && !r.survey.Shared(s) && r.history.end(s); s = r.tree.Stream(s).Parent {
		}
	}
}

// prefetch asks for what is known of a stream, stage by stage.
func (h *history) prefetch(s prefix.StreamID, stage int) {
	if int(s) >= len(h.at) {
		return
	}
	if stage == 0 {
		prefetch.Value(&h.at[s])
		return
	}
	k := h.of(s)
	switch {
	case k == nil:
	case stage == 1:
		prefetch.Value(k)
	default:
		prefetch.Slice(k.holders)
		prefetch.Slice(k.evictors)
	}
}
