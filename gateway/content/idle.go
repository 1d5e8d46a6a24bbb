package content

import "github.com/sluice-sim/sluice/prefix"

// settle brings the books about s up to date with who refers to it.
func (t *Table) settle(s prefix.StreamID) {
	st := &t.streams[s]
	if own := st.refs > 0 || st.resident > 0; own != st.own {
		was := st.live()
		st.own = own
		t.weigh(s)
		t.tell(t.tree.Stream(s).Parent, was, st.live())
	}
	t.weigh(s)
	t.list(s)
}

// live says whether anybody refers to s, or to what forks from it.
func (s *stream) live() bool { return s.own || s.kids > 0 }

// tell tells s, and those above it, that a stream that forks from it is live now and was not, or the other way round.
func (t *Table) tell(s prefix.StreamID, was, now bool) {
	for s != prefix.None && was != now {
		st := &t.streams[s]
		by := int32(1)
		if was {
			by = -1
		}
		was = st.live()
		st.kids += by
		now = st.live()
		t.weigh(s)
		s = t.tree.Stream(s).Parent
	}
}

// weigh counts the blocks of s as idle, or not: those of a stream that nobody refers to, unless they are only what live
// streams fork from.
func (t *Table) weigh(s prefix.StreamID) {
	st := &t.streams[s]
	if idle := !st.own && (st.kids == 0 || !st.sealed); idle != st.idle {
		st.idle = idle
		if idle {
			t.idle += int64(len(st.hashes))
		} else {
			t.idle -= int64(len(st.hashes))
		}
	}
}

// list puts s on the list of streams that can be forgotten, at the end, or takes it off. One from which others fork can lose
// what comes after the last fork, once.
func (t *Table) list(s prefix.StreamID) {
	st := &t.streams[s]
	listed := !st.own && (st.child == prefix.None || !st.sealed)
	if listed == st.listed {
		return
	}
	if st.listed = listed; !listed {
		t.unlink(s)
		return
	}
	st.older, st.newer = t.newest, prefix.None
	if t.newest != prefix.None {
		t.streams[t.newest].newer = s
	} else {
		t.oldest = s
	}
	t.newest = s
}

func (t *Table) unlink(s prefix.StreamID) {
	st := &t.streams[s]
	if st.older != prefix.None {
		t.streams[st.older].newer = st.newer
	} else {
		t.oldest = st.newer
	}
	if st.newer != prefix.None {
		t.streams[st.newer].older = st.older
	} else {
		t.newest = st.older
	}
	st.older, st.newer = prefix.None, prefix.None
}

// room makes room for n more hashes, at the cost of idle streams; false if there is none.
func (t *Table) room(n int64) bool {
	for t.blocks+n > t.opts.MaxBlocks && t.oldest != prefix.None {
		t.forget(t.oldest)
	}
	return t.blocks+n <= t.opts.MaxBlocks
}

// reclaim forgets the oldest idle streams until few enough are left.
func (t *Table) reclaim() {
	for t.idle > t.opts.IdleBlocks && t.oldest != prefix.None {
		t.forget(t.oldest)
	}
}

// count counts blocks more, or less, in s.
func (t *Table) count(s prefix.StreamID, blocks int) {
	t.blocks += int64(blocks)
	if t.streams[s].idle {
		t.idle += int64(blocks)
	}
}

// forget releases a stream of the list; one from which others fork loses what comes after the last fork.
func (t *Table) forget(s prefix.StreamID) {
	st := &t.streams[s]
	if st.child == prefix.None {
		t.release(s)
		return
	}
	end := st.first
	for c := st.child; c != prefix.None; c = t.streams[c].next {
		end = max(end, t.streams[c].first)
	}
	t.count(s, int(end-st.end()))
	st.hashes = append([]uint64(nil), st.hashes[:end-st.first]...)
	st.sealed = true
	t.settle(s)
}

func (t *Table) release(s prefix.StreamID) {
	st := &t.streams[s]
	t.unlink(s)
	t.count(s, -len(st.hashes))
	if len(st.hashes) > 0 {
		delete(t.heads, st.hashes[0])
	}
	parent := t.tree.Stream(s).Parent
	if st.prev != prefix.None {
		t.streams[st.prev].next = st.next
	} else if parent != prefix.None {
		t.streams[parent].child = st.next
	}
	if st.next != prefix.None {
		t.streams[st.next].prev = st.prev
	}
	t.streams[s] = stream{}
	t.tree.Release(s)
	t.stats.Released++
	if parent != prefix.None {
		t.settle(parent)
	}
}
