package policies

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Sets answer as a list that is looked through does, also where different keys score the same.
func TestTournamentsEqualLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "replicas")
		coarse := rapid.Int64Range(1, 4).Draw(t, "keys with one score")
		score := func(_ Group, key int64) int64 { return key / coarse }
		var sets tournaments
		sets.init(n)
		roots := []int32{noSlot, noSlot}
		lists := []map[ReplicaID]int64{{}, {}}
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			i := rapid.IntRange(0, 1).Draw(t, "set")
			r := ReplicaID(rapid.IntRange(0, n-1).Draw(t, "replica"))
			if _, in := lists[i][r]; in && rapid.Bool().Draw(t, "remove") {
				delete(lists[i], r)
				roots[i] = sets.remove(roots[i], r)
			} else {
				lists[i][r] = rapid.Int64Range(0, 12).Draw(t, "key")
				roots[i] = sets.set(roots[i], r, lists[i][r])
			}
			for k, list := range lists {
				equalList(t, &sets, roots[k], list, n, score)
			}
		}
	})
}

func equalList(t *rapid.T, sets *tournaments, root int32, list map[ReplicaID]int64, n int, score Score) {
	if (root == noSlot) != (len(list) == 0) {
		t.Fatalf("root %d of a set of %d", root, len(list))
	}
	if root == noSlot {
		return
	}
	members := slices.Sorted(maps.Keys(list))
	if r := sets.lowest(root); r != members[0] {
		t.Fatalf("lowest %d, expected %d", r, members[0])
	}
	least := slices.Min(slices.Collect(maps.Values(list)))
	if m := sets.nodes[root].min; m != least {
		t.Fatalf("least key %d, expected %d", m, least)
	}
	best := score(Group{}, least)
	whole := below{node: root, level: sets.depth}
	from := ReplicaID(rapid.IntRange(0, n-1).Draw(t, "from"))
	count, first := 0, NoReplica
	for _, r := range members {
		if score(Group{}, list[r]) > best {
			continue
		}
		count++
		if first == NoReplica && r >= from {
			first = r
		}
	}
	if k := sets.count(whole, best, score); k != count {
		t.Fatalf("%d score best, expected %d", k, count)
	}
	if r := sets.first(whole, from, best, score); r != first {
		t.Fatalf("the first one from %d on that scores best is %d, expected %d", from, r, first)
	}
}
