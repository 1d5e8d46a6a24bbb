package engine

import (
	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// A request that decodes fills blocks of a stream that, nearly always, nobody else asks for as long as it lives. Registering
// such a block can wait until the request lets go of its blocks: nothing but the number of cached blocks, which Cached
// corrects, and a lookup of that stream, which Resident corrects, could tell. Until then a decode step touches nothing but
// the request itself.
//
// A request is eager, and registers its blocks as they fill, where another live request has its stream on its path, or where
// the blocks that it is about to fill are resident already.

// lateness is what a request's late registration goes by.
type lateness struct {
	ownFrom int32 // the first block of the end of its path, which belongs to one stream, that may be late
	ready   int32 // leading blocks that are full; those from cached on are not registered yet
	due     int32 // of these, those that were full at the end of the last step
	owed    int32 // blocks taken from the pool that are not in the table yet
}

// RegisterLate lets the engine register blocks late where nobody can tell, and says whether it will: it needs the extent pool
// and no CPU tier. To be called before anything else.
func (e *Engine) RegisterLate() bool {
	pool, ok := e.pool.(*kv.Extent)
	if ok = ok && e.tier == nil && e.cfg.PrefixCaching; ok {
		e.late = pool
	}
	return ok
}

// bit is the bit of a stream in request.streams.
func bit(s prefix.StreamID) uint32 { return 1 << (uint32(s) * 0x9E3779B1 >> 27) }

// meet prepares a request that arrives: which of those that live, it included, must register their blocks as they fill.
func (e *Engine) meet(s Slot) {
	r := &e.requests[s]
	n := len(r.path)
	if n == 0 {
		r.eager = true
		return
	}
	r.own, r.ownFrom = r.path[n-1].Stream, max(1, r.path[n-1].Lo) // that a replica holds anything is told at once
	for i := range r.path {
		r.streams |= bit(r.path[i].Stream)
	}
	e.meetAll(r, e.running)
	e.meetAll(r, e.waiting.slots())
	e.meetAll(r, e.skipped.slots())
}

func (e *Engine) meetAll(r *request, others []Slot) {
	for _, o := range others {
		x := &e.requests[o]
		if x == r {
			continue
		}
		if !x.eager && r.streams&bit(x.own) != 0 && onPath(r.path, x.own) {
			x.eager = true
			e.flush(x)
		}
		if !r.eager && x.streams&bit(r.own) != 0 && onPath(x.path, r.own) {
			r.eager = true
		}
	}
}

// mayWait tells whether the registration of the full blocks of r, of which tokens are the first, can wait.
func (e *Engine) mayWait(r *request, tokens int32) bool {
	return e.late != nil && !r.eager && r.cached >= r.ownFrom && tokens > r.prompt.Tokens
}

// flush brings the pool up to date with a request that holds blocks.
func (e *Engine) flush(r *request) {
	e.flushDue(r)
	e.pay(r)
	if r.ready > r.cached {
		e.pool.Register(r.table, r.path, r.cached, r.ready)
		r.cached = r.ready
	}
}

// pay gives the table the blocks that it is owed.
func (e *Engine) pay(r *request) {
	if r.owed > 0 {
		e.late.Give(r.table, r.owed)
		r.owed = 0
	}
}

// flushDue registers the blocks that were full at the end of the last step.
func (e *Engine) flushDue(r *request) {
	if r.due <= r.cached {
		return
	}
	e.pay(r)
	first := len(e.pool.Events())
	e.pool.Register(r.table, r.path, r.cached, r.due)
	r.cached = r.due
	for k := range e.pool.Events()[first:] {
		e.pool.Events()[first+k].Late = true
	}
}

// FlushDue registers the blocks of running requests that were full at the end of the last step.
func (e *Engine) FlushDue() {
	for _, s := range e.running {
		e.flushDue(&e.requests[s])
	}
}

// Cached is the number of distinct blocks of content that are resident.
func (e *Engine) Cached() int64 {
	n := e.pool.Cached()
	if e.late != nil {
		for _, s := range e.running {
			r := &e.requests[s]
			n += int64(r.ready - r.cached)
		}
	}
	return n
}

// Resident is how many leading blocks of path, at most limit, are resident.
func (e *Engine) Resident(path []prefix.Segment, limit int32) int32 {
	hits, _ := e.pool.Lookup(path, limit)
	if e.late == nil {
		return hits
	}
	for _, s := range e.running {
		r := &e.requests[s]
		if r.ready == r.cached || hits != r.cached {
			continue
		}
		for i := range path {
			if path[i].Stream == r.own {
				hits = max(hits, min(r.ready, path[i].Hi, limit))
			}
		}
	}
	return hits
}

// Unregistered is up to which block, exclusive, a running request has filled blocks of the stream that the end of its path
// belongs to; ok is false if these are all registered.
func (e *Engine) Unregistered(s Slot) (own prefix.StreamID, hi int32, ok bool) {
	r := &e.requests[s]
	return r.own, r.ready, r.ready > r.cached
}
