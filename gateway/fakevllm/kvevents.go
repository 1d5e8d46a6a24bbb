package fakevllm

import "github.com/sluice-sim/sluice/model/kv"

// KVEvent is one change of a server's prefix cache, as vLLM publishes it (spec: vllm 13).
type KVEvent struct {
	Kind   kv.EventKind
	Hashes []uint64 // stored: one after the other; evicted: one
	Parent uint64   // of the first hash, if HasParent
	Tokens []uint32 // of the stored blocks

	HasParent   bool
	BlockTokens int32
}

// noteContent takes the pool's events.
func (c *core) noteContent() {
	pool := c.loop.Pool()
	for _, e := range pool.Events() {
		c.note(e)
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

// note keeps an event for publish.
func (c *core) note(e kv.Event) {
	if c.cfg.Publish == nil {
		return
	}
	n := &c.names
	switch e.Kind {
	case kv.Stored:
		s := &n.streams[e.Stream]
		x := KVEvent{Kind: kv.Stored, BlockTokens: n.blockTokens, Tokens: append([]uint32(nil), s.tokens[(e.Lo-s.lo)*n.blockTokens:(e.Hi-s.lo)*n.blockTokens]...)}
		for i := e.Lo; i < e.Hi; i++ {
			x.Hashes = append(x.Hashes, s.blocks[i-s.lo].hash)
		}
		if last := len(c.events) - 1; e.More {
			c.events[last].Hashes = append(c.events[last].Hashes, x.Hashes...)
			c.events[last].Tokens = append(c.events[last].Tokens, x.Tokens...)
			return
		}
		switch {
		case e.Lo > s.lo:
			x.Parent, x.HasParent = s.blocks[e.Lo-1-s.lo].hash, true
		case !s.root:
			x.Parent, x.HasParent = s.parent, true
		}
		c.events = append(c.events, x)
	case kv.Evicted:
		s := &n.streams[e.Stream]
		for i := e.Hi - 1; i >= e.Lo; i-- {
			c.events = append(c.events, KVEvent{Kind: kv.Evicted, Hashes: []uint64{s.blocks[i-s.lo].hash}, BlockTokens: n.blockTokens})
		}
	case kv.Cleared:
		c.events = append(c.events, KVEvent{Kind: kv.Cleared})
	}
}

// publish sends what happened until the end of a step.
func (c *core) publish() {
	if len(c.events) > 0 {
		c.cfg.Publish(seconds(c.now), c.events)
		c.events = nil
	}
}
