package engine

import "github.com/sluice-sim/sluice/model/latency"

// Schedule is vLLM's schedule(): it fills st with the next step (spec: vllm 7). Entries come in the scheduler's order,
// running requests first, then admitted ones.
func (e *Engine) Schedule(st *Step) {
	e.Admitted, e.Preempted = e.Admitted[:0], e.Preempted[:0]
	if e.tier != nil {
		e.ledger.Lookups = e.ledger.Lookups[:0]
		e.tier.begin(e)
	}
	st.Number = e.steps
	st.Entries = st.Entries[:0]
	e.steps++
	budget := e.scheduleRunning(st, e.cfg.MaxBatchedTokens)
	if len(e.Preempted) == 0 {
		e.scheduleWaiting(st, budget)
	}
	e.advance(st)
	if e.tier != nil {
		e.ledger.scheduled(st)
		e.tier.decide(e, st)
	}
	e.ended = false
}

// scheduleRunning gives tokens to running requests in list order, preempting from the back where blocks are short.
func (e *Engine) scheduleRunning(st *Step, budget int32) int32 {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		r := &e.requests[s]
		if r.inFlight > 0 && r.computed+2-int32(r.inFlight) >= r.prompt.Tokens+r.maxTokens {
			continue // the step in flight is its last
		}
		n := r.tokens + int32(r.inFlight) - r.computed
		if t := e.cfg.LongPrefillTokens; t > 0 {
			n = min(n, t)
		}
		n = min(n, budget, e.cfg.MaxModelLen-r.computed-1)
		if n <= 0 {
			continue
		}
		self := false
		for !e.hasRoom(r, n) && !e.allocate(r, n, found{}) {
			victim, at := e.victim()
			e.running = append(e.running[:at], e.running[at+1:]...)
			if at < i {
				i--
				budget += withdraw(st, victim)
			}
			e.preempt(victim)
			e.Preempted = append(e.Preempted, victim)
			if victim == s {
				self = true
				break
			}
		}
		if self {
			break
		}
		st.Entries = append(st.Entries, Entry{Slot: s, epoch: uint16(r.epoch), Tokens: n, Past: r.computed})
		budget -= n
	}
	return budget
}

// victim is the running request to preempt, and its place in the list.
func (e *Engine) victim() (Slot, int) {
	at := len(e.running) - 1
	if e.cfg.Priority {
		at = 0
		for i := 1; i < len(e.running); i++ {
			a, b := &e.requests[e.running[i]], &e.requests[e.running[at]]
			if a.priority > b.priority || (a.priority == b.priority && a.arrival > b.arrival) {
				at = i
			}
		}
	}
	return e.running[at], at
}

// withdraw takes a request out of a step that is being made and returns the tokens it had.
func withdraw(st *Step, s Slot) int32 {
	for i := range st.Entries {
		if st.Entries[i].Slot == s {
			n := st.Entries[i].Tokens
			st.Entries = append(st.Entries[:i], st.Entries[i+1:]...)
			return n
		}
	}
	return 0
}

// scheduleWaiting admits waiting requests until the head of the queue does not fit.
func (e *Engine) scheduleWaiting(st *Step, budget int32) {
	for budget > 0 && int32(len(e.running)) < e.cfg.MaxNumSeqs {
		q := e.nextQueue()
		if q == nil {
			break
		}
		s := q.front()
		r := &e.requests[s]
		if r.stale > 0 || (r.state == loading && !e.arrived(s)) {
			e.pass(q)
			continue
		}
		f, retry := e.find(s)
		if retry {
			e.pass(q)
			continue
		}
		if f.waits {
			if !e.allocate(r, 0, f) {
				if e.cfg.SkipBlocked {
					e.pass(q)
					continue
				}
				break
			}
			e.load(s, f)
			e.pass(q)
			continue
		}
		start := r.computed + f.hits*e.cfg.BlockTokens + f.cpu
		n := r.tokens - start
		if t := e.cfg.LongPrefillTokens; t > 0 {
			n = min(n, t)
		}
		if !e.cfg.ChunkedPrefill && n > budget {
			break
		}
		n = min(n, budget)
		if !e.allocate(r, n, f) {
			if e.cfg.SkipBlocked {
				e.pass(q)
				continue
			}
			break
		}
		q.pop()
		e.admit(s, start, f)
		st.Entries = append(st.Entries, Entry{Slot: s, epoch: uint16(r.epoch), Tokens: n, Past: start})
		budget -= n
	}
	for i := len(e.passed) - 1; i >= 0; i-- {
		e.requests[e.passed[i]].skipped = true
		e.skipped.pushFront(e, e.passed[i])
	}
	e.passed = e.passed[:0]
}

