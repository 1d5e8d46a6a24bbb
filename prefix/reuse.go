package prefix

// released marks a slot in Stream.ForkAt.
const released = -1

// Release gives the slot of s back: the next Root or Fork may use it for a stream with other content. Whoever keeps
// something by stream tells the old stream from the new one by Generation. Nothing may fork from s any more; to release a
// slot twice, or the parent of a live stream, is the caller's mistake, of which only the first is noticed, by a panic.
func (t *Tree) Release(s StreamID) {
	if t.streams[s].ForkAt == released {
		panic("prefix: a stream was released twice")
	}
	t.streams[s] = Stream{Parent: None, ForkAt: released}
	t.free = append(t.free, s)
}

// Generation is how often the slot s was used again. It is 0 in a tree of which nothing was released.
func (t *Tree) Generation(s StreamID) uint32 {
	if int(s) >= len(t.generations) {
		return 0
	}
	return t.generations[s]
}

// Reused is how often any slot was used again.
func (t *Tree) Reused() uint64 { return t.reused }

// Live is the number of streams that are not released.
func (t *Tree) Live() int { return len(t.streams) - len(t.free) }

// Reborn lists the slots that were used again after since, a value of Reused, in their order; a slot may stand there
// twice. ok is false if that is too long ago, and any slot may be a new stream.
func (t *Tree) Reborn(since uint64) (slots []StreamID, ok bool) {
	n := t.reused - since
	if n > uint64(len(t.reborn)) {
		return nil, false
	}
	return t.reborn[uint64(len(t.reborn))-n:], true
}

// Replace makes slot s the stream st, whatever it was; s may be Len(), and a new slot is then made. It is for a copy that
// follows another tree's Reborn. Release is not to be used on such a copy.
func (t *Tree) Replace(s StreamID, st Stream) {
	if int(s) == len(t.streams) {
		t.streams = append(t.streams, st)
		return
	}
	t.streams[s] = st
	t.note(s)
}

// add puts a stream into a free slot, or a new one.
func (t *Tree) add(st Stream) StreamID {
	k := len(t.free)
	if k == 0 {
		t.streams = append(t.streams, st)
		return StreamID(len(t.streams) - 1)
	}
	s := t.free[k-1]
	t.free = t.free[:k-1]
	t.streams[s] = st
	t.note(s)
	return s
}

// note counts that s was used again. The list of these is cut when it is longer than twice the slots: a reader so late
// does better to look at all of them.
func (t *Tree) note(s StreamID) {
	for len(t.generations) < len(t.streams) {
		t.generations = append(t.generations, 0)
	}
	t.generations[s]++
	t.reused++
	if n := len(t.reborn); n >= max(1024, 2*len(t.streams)) {
		t.reborn = append(t.reborn[:0], t.reborn[n/2:]...)
	}
	t.reborn = append(t.reborn, s)
}
