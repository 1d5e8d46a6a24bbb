package policies

import "math"

// tournaments holds sets of replicas, each with a key, as binary tries over the replica's number that end in blocks of eight.
// Every node knows the smallest key below it, how many replicas have it, and the second smallest. A set is named by its root;
// noSlot is the empty set. An update costs the logarithm of the number of replicas; what of it is not shared by many replicas,
// and so not in the processor's caches, is a block and two or three nodes.
//
// Memory: 64 bytes for each block, 32 for each node; a set of m of n replicas has at most m blocks and m (1 + log2 n/8) nodes,
// and 1/8 and 2/8 n if all are in it.
type tournaments struct {
	depth       int // levels below the root; replicas are level 0, nodes that have a block level blockLevel
	nodes       []match
	blocks      []block
	spare       []int32 // nodes
	spareBlocks []int32
	path        [32]int32
}

// match is a node.
type match struct {
	min, second int64    // second is greater than min; noKey if there is none
	count       int32    // replicas whose key is min
	child       [2]int32 // on level blockLevel the first is the block
}

// block is the keys of eight replicas in a row, noKey for those that are not in the set.
type block [1 << blockLevel]int64

const blockLevel = 3

// noKey is greater than every key.
const noKey int64 = math.MaxInt64

func (t *tournaments) init(replicas int) {
	t.depth = blockLevel
	for 1<<t.depth < replicas {
		t.depth++
	}
	t.nodes, t.spare, t.blocks, t.spareBlocks = t.nodes[:0], t.spare[:0], t.blocks[:0], t.spareBlocks[:0]
}

// add makes a node of a level.
func (t *tournaments) add(level int) int32 {
	n := match{min: noKey, second: noKey, child: [2]int32{noSlot, noSlot}}
	if level == blockLevel {
		n.child[0] = t.addBlock()
	}
	if k := len(t.spare); k > 0 {
		at := t.spare[k-1]
		t.spare = t.spare[:k-1]
		t.nodes[at] = n
		return at
	}
	t.nodes = append(t.nodes, n)
	return int32(len(t.nodes) - 1)
}

func (t *tournaments) addBlock() int32 {
	if k := len(t.spareBlocks); k > 0 { // it is empty
		at := t.spareBlocks[k-1]
		t.spareBlocks = t.spareBlocks[:k-1]
		return at
	}
	t.blocks = append(t.blocks, block{})
	b := &t.blocks[len(t.blocks)-1]
	for i := range b {
		b[i] = noKey
	}
	return int32(len(t.blocks) - 1)
}

// block is the block of a node of level blockLevel.
func (t *tournaments) block(at int32) *block { return &t.blocks[t.nodes[at].child[0]] }

// set puts r into the set, or gives it another key there, and returns the root.
func (t *tournaments) set(root int32, r ReplicaID, key int64) int32 {
	if root == noSlot {
		root = t.add(t.depth)
	}
	at := root
	for level := t.depth - 1; level >= blockLevel; level-- {
		t.path[level] = at
		side := r >> level & 1
		next := t.nodes[at].child[side]
		if next == noSlot {
			next = t.add(level)
			t.nodes[at].child[side] = next
		}
		at = next
	}
	t.block(at)[r%(1<<blockLevel)] = key
	changed := t.tally(at)
	for level := blockLevel; level < t.depth && changed; level++ {
		changed = t.settle(t.path[level])
	}
	return root
}

// remove takes r, which is in it, out of the set and returns the root.
func (t *tournaments) remove(root int32, r ReplicaID) int32 {
	at := root
	for level := t.depth - 1; level >= blockLevel; level-- {
		t.path[level] = at
		at = t.nodes[at].child[r>>level&1]
	}
	t.block(at)[r%(1<<blockLevel)] = noKey
	changed := t.tally(at)
	gone := t.nodes[at].min == noKey
	if gone {
		t.spareBlocks = append(t.spareBlocks, t.nodes[at].child[0])
		t.spare = append(t.spare, at)
	}
	for level := blockLevel; level < t.depth && changed; level++ {
		at = t.path[level]
		if gone {
			t.nodes[at].child[r>>level&1] = noSlot
			if gone = t.nodes[at].child == [2]int32{noSlot, noSlot}; gone {
				t.spare = append(t.spare, at)
				continue
			}
		}
		changed = t.settle(at)
	}
	if gone {
		return noSlot
	}
	return root
}

// tally brings a node up to date with its block; false if that changed nothing.
func (t *tournaments) tally(at int32) bool {
	won := match{min: noKey, second: noKey}
	for _, key := range t.block(at) {
		switch {
		case key == noKey:
		case key < won.min:
			won.min, won.second, won.count = key, won.min, 1
		case key == won.min:
			won.count++
		default:
			won.second = min(won.second, key)
		}
	}
	return t.nodes[at].become(&won)
}

// become gives a node the figures of another; false if it has them.
func (n *match) become(won *match) bool {
	if n.min == won.min && n.second == won.second && n.count == won.count {
		return false
	}
	n.min, n.second, n.count = won.min, won.second, won.count
	return true
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
	return n.become(&won)
}

// lowest is the lowest replica of the set.
func (t *tournaments) lowest(root int32) ReplicaID {
	r := ReplicaID(0)
	for level := t.depth - 1; level >= blockLevel; level-- {
		side := ReplicaID(0)
		if t.nodes[root].child[0] == noSlot {
			side = 1
		}
		r |= side << level
		root = t.nodes[root].child[side]
	}
	b := t.block(root)
	for b[r%(1<<blockLevel)] == noKey {
		r++
	}
	return r
}

// below is a node of a set of group g at a level, blockLevel or above; the replicas under it are numbered from base on.
type below struct {
	g     Group
	node  int32
	level int
	base  ReplicaID
}

// half is one of the two nodes below b, which is above blockLevel.
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
	if b.level == blockLevel {
		k := 0
		for _, key := range t.block(b.node) {
			if key != noKey && score(b.g, key) <= best {
				k++
			}
		}
		return k
	}
	return t.count(t.half(b, 0), best, score) + t.count(t.half(b, 1), best, score)
}

// first is the lowest replica under b, from on, whose key scores at most best; NoReplica if there is none.
func (t *tournaments) first(b below, from ReplicaID, best int64, score Score) ReplicaID {
	if b.node == noSlot || b.base+1<<b.level <= from || score(b.g, t.nodes[b.node].min) > best {
		return NoReplica
	}
	if b.level == blockLevel {
		for i, key := range t.block(b.node) {
			if r := b.base + ReplicaID(i); r >= from && key != noKey && score(b.g, key) <= best {
				return r
			}
		}
		return NoReplica
	}
	if r := t.first(t.half(b, 0), from, best, score); r != NoReplica {
		return r
	}
	return t.first(t.half(b, 1), from, best, score)
}