// pass takes the head of a queue aside for this schedule call.
func (e *Engine) pass(q *queue) { e.passed = append(e.passed, q.pop()) }

// found is what the lookups at admission came to.
type found struct {
	hits, idle int32 // blocks in the GPU's prefix cache, and how many of them nobody holds
	cpu        int32 // tokens to be loaded from the CPU tier
	waits      bool  // the request waits for them and joins a later step
}

// find looks up what exists of a waiting request; nothing is looked up for one that has been loaded already. retry is
// true if the CPU tier cannot tell yet.
func (e *Engine) find(s Slot) (f found, retry bool) {
	r := &e.requests[s]
	if r.computed > 0 {
		return f, false
	}
	if e.cfg.PrefixCaching {
		f.hits, f.idle = e.pool.Lookup(r.path, (r.tokens-1)/e.cfg.BlockTokens)
	}
	if e.tier != nil {
		l := e.ask(s, f.hits*e.cfg.BlockTokens)
		f.cpu, retry = l.CPU, l.Retry
		if f.waits = f.cpu > 0 && e.tier.asynchronous(); !f.waits {
			f.cpu = min(f.cpu, r.tokens-1-l.GPU) // something is left to compute
		}
		return f, retry
	}
	return f, false
}

// nextQueue is the queue whose head is to be tried next; nil if both are empty.
func (e *Engine) nextQueue() *queue {
	switch {
	case e.skipped.len() == 0 && e.waiting.len() == 0:
		return nil
	case e.skipped.len() == 0:
		return &e.waiting
	case e.waiting.len() == 0 || !e.cfg.Priority || before(e, e.skipped.front(), e.waiting.front()):
		return &e.skipped
	}
	return &e.waiting
}

// admit moves a request, whose blocks are allocated, to the running list.
func (e *Engine) admit(s Slot, start int32, f found) {
	r := &e.requests[s]
	a := Admission{Slot: s, Hit: start, Resumed: r.preempts > 0}
	if r.computed == 0 {
		e.count(r, f.hits*e.cfg.BlockTokens)
	}
	if e.tier != nil {
		e.admitTiered(r, &a, f)
	}
	e.Admitted = append(e.Admitted, a)
	e.running = append(e.running, s)
	if e.late != nil && !r.eager && f.hits == (r.tokens-1)/e.cfg.BlockTokens {
		beyond, _ := e.pool.Lookup(r.path, f.hits+1)
		r.eager = beyond > f.hits
	}
	r.state = running
	r.skipped = false
	r.computed = start
}

// count takes a lookup in the prefix cache that led to an admission into the statistics.
func (e *Engine) count(r *request, hit int32) {
	switch {
	case !e.cfg.PrefixCaching:
	case r.preempts > 0:
		e.Prefix.PreemptedRequests++
		e.Prefix.PreemptedQueries += int64(r.tokens)
		e.Prefix.PreemptedHits += int64(hit)
	default:
		e.Prefix.Requests++
		e.Prefix.Queries += int64(r.tokens)
		e.Prefix.Hits += int64(hit)
	}
}

