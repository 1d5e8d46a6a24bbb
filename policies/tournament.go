package policies

import "math"

// tournaments holds sets of replicas, each with a key, as binary tries over the replica's number. Every node knows the
// smallest key below it, how many replicas have it, and the second smallest. A set is named by its root; noSlot is the
// empty set. An update costs the logarithm of the number of replicas.
//
// Memory: 32 bytes for each node; a set of m of n replicas has at most m (1 + log2 n) nodes, and 2n if all are in it.
type tournaments struct {
	depth int // levels below the root
	nodes []match
	spare []int32
	path  [32]int32
}

type match struct {
	min, second int64 // second is greater than min; noKey if there is none
	count       int32 // replicas whose key is min
	child       [2]int32
}

// noKey is greater than every key.
const noKey int64 = math.MaxInt64

func (t *tournaments) init(replicas int) {
	t.depth = 0
	for 1<<t.depth < replicas {
		t.depth++
	}
	t.nodes, t.spare = t.nodes[:0], t.spare[:0]
}

func (t *tournaments) add() int32 {
	if k := len(t.spare); k > 0 {
		at := t.spare[k-1]
		t.spare = t.spare[:k-1]
		t.nodes[at] = match{child: [2]int32{noSlot, noSlot}}
		return at
	}
	t.nodes = append(t.nodes, match{child: [2]int32{noSlot, noSlot}})
	return int32(len(t.nodes) - 1)
}

// set puts r into the set, or gives it another key there, and returns the root.
func (t *tournaments) set(root int32, r ReplicaID, key int64) int32 {
	if root == noSlot {
		root = t.add()
	}
	at := root
	for level := t.depth - 1; level >= 0; level-- {
		t.path[level] = at
		side := r >> level & 1
		next := t.nodes[at].child[side]
		if next == noSlot {
			next = t.add()
			t.nodes[at].child[side] = next
		}
		at = next
	}
	n := &t.nodes[at]
	n.min, n.second, n.count = key, noKey, 1
	for level := range t.depth {
		if !t.settle(t.path[level]) {
			break
		}
	}
	return root
}

// remove takes r, which is in it, out of the set and returns the root.
func (t *tournaments) remove(root int32, r ReplicaID) int32 {
	at := root
	for level := t.depth - 1; level >= 0; level-- {
		t.path[level] = at
		at = t.nodes[at].child[r>>level&1]
	}
	t.spare = append(t.spare, at)
	gone := true
	for level := range t.depth {
		at = t.path[level]
		if gone {
			t.nodes[at].child[r>>level&1] = noSlot
			if gone = t.nodes[at].child == [2]int32{noSlot, noSlot}; gone {
				t.spare = append(t.spare, at)
				continue
			}
		}
		if !t.settle(at) {
			break
		}
	}
	if gone {
		return noSlot
	}
	return root
}

// settle brings a node up to date with its children; false if that changed nothing.
func (t *tournaments) settle(at int32) bool {
	n := &t.nodes[at]
	var won match
	switch left, right := n.child[0], n.child[1]; {
	case left == noSlot:
		won = t.nodes[right]
	case right == noSlot:
		won = t.nodes[left]
	default:
		a, b := &t.nodes[left], &t.nodes[right]
		if b.min < a.min {
			a, b = b, a
		}
		won = match{min: a.min, second: min(a.second, b.min), count: a.count}
		if a.min == b.min {
			won.second, won.count = min(a.second, b.second), a.count+b.count
		}
	}
	if n.min == won.min && n.second == won.second && n.count == won.count {
		return false
	}
	n.min, n.second, n.count = won.min, won.second, won.count
	return true
}

// lowest is the lowest replica of the set.
func (t *tournaments) lowest(root int32) ReplicaID {
	r := ReplicaID(0)
	for level := t.depth - 1; level >= 0; level-- {
		side := ReplicaID(0)
		if t.nodes[root].child[0] == noSlot {
			side = 1
		}
		r |= side << level
		root = t.nodes[root].child[side]
	}
	return r
}

// below is a node of a set of group g at a level; the replicas under it are numbered from base on.
type below struct {
	g     Group
	node  int32
	level int
	base  ReplicaID
}

func (t *tournaments) half(b below, side int32) below {
	b.node = t.nodes[b.node].child[side]
	b.level--
	b.base += ReplicaID(side) << b.level
	return b
}

// count is how many replicas under b have a key that scores best, which is the smallest score.
func (t *tournaments) count(b below, best int64, score Score) int {
	if b.node == noSlot {
		return 0
	}
	n := &t.nodes[b.node]
	if score(b.g, n.min) > best {
		return 0
	}
	if n.second == noKey || score(b.g, n.second) > best {
		return int(n.count)
	}
	return t.count(t.half(b, 0), best, score) + t.count(t.half(b, 1), best, score)
}

// first is the lowest replica under b, from on, whose key scores at most best; NoReplica if there is none.
func (t *tournaments) first(b below, from ReplicaID, best int64, score Score) ReplicaID {
	if b.node == noSlot || b.base+1<<b.level <= from || score(b.g, t.nodes[b.node].min) > best {
		return NoReplica
	}
	if b.level == 0 {
		return b.base
	}
	if r := t.first(t.half(b, 0), from, best, score); r != NoReplica {
		return r
	}
	return t.first(t.half(b, 1), from, best, score)
}
