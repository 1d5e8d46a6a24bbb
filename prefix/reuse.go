package prefix

// released marks a slot in Stream.ForkAt.
const released = -1

// Release gives the slot of s back: the next Root or Fork may use it for a stream with other content. Whoever keeps
// something by stream tells the old stream from the new one by Generation. Nothing may fork from s any more; to release a
// slot twice, or the parent of a live stream, is the caller's mistake, of which only the first is noticed, by a panic.
func (t *Tree) Release(s StreamID) {
	if t.Released(s) {
		panic("prefix: a stream was released twice")
	}
	for len(t.generations) < len(t.streams) {
		t.generations = append(t.generations, 0)
	}
	t.generations[s]++
	t.streams[s] = Stream{Parent: None, ForkAt: released}
	t.free = append(t.free, s)
	t.note(s)
}

// Released says whether the slot s is free.
func (t *Tree) Released(s StreamID) bool { return t.streams[s].ForkAt == released }

// Generation is how often the slot s was released. It is 0 in a tree of which nothing was.
func (t *Tree) Generation(s StreamID) uint32 {
	if int(s) >= len(t.generations) {
		return 0
	}
	return t.generations[s]
}

// Live is the number of streams that are not released.
func (t *Tree) Live() int { return len(t.streams) - len(t.free) }

// Changes is how often a slot was released or given to a stream, counted from the first release on. As long as it is 0,
// identifiers are in order of creation and Len says what is new.
func (t *Tree) Changes() uint64 { return t.changes }

// Changed lists the slots that were released or given to a stream after since, a value of Changes, in the order in which that
// happened; a slot may stand there several times. ok is false if that is too long ago to be known.
func (t *Tree) Changed(since uint64) (slots []StreamID, ok bool) {
	n := t.changes - since
	if n > uint64(len(t.changed)) {
		return nil, false
	}
	return t.changed[uint64(len(t.changed))-n:], true
}

// Set makes slot s the stream st, whatever it was, in a copy that follows another tree. Nothing may fork from s unless st
// is a root.
func (t *Tree) Set(s StreamID, st Stream) {
	for len(t.generations) < len(t.streams) {
		t.generations = append(t.generations, 0)
	}
	t.generations[s]++
	t.streams[s] = st
	t.note(s)
}

// add puts a stream into a free slot, or a new one.
func (t *Tree) add(st Stream) StreamID {
	s := StreamID(len(t.streams))
	if k := len(t.free); k > 0 {
		s, t.free = t.free[k-1], t.free[:k-1]
		t.streams[s] = st
	} else {
		t.streams = append(t.streams, st)
	}
	if t.changes > 0 {
		t.note(s)
	}
	return s
}

// note counts that s was changed. The list of these is cut when it is longer than four times the slots: a reader so late does
// better to look at all of them.
func (t *Tree) note(s StreamID) {
	t.changes++
	if n := len(t.changed); n >= max(4096, 4*len(t.streams)) {
		t.changed = append(t.changed[:0], t.changed[n/2:]...)
	}
	t.changed = append(t.changed, s)
}
