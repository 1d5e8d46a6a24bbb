package sim

import "math"

// never is later than any moment.
const never int64 = math.MaxInt64

// ends is the next end of a step of each replica that is to be settled at its moment. It is a tree of winners: each node has
// the earlier end of its two children, the smaller replica's where they are equal, so that a change costs the height.
type ends struct {
	nodes []end // node 1 is the root, the children of k are 2k and 2k+1, the leaves come last, by replica
	first int32 // leaf
}

// end is when a step of a replica ends.
type end struct {
	at      int64
	replica int32
}

func newEnds(replicas int) ends {
	n := int32(1)
	for int(n) < replicas {
		n *= 2
	}
	e := ends{nodes: make([]end, 2*n), first: n}
	for i := range n {
		e.nodes[n+i] = end{never, i}
	}
	for k := n - 1; k > 0; k-- {
		e.nodes[k] = e.nodes[2*k]
	}
	return e
}

// next is the earliest end; at never where there is none.
func (e *ends) next() end { return e.nodes[1] }

// set plans the next end of a replica, in place of the one that was planned.
func (e *ends) set(replica int32, at int64) {
	k := e.first + replica
	e.nodes[k].at = at
	for k >>= 1; k > 0; k >>= 1 {
		winner := e.nodes[2*k]
		if right := e.nodes[2*k+1]; right.at < winner.at {
			winner = right
		}
		if e.nodes[k] == winner && winner.replica != replica {
			return
		}
		e.nodes[k] = winner
	}
}
