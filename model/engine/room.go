package engine

// HeadIsShort tells whether the head of the waiting queue does not fit into the free blocks.
func (e *Engine) HeadIsShort() bool { return e.headNeeds() > e.pool.Free() }

// headNeeds is how many free blocks the head of the waiting queue takes, its whole prompt included; 0 without a queue.
func (e *Engine) headNeeds() int32 {
	q := e.nextQueue()
	if q == nil {
		return 0
	}
	r := &e.requests[q.front()]
	hits, idle := int32(0), int32(0)
	if e.cfg.PrefixCaching && r.computed == 0 {
		hits, idle = e.pool.Lookup(r.path, (r.tokens-1)/e.cfg.BlockTokens)
	}
	return max(blocksFor(min(r.tokens, e.cfg.MaxModelLen), e.cfg.BlockTokens)-hits-r.held, 0) + idle
}

// Wanted is how many free blocks the next schedule call could use: for the tokens that running requests compute next, and
// for the head of the waiting queue.
func (e *Engine) Wanted() int32 {
	n := e.headNeeds()
	for _, s := range e.running {
		r := &e.requests[s]
		next := r.computed + max(min(r.tokens+int32(r.inFlight)-r.computed, e.cfg.MaxBatchedTokens), 0)
		n += max(blocksFor(next, e.cfg.BlockTokens)-r.held, 0)
	}
	return n
}
