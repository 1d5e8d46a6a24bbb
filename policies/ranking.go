package policies

import "github.com/sluice-sim/sluice/prefix"

// Ranking keeps the replicas that are up in order of load, so that a router finds the best one without looking at all of
// them, and finds exactly the one that looking at all of them would find. It sorts replicas into groups in which a prompt
// hits equally and the router's two figures A and B are equal, so that within a group the score depends on the key alone
// and never falls while the key grows. A group's smallest key and those that tie with it are at hand (see tournaments).
// The few replicas that hold more of a prompt than their class are judged one by one; and so are all where there are more
// groups than a quarter of the replicas, as when every replica holds other parts of many shared prompts.
//
// A decision costs the groups, the holders of the prompt's first stream that is not wide, and, for every replica that
// changed since the last one, the logarithm of their number. Nothing is done until a router asks. The zero value is not
// ready; a Ranking serves one View at a time and starts anew with another.
//
// Memory: for each replica 24 bytes, and in tournaments 16 where its neighbours are in its group, 100 and more where none is,
// times the system prompts (the paths of wide streams) that prompts begin with, at most maxBoards; 48 for each group.
type Ranking struct {
	*board // of the last query
	first  *board
	boards []*board
	byPath map[prefix.StreamID]int32
}

// maxBoards is for how many paths of wide streams a Ranking keeps an order. For others replicas are judged one by one.
const maxBoards = 64

// board is a Ranking for the prompts whose leading wide streams end with one stream. It counts replicas as one class
// that hold equally much of these.
type board struct {
	path   prefix.StreamID
	born   uint32 // generation of path
	place  func(v *View, r ReplicaID) Place
	byHits bool

	view    *View
	seen    uint64 // of the view's changes
	seats   []seat // by replica
	groups  []group
	classes []class
	byGroup map[groupKey]int32
	byClass map[uint64]int32
	live    []int32 // groups that have replicas, in no order that shows
	spareG  []int32
	spareC  []int32
	sets    tournaments

	query  uint32
	each   bool // every replica is judged by itself: groups are too many to help
	hits   []int32
	more   []exception
	ties   []ReplicaID
	active []below
}

// Place is where a router puts a replica: in the group of A and B, at a key.
type Place struct {
	A, B int64
	Key  int64 // less than the largest int64
}

// Group is what the replicas of a group have in common.
type Group struct {
	A, B int64
	Hit  int32 // tokens of the prompt that are expected to be resident; 0 if the Ranking does not go by hits
}

// Score is how a replica of g with a key scores; the smallest is the best. It must not fall while the key grows, nor rise
// while the hit grows.
type Score func(g Group, key int64) int64

type groupKey struct {
	class uint64
	a, b  int64
}

// group is a set of replicas, not empty unless the slot is free.
type group struct {
	key   groupKey
	class int32
	root  int32
	size  int32
	live  int32 // where it is on the list
}

// class is a class of the index with its hit for the prompt of a query.
type class struct {
	hash   uint64
	groups int32
	query  uint32
	hit    int32
}

// seat is where a replica has been put.
type seat struct {
	group int32 // noSlot if the replica is not up
	key   int64
	held  uint64 // what the replica held when its class was looked up; see changes
}

// exception is a replica that is judged by itself.
type exception struct {
	replica ReplicaID
	hit     int32
}

// NewRanking makes a Ranking in which place says where a replica belongs. What it says may change only with the replica's
// state, sample and leases, or before a call of Refresh. With byHits set, scores may depend on Group.Hit.
func NewRanking(byHits bool, place func(v *View, r ReplicaID) Place) *Ranking {
	b := &board{place: place, byHits: byHits, path: prefix.None}
	return &Ranking{board: b, first: b, byPath: make(map[prefix.StreamID]int32)}
}

// Ask makes t the turn that the queries below are about, as v is now.
func (k *Ranking) Ask(v *View, t *Turn) {
	if k.first.view != v {
		k.first.reset(v)
		k.boards = k.boards[:0]
		clear(k.byPath)
	}
	k.board = k.first
	each := false
	if path := v.index.widePath(t.Prompt); path != prefix.None {
		i, ok := k.byPath[path]
		if !ok && len(k.boards) < maxBoards {
			i, ok = int32(len(k.boards)), true
			k.boards = append(k.boards, &board{place: k.first.place, byHits: k.first.byHits, path: path})
			k.byPath[path] = i
		}
		if each = !ok; ok {
			k.board = k.boards[i]
			if g := v.tree.Generation(path); k.born != g {
				k.reset(v) // the slot is another stream's now
				k.born = g
			}
		}
	}
	k.ask(v, t, each)
}