// allocate is vLLM's allocate_slots for n more tokens; f comes from the lookups of a request that holds nothing yet. It
// returns false, without any effect, when blocks are short (spec: vllm 5).
func (e *Engine) allocate(r *request, n int32, f found) bool {
	b := e.cfg.BlockTokens
	total := min(r.computed+f.hits*b+f.cpu, e.cfg.MaxModelLen)
	slots := blocksFor(min(total+n, e.cfg.MaxModelLen), b)
	if r.state == running {
		short := max(slots-r.held, 0)
		if short > e.pool.Free() {
			return false
		}
		if short > 0 {
			e.grow(r, short)
		}
	} else if !e.enter(r, slots, f) {
		return false
	}
	if !f.waits {
		e.register(r, min(total+n, r.tokens))
	}
	return true
}

// hasRoom tells whether a running request has blocks for n more tokens, and nothing new to register, so that allocate would
// do nothing.
func (e *Engine) hasRoom(r *request, n int32) bool {
	b := e.cfg.BlockTokens
	return r.computed+n <= r.held*b && min(r.computed+n, r.tokens) < (r.ready+1)*b
}

// grow takes n blocks for a request that runs.
func (e *Engine) grow(r *request, n int32) {
	if e.late != nil {
		e.late.Take(n)
		r.owed += n
	} else {
		e.pool.Grow(r.table, n)
	}
	r.held += n
}

// enter allocates blocks up to slots for a request that does not run.
func (e *Engine) enter(r *request, slots int32, f found) bool {
	free := e.pool.Free()
	if len(e.running) > 0 {
		free -= int32(float64(e.cfg.Watermark) * float64(e.pool.Usable()+1))
	}
	have := f.hits + r.held
	if e.cfg.ReserveFullISL {
		full := blocksFor(min(r.tokens, e.cfg.MaxModelLen), e.cfg.BlockTokens)
		if max(full-have, 0)+f.idle > free {
			return false
		}
	}
	if f.waits {
		free -= e.stillNeeded()
	}
	if max(slots-have, 0)+f.idle > free {
		return false
	}
	if r.held == 0 {
		r.table = e.pool.Open()
		if f.hits > 0 {
			e.pool.Hold(r.table, r.path, f.hits)
		}
		r.cached, r.ready, r.due = f.hits, f.hits, f.hits
	}
	if slots > have {
		e.pool.Grow(r.table, slots-have)
	}
	r.held = max(slots, have)
	return true
}

// register makes the full blocks among the first tokens of a request hittable, or notes that they are to be.
func (e *Engine) register(r *request, tokens int32) {
	if b := e.cfg.BlockTokens; e.cfg.PrefixCaching && tokens >= (r.ready+1)*b {
		r.ready = tokens / b
		if !e.mayWait(r, tokens) {
			e.flush(r)
		}
	}
}

func blocksFor(tokens, block int32) int32 { return (tokens + block - 1) / block }

// advance counts the scheduled tokens as computed and describes the step for the law.
func (e *Engine) advance(st *Step) {
	st.Tokens = 0
	sh := &e.shape
	st.Shape = sh
	sh.DecodeRows, sh.DecodeContext, sh.DecodeWindowed = 0, 0, 0
	sh.Sampled = int32(len(st.Entries)) // vLLM computes logits for one row of every request, unfinished chunks included
	sh.Prefill = sh.Prefill[:0]
	for i := range st.Entries {
		x := &st.Entries[i]
		r := &e.requests[x.Slot]
		r.computed += x.Tokens
		x.Yields = r.computed >= r.tokens+int32(r.inFlight)
		if x.Yields && e.cfg.Async {
			r.inFlight++
		}
		st.Tokens += x.Tokens
		if x.Tokens == 1 && x.Past > 0 {
			sh.DecodeRows++
			sh.DecodeContext += int64(r.computed)
			sh.DecodeWindowed += int64(e.windowed(r.computed))
		} else {
			sh.Prefill = append(sh.Prefill, latency.Chunk{Tokens: x.Tokens, Past: x.Past})
		}
	}
}

func (e *Engine) windowed(context int32) int32 {
	if w := e.cfg.SlidingWindowTokens; w > 0 {
		return min(context, w)
	}
	return context
}
