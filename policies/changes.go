package policies

// changes lists the replicas in the order in which something about them last changed that a Ranking may rest on: their
// state, their sample, the sums of their leases, the shared content that they hold. Whoever keeps an order of the
// replicas up to date remembers the count that it has seen and looks only at those that changed since.
type changes struct {
	count  uint64
	newest ReplicaID
	of     []change
}

type change struct {
	at           uint64 // count after the last change, 0 if there was none
	held         uint64 // the same, of the shared content that it holds
	newer, older ReplicaID
}

func (c *changes) init(replicas int) {
	c.newest = NoReplica
	c.of = make([]change, replicas)
	for i := range c.of {
		c.of[i] = change{newer: NoReplica, older: NoReplica}
	}
}

// noteHeld is note for the shared content that r holds.
func (c *changes) noteHeld(r ReplicaID) {
	c.note(r)
	c.of[r].held = c.count
}

// note makes r the one that changed last.
func (c *changes) note(r ReplicaID) {
	c.count++
	x := &c.of[r]
	x.at = c.count
	if c.newest == r {
		return
	}
	if x.newer != NoReplica {
		c.of[x.newer].older = x.older
	}
	if x.older != NoReplica {
		c.of[x.older].newer = x.newer
	}
	x.newer, x.older = NoReplica, c.newest
	if c.newest != NoReplica {
		c.of[c.newest].newer = r
	}
	c.newest = r
}
