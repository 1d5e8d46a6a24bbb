package policies

import "slices"

// byKey is the score of a Ranking without groups.
func byKey(_ Group, key int64) int64 { return key }

// First is the replica with the smallest key, of several the first one from on, or if there is none from the lowest on;
// NoReplica if none is up. It is for a Ranking that puts all replicas into one group.
func (k *board) First(v *View, from ReplicaID) ReplicaID {
	k.sync(v)
	if len(k.live) == 0 {
		return NoReplica
	}
	b := k.under(k.live[0])
	least := k.sets.nodes[b.node].min
	if r := k.sets.first(b, from, least, byKey); r != NoReplica {
		return r
	}
	return k.sets.first(b, 0, least, byKey)
}

// ask makes t the turn that the queries below are about, as v is now; each has all replicas judged by themselves.
func (k *board) ask(v *View, t *Turn, each bool) {
	k.sync(v)
	k.query++
	k.more = k.more[:0]
	if k.each = each || 4*len(k.live) > len(v.up); k.each {
		if len(k.hits) != v.Replicas() {
			k.hits = make([]int32, v.Replicas())
		}
		v.EstimateHits(t, k.hits)
		for _, r := range v.up {
			k.more = append(k.more, exception{r, k.hits[r]})
		}
		return
	}
	x := &v.index
	for _, i := range k.live {
		g := &k.groups[i]
		if c := &k.classes[g.class]; c.query != k.query {
			c.query, c.hit = k.query, x.wideHit(k.sets.lowest(g.root), t.Prompt)
		}
	}
	for _, b := range x.sizes {
		for at := x.firstNarrow(t.Prompt, b); at != noSlot; at = x.holders[at].next {
			if r := x.holders[at].replica; x.blockTokens[r] == b {
				k.judge(r, x.follow(r, t.Prompt, false))
			}
		}
	}
	if r := v.LastReplica(t.Thread); v.has(r) && x.blockTokens[r] == 0 {
		k.judge(r, v.recalledHit(r, t))
	}
}

// judge makes r, with its hit, one that is judged by itself, if it is up and its hit is not that of its class.
func (k *board) judge(r ReplicaID, hit int32) {
	if g := k.seats[r].group; g != noSlot && hit > k.classes[k.groups[g].class].hit {
		k.more = append(k.more, exception{r, hit})
	}
}

// Longest is the replica with the most resident tokens, the lowest of several, and how many they are; NoReplica if none is
// up.
func (k *board) Longest() (home ReplicaID, hit int32) {
	home = NoReplica
	for _, e := range k.more {
		if home == NoReplica || e.hit > hit || e.hit == hit && e.replica < home {
			home, hit = e.replica, e.hit
		}
	}
	if k.each {
		return home, hit
	}
	for _, i := range k.live {
		b := k.under(i)
		if home != NoReplica && b.g.Hit < hit {
			continue
		}
		if r := k.sets.lowest(b.node); home == NoReplica || b.g.Hit > hit || r < home {
			home, hit = r, b.g.Hit
		}
	}
	return home, hit
}

// Lowest is the replica with the smallest score, the lowest of several; NoReplica if none is up.
func (k *board) Lowest(score Score) ReplicaID {
	if len(k.live) == 0 {
		return NoReplica
	}
	best := k.best(score)
	to := NoReplica
	for _, r := range k.ties {
		if to == NoReplica || r < to {
			to = r
		}
	}
	if k.each {
		return to
	}
	for _, i := range k.live {
		if r := k.sets.first(k.under(i), 0, best, score); r != NoReplica && (to == NoReplica || r < to) {
			to = r
		}
	}
	return to
}

// InTurn is the replica that comes turn-th, modulo their number, among those with the smallest score in ascending order,
// and how many these are; NoReplica if none is up.
func (k *board) InTurn(score Score, turn uint64) (to ReplicaID, ties int) {
	if len(k.live) == 0 {
		return NoReplica, 0
	}
	best := k.best(score)
	if k.each { // in ascending order
		return k.ties[turn%uint64(len(k.ties))], len(k.ties)
	}
	k.active, ties = k.active[:0], len(k.ties)
	for _, i := range k.live {
		b := k.under(i)
		if n := k.sets.count(b, best, score); n > 0 {
			k.active = append(k.active, b)
			ties += n
		}
	}
	left := int(turn % uint64(ties))
	base := ReplicaID(0)
	for level := k.sets.depth - 1; level >= blockLevel; level-- {
		n := 0
		for _, b := range k.active {
			n += k.sets.count(k.sets.half(b, 0), best, score)
		}
		for _, r := range k.ties {
			if r >= base && r < base+1<<level {
				n++
			}
		}
		side := int32(0)
		if left >= n {
			side = 1
			left -= n
			base += 1 << level
		}
		kept := k.active[:0]
		for _, b := range k.active {
			if h := k.sets.half(b, side); h.node != noSlot {
				kept = append(kept, h)
			}
		}
		k.active = kept
	}
	for r := base; ; r++ { // one of a block
		if k.isBest(r, best, score) {
			if left == 0 {
				return r, ties
			}
			left--
		}
	}
}

// isBest tells whether r scores best, by itself or in a block of k.active.
func (k *board) isBest(r ReplicaID, best int64, score Score) bool {
	for _, b := range k.active {
		if key := k.sets.block(b.node)[r%(1<<blockLevel)]; key != noKey && score(b.g, key) <= best {
			return true
		}
	}
	return slices.Contains(k.ties, r)
}

// best is the smallest score. It leaves in k.ties the replicas that have it and are judged by themselves, unless they
// would have it in their group too: those are counted there.
func (k *board) best(score Score) int64 {
	best := noKey
	k.ties = k.ties[:0]
	for _, e := range k.more {
		switch s := k.own(e, score); {
		case s < best:
			best, k.ties = s, append(k.ties[:0], e.replica)
		case s == best:
			k.ties = append(k.ties, e.replica)
		}
	}
	if k.each {
		return best
	}
	for _, i := range k.live {
		b := k.under(i)
		if s := score(b.g, k.sets.nodes[b.node].min); s < best {
			best, k.ties = s, k.ties[:0]
		}
	}
	alone := k.ties[:0]
	for _, r := range k.ties {
		if s := &k.seats[r]; score(k.under(s.group).g, s.key) > best {
			alone = append(alone, r)
		}
	}
	k.ties = alone
	return best
}

func (k *board) own(e exception, score Score) int64 {
	s := &k.seats[e.replica]
	g := &k.groups[s.group].key
	return score(Group{A: g.a, B: g.b, Hit: e.hit}, s.key)
}
