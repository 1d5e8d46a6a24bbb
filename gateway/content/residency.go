package content

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// engine is what one replica is known to hold.
type engine struct {
	placed map[kvevents.Hash]spot
	group  int32 // of layers of full attention, the first heard of; -1 for none
}

// spot is where a block of a replica lies, counted in blocks of the replica.
type spot struct {
	stream prefix.StreamID
	block  int32
	tokens int32 // of a block
	copies int32
}

func (t *Table) engine(r policies.ReplicaID) *engine {
	for int(r) >= len(t.engines) {
		t.engines = append(t.engines, engine{placed: make(map[kvevents.Hash]spot), group: -1})
	}
	return &t.engines[r]
}

// Apply takes in the KV events of replica r and appends the facts that follow. Events need no order among replicas. Blocks
// that follow on nothing known, as after lost events, or whose hash covers more than tokens, cannot be placed and are
// counted; so are all where block sizes do not fit. In a table of bytes all events are ignored.
func (t *Table) Apply(r policies.ReplicaID, b *kvevents.Batch, facts []policies.Fact) []policies.Fact {
	x := t.engine(r)
	for i := range b.Events {
		e := &b.Events[i]
		switch {
		case e.Kind == kvevents.AllBlocksCleared:
			facts = t.Clear(r, facts)
		case !x.listens(e):
			t.stats.Ignored++
		case e.Kind == kvevents.BlockStored:
			facts = t.stored(r, e, facts)
		case e.Kind == kvevents.BlockRemoved:
			facts = t.removed(r, e, facts)
		}
	}
	t.reclaim()
	return facts
}

// listens says whether e is about the blocks that make up a prefix on the GPU. Of several groups of layers one counts.
func (x *engine) listens(e *kvevents.Event) bool {
	if !e.GPU() || !e.Full() {
		return false
	}
	if e.Group >= 0 && x.group < 0 && e.Kind == kvevents.BlockStored {
		x.group = e.Group
	}
	return e.Group < 0 || e.Group == x.group
}

func (t *Table) stored(r policies.ReplicaID, e *kvevents.Event, facts []policies.Fact) []policies.Fact {
	if e.LoRA != "" {
		t.hasher.adapter(e.LoRA)
	}
	x := t.engine(r)
	n := int32(len(e.Hashes))
	per := e.BlockTokens / t.hasher.block // blocks of ours in one of theirs
	s, at, prev := prefix.None, int32(0), t.hasher.tokenRoot(e.LoRA)
	ok := per > 0 && e.BlockTokens%t.hasher.block == 0 && !e.Extra && len(x.placed)+len(e.Hashes) <= t.opts.MaxPlaced
	if ok && e.HasParent {
		var p spot
		if p, ok = x.placed[e.Parent]; ok {
			ok = p.tokens == e.BlockTokens
			s, at = p.stream, p.block+1
		}
	}
	ok = ok && int64(at+n)*int64(e.BlockTokens) <= MaxPromptTokens
	if !ok || !t.room(int64(n)*int64(per)) {
		t.stats.Unplaced += int64(n)
		return facts
	}
	if s != prefix.None {
		st := &t.streams[s]
		prev = st.hashes[at*per-1-st.first]
	}
	t.chain = t.hasher.extend(t.chain[:0], prev, e.Tokens)
	t.spots = t.spots[:0]
	t.locate(s, at*per, t.chain, func(s prefix.StreamID, lo, hi int32) {
		for j := lo / per; j < hi/per; j++ { // the owner of a block's last part owns the block
			t.spots = append(t.spots, spot{s, j, e.BlockTokens, 1})
		}
	})
	for i, h := range e.Hashes {
		at := t.spots[i]
		if had, ok := x.placed[h]; ok {
			if had.stream != at.stream || had.block != at.block {
				t.stats.Unplaced++
				continue
			}
			at.copies += had.copies
		}
		x.placed[h] = at
		t.reside(at.stream, 1)
		facts = join(facts, policies.BlocksStored, r, at)
	}
	return facts
}

func (t *Table) removed(r policies.ReplicaID, e *kvevents.Event, facts []policies.Fact) []policies.Fact {
	x := t.engine(r)
	for _, h := range e.Hashes {
		at, ok := x.placed[h]
		if !ok {
			t.stats.Unplaced++
			continue
		}
		if at.copies--; at.copies == 0 {
			delete(x.placed, h)
		} else {
			x.placed[h] = at
		}
		t.reside(at.stream, -1)
		facts = join(facts, policies.BlocksEvicted, r, at)
	}
	return facts
}

func (t *Table) reside(s prefix.StreamID, by int64) {
	t.streams[s].resident += by
	t.stats.ResidentBlocks += by
	t.settle(s)
}

// join appends a fact about one block, or makes the last fact longer by it.
func join(facts []policies.Fact, kind policies.FactKind, r policies.ReplicaID, at spot) []policies.Fact {
	if n := len(facts); n > 0 {
		f := &facts[n-1]
		if f.Kind == kind && f.Replica == r && f.Stream == at.stream && f.BlockTokens == at.tokens {
			if f.Hi == at.block {
				f.Hi++
				return facts
			}
			if f.Lo == at.block+1 {
				f.Lo--
				return facts
			}
		}
	}
	return append(facts, policies.Fact{Kind: kind, Replica: r, Stream: at.stream, Lo: at.block, Hi: at.block + 1, BlockTokens: at.tokens})
}

// Clear forgets what r holds, as after a restart or lost events, and appends the fact that says so.
func (t *Table) Clear(r policies.ReplicaID, facts []policies.Fact) []policies.Fact {
	x := t.engine(r)
	for _, at := range x.placed {
		t.streams[at.stream].resident -= int64(at.copies)
		t.stats.ResidentBlocks -= int64(at.copies)
	}
	for _, at := range sortedStreams(x.placed) {
		t.settle(at)
	}
	clear(x.placed)
	x.group = -1
	t.reclaim()
	return append(facts, policies.Fact{Kind: policies.BlocksCleared, Replica: r})
}

// sortedStreams is the streams of placed in ascending order, so that what is idle is so in an order that is always the same.
func sortedStreams(placed map[kvevents.Hash]spot) []prefix.StreamID {
	seen := make(map[prefix.StreamID]struct{})
	for _, at := range placed {
		seen[at.stream] = struct{}{}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Announce appends facts that tell all that r is known to hold, for a core that has forgotten it although r has not: one to
// which a replica came up again.
func (t *Table) Announce(r policies.ReplicaID, facts []policies.Fact) []policies.Fact {
	x := t.engine(r)
	spots := slices.SortedFunc(maps.Values(x.placed), func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.tokens, b.tokens), cmp.Compare(a.block, b.block))
	})
	for copies := int32(1); len(spots) > 0; copies++ {
		for _, at := range spots {
			facts = join(facts, policies.BlocksStored, r, at)
		}
		spots = slices.DeleteFunc(spots, func(at spot) bool { return at.copies <= copies })
	}
	return facts
}
