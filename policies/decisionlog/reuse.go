package decisionlog

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/sluice-sim/sluice/prefix"
)

// appendTree appends lines for what changed in tree since the last call: first the slots that are new, then, where a
// gateway released streams, the slots that changed hands. Each of these is first made a root, so that nothing hangs on a
// stream that is gone, and then what it is now, parents first (their fork offsets are smaller).
func (r *Recorder) appendTree(b []byte, tree *prefix.Tree) []byte {
	if tree.Changes() == r.changes {
		b = AppendStreams(b, tree, r.streams)
		r.streams = tree.Len()
		return b
	}
	slots, ok := tree.Changed(r.changes)
	if ok {
		slots = slices.Clone(slots)
		slices.Sort(slots)
		slots = slices.Compact(slots)
	} else { // any slot may have changed
		slots = make([]prefix.StreamID, tree.Len())
		for i := range slots {
			slots[i] = prefix.StreamID(i)
		}
	}
	var roots, forks []prefix.StreamID
	for _, s := range slots {
		if int(s) < r.streams {
			roots = append(roots, s)
		}
		if tree.Stream(s).Parent != prefix.None {
			forks = append(forks, s)
		}
	}
	slices.SortFunc(forks, func(x, y prefix.StreamID) int { return cmp.Compare(tree.Stream(x).ForkAt, tree.Stream(y).ForkAt) })
	b = appendStreams(b, tree, r.streams, func(s prefix.StreamID) bool { _, later := slices.BinarySearch(slots, s); return later })
	b = appendAgain(b, roots, func(prefix.StreamID) prefix.Stream { return prefix.Stream{Parent: prefix.None} })
	b = appendAgain(b, forks, tree.Stream)
	r.streams, r.changes = tree.Len(), tree.Changes()
	return b
}

// appendAgain appends lines that say what slots are now.
func appendAgain(b []byte, slots []prefix.StreamID, now func(prefix.StreamID) prefix.Stream) []byte {
	for len(slots) > 0 {
		n := min(len(slots), streamsPerLine)
		b = append(b, `{"streams_again":[`...)
		for i, slot := range slots[:n] {
			s := now(slot)
			b = appendInt(comma(b, i), "[", int64(slot))
			b = appendInt(b, ",", int64(s.Parent))
			b = append(appendInt(b, ",", int64(s.ForkAt)), ']')
		}
		b = append(b, "]}\n"...)
		slots = slots[n:]
	}
	return b
}

// streamsAgain takes in slots that changed hands. A slot from which others fork can only become a root: fork offsets grow along
// every path, so that no path runs in a circle.
func (d *Decoder) streamsAgain(c *cursor) {
	n := 0
	for ; c.more(n == 0, "]"); n++ {
		if n == streamsPerLine {
			c.fail("at most " + strconv.Itoa(streamsPerLine) + " streams")
			return
		}
		c.want("[")
		slot := prefix.StreamID(c.integer(0, int64(d.Tree.Len())-1))
		c.want(",")
		st := d.readStream(c)
		c.want("]")
		if c.err != nil {
			return
		}
		if st.Parent != prefix.None && (d.forks(slot) > 0 || st.Parent == slot) {
			c.fail("a root, for others fork from stream " + strconv.Itoa(int(slot)))
			return
		}
		d.forked(d.Tree.Stream(slot).Parent, -1)
		d.forked(st.Parent, 1)
		d.Tree.Set(slot, st)
	}
	if n == 0 {
		c.fail("1 to " + strconv.Itoa(streamsPerLine) + " streams")
	}
	c.want("}")
}

// readStream reads a parent and a fork offset beyond the parent's own.
func (d *Decoder) readStream(c *cursor) prefix.Stream {
	parent := c.integer(-1, int64(d.Tree.Len())-1)
	c.want(",")
	least, most := int64(0), int64(0)
	if parent >= 0 {
		least, most = 1, math.MaxInt32
		if c.err == nil {
			least = int64(d.Tree.Stream(prefix.StreamID(parent)).ForkAt) + 1
		}
	}
	return prefix.Stream{Parent: prefix.StreamID(parent), ForkAt: int32(c.integer(least, most))}
}

// forks is how many streams fork from s.
func (d *Decoder) forks(s prefix.StreamID) int32 {
	if int(s) >= len(d.children) {
		return 0
	}
	return d.children[s]
}

func (d *Decoder) forked(parent prefix.StreamID, by int32) {
	if parent == prefix.None {
		return
	}
	for int(parent) >= len(d.children) {
		d.children = append(d.children, 0)
	}
	d.children[parent] += by
}
