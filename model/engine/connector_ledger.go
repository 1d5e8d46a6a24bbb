package engine

import "github.com/sluice-sim/sluice/model/kv"

// connector is the scheduler's side of a tier behind the GPU's block pool (spec: vllm 14.1).
type connector interface {
	// begin precedes a schedule call, decide follows it.
	begin(e *Engine)
	decide(e *Engine, st *Step)
	// lookup asks what the tier has behind gpu tokens of a waiting request; load begins the load of that into blocks that
	// are allocated.
	lookup(e *Engine, s Slot, gpu int32) Lookup
	load(e *Engine, s Slot, l Lookup)
	// asynchronous tells whether a request waits for its load; otherwise it joins the step at once, which then takes
	// longer.
	asynchronous() bool
	// end precedes the release of a request's blocks at its end. abandon leaves the blocks of an aborted request to the
	// load that writes them; it returns false if none does.
	end(e *Engine, s Slot)
	abandon(e *Engine, s Slot) bool
	// giveBack releases a table to the pool.
	giveBack(e *Engine, table kv.Handle)
	// settle takes in the transfers reported.
	settle(e *Engine)
	// busy keeps the engine stepping.
	busy() bool
	// steady is how many more steps, all decodes of the running requests, change nothing here; jumped follows n of them.
	// settled tells whether looking a waiting request up again, as the last schedule call did, changes nothing.
	steady(e *Engine) int32
	settled(e *Engine, s Slot) bool
	jumped(n int32)
}

// ledger is what every connector keeps: lookups and loads of waiting requests, and frees that wait for an output.
type ledger struct {
	side     []side // by slot
	deferred []deferredFree
	seq      int64 // steps with work scheduled
	through  int64 // of these, processed

	Lookups  []Lookup    // of the last Schedule; a jump leaves them as they are. Valid until the next call.
	External PrefixStats // since the last TakeExternalStats
}

// Lookup is one question to the CPU tier on behalf of a waiting request.
type Lookup struct {
	Slot  Slot
	GPU   int32 // tokens found in the GPU's prefix cache
	CPU   int32 // further tokens that can be loaded
	Retry bool  // not known yet, to be asked again at the next step
}

// side is what the connector keeps of a live request.
type side struct {
	next    int32 // first chunk that was not stored or found
	jobs    int32 // under way
	gpu     int32 // tokens that its last load found in the GPU's prefix cache
	arrived bool  // its load has been reported
	last    int64 // number of the last step with work that it was scheduled in
}

// deferredFree is a table that goes back to the pool when the output of a step has been processed.
type deferredFree struct {
	table kv.Handle
	after int64
}

// TakeExternalStats returns the statistics of lookups in the CPU tier since the last call, vLLM's
// external_prefix_cache counters: queries are tokens that the GPU did not have.
func (o *ledger) TakeExternalStats() PrefixStats {
	s := o.External
	o.External = PrefixStats{}
	return s
}

// open prepares the connector's record of a new request.
func (o *ledger) open(s Slot) {
	for int(s) >= len(o.side) {
		o.side = append(o.side, side{})
	}
	o.side[s] = side{}
}

// scheduled notes which requests are in a step.
func (o *ledger) scheduled(st *Step) {
	if st.Tokens > 0 {
		o.seq++
	}
	for i := range st.Entries {
		o.side[st.Entries[i].Slot].last = o.seq
	}
}

// free gives a table back to the pool: at once, or, where a step that its request was scheduled in is still to be
// processed, when the last step scheduled so far has been.
func (e *Engine) free(s Slot) {
	o := e.ledger
	table := e.requests[s].table
	if e.cfg.Async && o.side[s].last > o.through {
		o.deferred = append(o.deferred, deferredFree{table, o.seq})
		return
	}
	e.tier.giveBack(e, table)
}

// processed frees what waited for the output of this step.
func (e *Engine) processed(st *Step) {
	o := e.ledger
	if st.Tokens > 0 {
		o.through++
	}
	n := 0
	for n < len(o.deferred) && o.deferred[n].after <= o.through {
		e.tier.giveBack(e, o.deferred[n].table)
		n++
	}
	o.deferred = o.deferred[:copy(o.deferred, o.deferred[n:])]
}

// ask looks up what the tier has behind gpu tokens of a waiting request.
func (e *Engine) ask(s Slot, gpu int32) Lookup {
	l := e.tier.lookup(e, s, gpu)
	e.ledger.Lookups = append(e.ledger.Lookups, l)
	return l
}

// load makes a request, whose blocks are allocated, wait for the CPU tier.
func (e *Engine) load(s Slot, f found) {
	r := &e.requests[s]
	gpu := f.hits * e.cfg.BlockTokens
	l := Lookup{Slot: s, GPU: gpu, CPU: f.cpu}
	e.count(r, gpu)
	e.ledger.count(r, l)
	x := &e.ledger.side[s]
	x.gpu, x.arrived = gpu, false
	e.tier.load(e, s, l)
	r.state = loading
	r.computed = gpu + f.cpu
}

