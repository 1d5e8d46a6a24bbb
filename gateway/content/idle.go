package content

import "github.com/sluice-sim/sluice/prefix"

// settle puts s on the idle list, or takes it off, as it is referred to now. A stream from which others fork is idle as
// well, as far as it has blocks beyond the last fork.
func (t *Table) settle(s prefix.StreamID) {
	st := &t.streams[s]
	idle := st.refs == 0 && st.resident == 0 && (st.child == prefix.None || !st.sealed)
	if idle == st.idle {
		return
	}
	st.idle = idle
	if !idle {
		t.unlink(s)
		t.idle -= int64(len(st.hashes))
		return
	}
	t.idle += int64(len(st.hashes))
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

// reclaim releases the oldest idle streams until few enough are left.
func (t *Table) reclaim() {
	for t.idle > t.opts.IdleBlocks && t.oldest != prefix.None {
		t.forget(t.oldest)
	}
}

// forget releases an idle stream; one from which others fork loses what comes after the last fork.
func (t *Table) forget(s prefix.StreamID) {
	st := &t.streams[s]
	if st.child != prefix.None {
		end := st.first
		for c := st.child; c != prefix.None; c = t.streams[c].next {
			end = max(end, t.streams[c].first)
		}
		t.count(s, -int64(st.end()-end))
		st.hashes = append([]uint64(nil), st.hashes[:end-st.first]...)
		st.sealed = true
		t.settle(s)
		return
	}
	t.unlink(s)
	t.idle -= int64(len(st.hashes))
	t.blocks -= int64(len(st.hashes))
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
