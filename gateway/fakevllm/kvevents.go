package fakevllm

import (
	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// noteContent takes the pool's events.
func (c *core) noteContent() {
	pool := c.loop.Pool()
	for _, e := range pool.Events() {
		if c.cfg.publish != nil {
			c.note(e)
		}
		switch e.Kind {
		case kv.Stored:
			c.names.stored(e.Stream, e.Lo, e.Hi)
		case kv.Evicted:
			c.names.evicted(e.Stream, e.Lo, e.Hi)
		case kv.Cleared:
			c.names.cleared()
		}
	}
	pool.ClearEvents()
}

// note keeps an event for publish, in vLLM's form (spec: vllm 13).
func (c *core) note(e kv.Event) {
	switch e.Kind {
	case kv.Stored:
		x := c.names.event(e.Stream, e.Lo, e.Hi)
		if !e.More {
			c.events = append(c.events, x)
			return
		}
		last := &c.events[len(c.events)-1]
		last.Hashes = append(last.Hashes, x.Hashes...)
		last.Tokens = append(last.Tokens, x.Tokens...)
	case kv.Evicted:
		s := &c.names.streams[e.Stream]
		for i := e.Hi - 1; i >= e.Lo; i-- {
			hash := kvevents.Hash(s.blocks[i-s.lo].hash)
			c.events = append(c.events, kvevents.Event{Kind: kvevents.BlockRemoved, Hashes: []kvevents.Hash{hash}, Medium: "GPU"})
		}
	case kv.Cleared:
		c.events = append(c.events, kvevents.Event{Kind: kvevents.AllBlocksCleared})
	}
}

// event says that blocks of a stream were stored.
func (c *content) event(id prefix.StreamID, lo, hi int32) kvevents.Event {
	s := &c.streams[id]
	x := kvevents.Event{
		Kind: kvevents.BlockStored, BlockTokens: c.blockTokens, Medium: "GPU", Attention: "full_attention", Extra: s.salted,
		Hashes: make([]kvevents.Hash, 0, hi-lo), Tokens: make([]int32, 0, (hi-lo)*c.blockTokens),
	}
	for i := lo; i < hi; i++ {
		x.Hashes = append(x.Hashes, kvevents.Hash(s.blocks[i-s.lo].hash))
	}
	for _, t := range s.tokens[(lo-s.lo)*c.blockTokens : (hi-s.lo)*c.blockTokens] {
		x.Tokens = append(x.Tokens, int32(t))
	}
	switch {
	case lo > s.lo:
		x.Parent, x.HasParent = kvevents.Hash(s.blocks[lo-1-s.lo].hash), true
	case !s.root:
		x.Parent, x.HasParent = kvevents.Hash(s.parent), true
	}
	return x
}

// publish sends what happened until the end of a step.
func (c *core) publish() {
	if len(c.events) > 0 {
		c.cfg.publish(c.events)
		c.events = nil
	}
}
