package engine

// Update is vLLM's update_from_output() of a step that has run: every entry that yields appends one token, requests
// that have ended are freed in the order of the step (spec: vllm 9).
func (e *Engine) Update(st *Step) {
	e.Sampled, e.Finished = e.Sampled[:0], e.Finished[:0]
	if e.tier != nil {
		e.processed(st)
	}
	for i := range st.Entries {
		x := &st.Entries[i]
		r := &e.requests[x.Slot]
		if !x.Yields || uint16(r.epoch) != x.epoch {
			continue
		}
		switch {
		case r.dropped > 0:
			r.dropped--
			continue
		case r.stale > 0:
			r.stale--
		case e.cfg.Async:
			r.inFlight--
		}
		r.tokens++
		e.Sampled = append(e.Sampled, x.Slot)
		if e.cfg.Async && r.state == running {
			e.register(r, r.computed-int32(r.inFlight))
		}
		r.due = r.ready
		if reason, ended := e.stops(r); ended {
			e.finish(x.Slot, reason)
		}
	}
	if len(e.Finished) > 0 {
		kept := e.running[:0]
		for _, s := range e.running {
			if e.requests[s].state == running {
				kept = append(kept, s)
			}
		}
		e.running = kept
	}
	if e.tier != nil {
		e.tier.settle(e)
	}
}

// stops is the stop test after a token was appended.
func (e *Engine) stops(r *request) (Reason, bool) {
	outputs := r.tokens - r.prompt.Tokens
	switch {
	case r.stopAfter > 0 && outputs == r.stopAfter:
		return Stopped, true
	case r.tokens >= e.cfg.MaxModelLen || outputs >= r.maxTokens:
		return Length, true
	}
	return Length, false
}

// finish frees a request that has ended. A running one leaves the running list when the update is through.
func (e *Engine) finish(s Slot, reason Reason) {
	if e.requests[s].state != running {
		e.leaveQueues(s)
	}
	if e.tier != nil {
		e.tier.end(e, s)
	}
	e.release(s)
	e.retire(s)
	e.Finished = append(e.Finished, Ending{Slot: s, Reason: reason})
}
