package explain

import (
	"slices"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
)

// residency follows, by the KV events of a log, the blocks of one prompt on every replica.
type residency struct {
	path        []prefix.Segment
	blockTokens int32
	blocks      int32
	on          []copies // by replica
	evictions   []eviction
}

// copies is what a replica holds of the prompt; nil slices until it stored any of it.
type copies struct {
	held []int32 // by block: copies
	lost []int32 // by block: 0 while it never went, else 1 + the index of the eviction, or cleared
}

// cleared stands for an eviction of everything.
const cleared = -1

// eviction is a moment at which blocks of the prompt were evicted, and what was stored on the replica in the same step.
type eviction struct {
	now    policies.Time
	stored []stored
}

type stored struct {
	stream prefix.StreamID
	blocks int32
}

// follow goes through a log up to the step in which the attempt was dispatched, whose facts count.
func followBlocks(lines decisionlog.Lines, tree *prefix.Tree, p prefix.Prefix, until int64) (*residency, error) {
	d := decisionlog.NewDecoder()
	var x *residency
	for line, err := range lines {
		if err != nil {
			return nil, err
		}
		s, err := d.Take(line)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		for i := range s.Facts {
			f := &s.Facts[i]
			if x == nil && (f.Kind == policies.BlocksStored || f.Kind == policies.BlocksEvicted) && f.BlockTokens > 0 {
				x = &residency{blockTokens: f.BlockTokens, blocks: p.Tokens / f.BlockTokens, on: make([]copies, len(d.Header.Capabilities))}
				x.path = tree.Segments(p, f.BlockTokens, nil)
			}
			if x != nil {
				x.take(s, f)
			}
		}
		if s.Number == until {
			break
		}
	}
	return x, nil
}

func (x *residency) take(s *decisionlog.Step, f *policies.Fact) {
	if f.Replica < 0 || int(f.Replica) >= len(x.on) {
		return
	}
	c := &x.on[f.Replica]
	switch f.Kind {
	case policies.BlocksCleared, policies.ReplicaDown, policies.ReplicaRestarted:
		for i := range c.held {
			if c.held[i] > 0 {
				c.held[i], c.lost[i] = 0, cleared
			}
		}
	case policies.BlocksStored, policies.BlocksEvicted:
		if f.BlockTokens != x.blockTokens {
			return
		}
		for _, g := range x.path {
			lo, hi := max(g.Lo, f.Lo), min(g.Hi, f.Hi)
			if g.Stream != f.Stream || lo >= hi {
				continue
			}
			if c.held == nil {
				c.held, c.lost = make([]int32, x.blocks), make([]int32, x.blocks)
			}
			x.change(c, s, f, lo, hi)
		}
	}
}

func (x *residency) change(c *copies, s *decisionlog.Step, f *policies.Fact, lo, hi int32) {
	if f.Kind == policies.BlocksStored {
		for i := lo; i < hi; i++ {
			c.held[i]++
		}
		return
	}
	mark := int32(0)
	for i := lo; i < hi; i++ {
		if c.held[i] == 0 {
			continue
		}
		if c.held[i]--; c.held[i] > 0 {
			continue
		}
		if mark == 0 {
			x.evictions = append(x.evictions, eviction{s.Now, storedWith(s, f.Replica)})
			mark = int32(len(x.evictions))
		}
		c.lost[i] = mark
	}
}

// storedWith is what a replica stored in a step, most first.
func storedWith(s *decisionlog.Step, r policies.ReplicaID) []stored {
	var list []stored
	for i := range s.Facts {
		f := &s.Facts[i]
		if f.Kind != policies.BlocksStored || f.Replica != r {
			continue
		}
		k := slices.IndexFunc(list, func(x stored) bool { return x.stream == f.Stream })
		if k < 0 {
			k = len(list)
			list = append(list, stored{stream: f.Stream})
		}
		list[k].blocks += f.Hi - f.Lo
	}
	slices.SortStableFunc(list, func(a, b stored) int { return int(b.blocks - a.blocks) })
	return list
}

// hit is how many leading tokens of a prompt of n tokens a replica holds; the last one always has to be computed.
func (x *residency) hit(r policies.ReplicaID, n int32) int32 {
	k := int32(0)
	for held := x.on[r].held; int(k) < len(held) && held[k] > 0; k++ {
	}
	return min(k, (n-1)/x.blockTokens) * x.blockTokens
}

// fate is what became of the blocks of a prompt that a replica does not hold in front.
type fate struct {
	evicted   int32           // tokens that were there and went
	cleared   int32           // tokens that went with everything else
	stranded  int32           // tokens that are there, behind a gap
	elsewhere int32           // tokens that were never here but are or were on another replica
	fresh     int32           // tokens of no block that anybody ever stored
	by        map[int32]int32 // tokens by eviction
}

func (x *residency) fate(r policies.ReplicaID, n int32) fate {
	f := fate{by: map[int32]int32{}}
	c := &x.on[r]
	for i := x.hit(r, n) / x.blockTokens; i < x.blocks; i++ {
		switch {
		case c.held != nil && c.held[i] > 0:
			f.stranded += x.blockTokens
		case c.held != nil && c.lost[i] == cleared:
			f.cleared += x.blockTokens
		case c.held != nil && c.lost[i] > 0:
			f.evicted += x.blockTokens
			f.by[c.lost[i]-1] += x.blockTokens
		case x.known(i):
			f.elsewhere += x.blockTokens
		default:
			f.fresh += x.blockTokens
		}
	}
	return f
}

// known is whether any replica ever held block i.
func (x *residency) known(i int32) bool {
	for k := range x.on {
		if c := &x.on[k]; c.held != nil && (c.held[i] > 0 || c.lost[i] != 0) {
			return true
		}
	}
	return false
}
