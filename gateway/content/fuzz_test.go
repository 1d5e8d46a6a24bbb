package content

import (
	"testing"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Whatever an engine sends, the books stay right and bounded, and what it is known to hold can be cleared to the last block.
func FuzzApply(f *testing.F) {
	type hs = []kvevents.Hash
	long := stored(0, hs{1, 2, 3}, 2, 1, 2, 3, 4, 5, 6)
	for _, b := range []kvevents.Batch{
		{Events: []kvevents.Event{long, removed(3, 1)}},
		{Events: []kvevents.Event{long, stored(2, hs{4}, 2, 9, 9), {Kind: kvevents.AllBlocksCleared}, long}},
		{Events: []kvevents.Event{stored(0, hs{1, 1}, 2, 1, 2, 1, 2), removed(1, 1, 1)}},
		{Events: []kvevents.Event{stored(0, hs{7}, 4, 1, 2, 3, 4), stored(7, hs{8}, 2, 5, 6), stored(7, hs{7}, 4, 1, 2, 3, 4)}},
	} {
		f.Add(b.Append(nil, false), b.Append(nil, true))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		tree := &prefix.Tree{}
		tb := New(tree, newHasher(t, secret, 2), Options{MaxBlocks: 1000, IdleBlocks: 10, MaxPlaced: 200})
		for i, payload := range [][]byte{first, second, first} {
			var b kvevents.Batch
			if b.Decode(payload) != nil {
				continue
			}
			r := policies.ReplicaID(i % 2)
			for _, fact := range tb.Apply(r, &b, nil) {
				if fact.Kind != policies.BlocksCleared && (fact.Lo < 0 || fact.Lo >= fact.Hi || fact.BlockTokens < 2 || int(fact.Stream) >= tree.Len()) {
					t.Fatalf("an impossible fact: %+v", fact)
				}
			}
		}
		tb.Clear(0, nil)
		tb.Clear(1, nil)
		if s := tb.Stats(); s.ResidentBlocks != 0 || s.Blocks > 1000 || s.IdleBlocks > 10 || s.Blocks != s.IdleBlocks {
			t.Fatalf("after all was cleared: %+v", s)
		}
	})
}