// arrived tells whether a request that loads can go on. If so, what was loaded becomes hittable; of a prompt that is
// there as a whole the last token is computed anew.
func (e *Engine) arrived(s Slot) bool {
	r := &e.requests[s]
	if !e.ledger.side[s].arrived {
		return false
	}
	e.register(r, r.computed)
	if r.computed == r.tokens {
		r.computed--
	}
	r.state = waiting
	return true
}

// admitTiered completes an admission: of a request that has waited for its load, or that was looked up just now.
func (e *Engine) admitTiered(r *request, a *Admission, f found) {
	if r.computed > 0 {
		a.CPU = a.Hit - e.ledger.side[a.Slot].gpu
		return
	}
	l := Lookup{Slot: a.Slot, GPU: a.Hit - f.cpu, CPU: f.cpu}
	e.ledger.count(r, l)
	if a.CPU = f.cpu; f.cpu > 0 {
		e.tier.load(e, a.Slot, l)
	}
}

// count takes a lookup at admission into the statistics.
func (o *ledger) count(r *request, l Lookup) {
	q, h := int64(r.tokens-l.GPU), int64(l.CPU)
	if r.preempts > 0 {
		o.External.PreemptedRequests++
		o.External.PreemptedQueries += q
		o.External.PreemptedHits += h
		return
	}
	o.External.Requests++
	o.External.Queries += q
	o.External.Hits += h
}

// stillNeeded is how many blocks running requests, and those that load or have loaded and wait to run, will take for the
// tokens they have.
func (e *Engine) stillNeeded() int32 {
	n := int32(0)
	for _, s := range e.running {
		n += e.remaining(s)
	}
	for _, q := range [2][]Slot{e.skipped.items[e.skipped.head:], e.passed} {
		for _, s := range q {
			if e.requests[s].held > 0 {
				n += e.remaining(s)
			}
		}
	}
	return n
}

// remaining is how many more blocks a request needs for the tokens it has.
func (e *Engine) remaining(s Slot) int32 {
	r := &e.requests[s]
	return max(blocksFor(min(r.tokens, e.cfg.MaxModelLen), e.cfg.BlockTokens)-r.held, 0)
}

// steadySteps is how many more steps of a run of decodes leave the tier as it is.
func (e *Engine) steadySteps() int32 {
	if len(e.ledger.deferred) > 0 || (e.looksAtQueues() && !e.queuesSteady()) {
		return 0
	}
	return e.tier.steady(e)
}

// looksAtQueues tells whether steps of a run of decodes leave room for more requests.
func (e *Engine) looksAtQueues() bool {
	n := int32(len(e.running))
	return n < e.cfg.MaxNumSeqs && n < e.cfg.MaxBatchedTokens
}

// queuesSteady tells whether every schedule call of a run of decodes looks at the same waiting requests as the last one did,
// to the same end, and changes nothing in the tier by it.
func (e *Engine) queuesSteady() bool {
	if e.cfg.Priority && e.skipped.len() > 0 && e.waiting.len() > 0 {
		return false
	}
	asked := e.ledger.Lookups
	for _, q := range [2]*queue{&e.skipped, &e.waiting} {
		for _, s := range q.items[q.head:] {
			r := &e.requests[s]
			switch {
			case r.stale > 0 || (r.state == loading && e.ledger.side[s].arrived):
				return false
			case r.state == loading:
				continue
			case r.computed > 0: // it has been loaded and does not fit, as there are never more free blocks in a run
				return len(asked) == 0
			case len(asked) == 0 || asked[0].Slot != s || !e.answerStays(r, &asked[0]):
				return false
			case !asked[0].Retry: // it does not fit either, and what is behind it is not looked at
				return len(asked) == 1
			}
			asked = asked[1:]
		}
	}
	return len(asked) == 0
}

// answerStays tells whether a request that was looked up, and refused or put off, is so again in every step of a run of
// decodes. The tier does not change in a run; of what the GPU has, blocks that nobody holds may go.
func (e *Engine) answerStays(r *request, l *Lookup) bool {
	if l.Retry && e.ledger.side[l.Slot].jobs > 0 {
		return true // whatever it finds
	}
	for _, s := range e.running {
		if onPath(r.path, e.requests[s].prompt.Stream) {
			return false // that one may register what this one needs
		}
	}
	if !e.tier.settled(e, l.Slot) {
		return false
	}
	hits, idle := int32(0), int32(0)
	if e.cfg.PrefixCaching {
		hits, idle = e.pool.Lookup(r.path, (r.tokens-1)/e.cfg.BlockTokens)
	}
	if idle == 0 {
		return true
	}
	// Fewer hits can turn the tier's answer, but as long as the whole prompt does not fit, and no transfer can put it off,
	// it is refused whatever the tier has: each idle block that goes is one block less that is free.
	full := blocksFor(min(r.tokens, e.cfg.MaxModelLen), e.cfg.BlockTokens)
	return !e.tier.busy() && e.cfg.ReserveFullISL && full-hits+idle > e.pool.Free()
}

// jumpedOver counts n steady steps.
func (e *Engine) jumpedOver(n int32) {
	o := e.ledger
	o.seq += int64(n)
	o.through += int64(n)
	for _, s := range e.running {
		o.side[s].last = o.seq
	}
	if !e.looksAtQueues() {
		o.Lookups = o.Lookups[:0]
	}
	e.tier.jumped(n)
}