// Refresh asks again where r belongs.
func (k *Ranking) Refresh(v *View, r ReplicaID) {
	k.first.sync(v)
	k.first.update(r)
	for _, b := range k.boards {
		b.sync(v)
		b.update(r)
	}
}

// sync brings the order up to date with v.
func (k *board) sync(v *View) {
	if k.view != v {
		k.reset(v)
	}
	c := &v.changes
	for r := c.newest; r != NoReplica && c.of[r].at > k.seen; r = c.of[r].older {
		k.update(r)
	}
	k.seen = c.count
}

func (k *board) reset(v *View) {
	k.view, k.seen, k.query = v, 0, 0
	k.seats = make([]seat, v.Replicas())
	for i := range k.seats {
		k.seats[i].group = noSlot
	}
	k.groups, k.classes, k.live, k.spareG, k.spareC = k.groups[:0], k.classes[:0], k.live[:0], k.spareG[:0], k.spareC[:0]
	k.byGroup, k.byClass = make(map[groupKey]int32), make(map[uint64]int32)
	k.sets.init(v.Replicas())
}

func (k *board) update(r ReplicaID) {
	s := &k.seats[r]
	if k.view.replicas[r].state != Up {
		k.leave(r)
		s.group = noSlot
		return
	}
	p := k.place(k.view, r)
	key := groupKey{a: p.A, b: p.B}
	if k.byHits {
		if held := k.view.changes.of[r].held; s.group == noSlot || s.held != held {
			key.class, s.held = k.view.index.classOn(k.path, r), held
		} else {
			key.class = k.groups[s.group].key.class
		}
	}
	if s.group != noSlot && k.groups[s.group].key == key {
		if s.key == p.Key {
			return
		}
	} else {
		k.leave(r)
		s.group = k.enter(key)
	}
	s.key = p.Key
	g := &k.groups[s.group]
	g.root = k.sets.set(g.root, r, p.Key)
}

// enter makes the group of a key one larger.
func (k *board) enter(key groupKey) int32 {
	i, ok := k.byGroup[key]
	if !ok {
		if n := len(k.spareG); n > 0 {
			i, k.spareG = k.spareG[n-1], k.spareG[:n-1]
		} else {
			k.groups = append(k.groups, group{})
			i = int32(len(k.groups) - 1)
		}
		k.groups[i] = group{key: key, class: k.enterClass(key.class), root: noSlot, live: int32(len(k.live))}
		k.live = append(k.live, i)
		k.byGroup[key] = i
	}
	k.groups[i].size++
	return i
}

func (k *board) enterClass(hash uint64) int32 {
	i, ok := k.byClass[hash]
	if !ok {
		if n := len(k.spareC); n > 0 {
			i, k.spareC = k.spareC[n-1], k.spareC[:n-1]
		} else {
			k.classes = append(k.classes, class{})
			i = int32(len(k.classes) - 1)
		}
		k.classes[i] = class{hash: hash}
		k.byClass[hash] = i
	}
	k.classes[i].groups++
	return i
}

// leave takes r out of its group, if it has one.
func (k *board) leave(r ReplicaID) {
	i := k.seats[r].group
	if i == noSlot {
		return
	}
	g := &k.groups[i]
	g.root = k.sets.remove(g.root, r)
	g.size--
	if g.size > 0 {
		return
	}
	delete(k.byGroup, g.key)
	last := k.live[len(k.live)-1]
	k.live[g.live], k.groups[last].live = last, g.live
	k.live = k.live[:len(k.live)-1]
	k.spareG = append(k.spareG, i)
	c := &k.classes[g.class]
	c.groups--
	if c.groups == 0 {
		delete(k.byClass, c.hash)
		k.spareC = append(k.spareC, g.class)
	}
}

// under is the whole of a group; its hit is that of the last query.
func (k *board) under(i int32) below {
	g := &k.groups[i]
	b := below{g: Group{A: g.key.a, B: g.key.b}, node: g.root, level: k.sets.depth}
	if k.byHits {
		b.g.Hit = k.classes[g.class].hit
	}
	return b
}
