package traces

import "fmt"

// hashNodes numbers the hash ids of one namespace 0, 1, ... by first use and checks that they are what both sources
// promise, chained prefix hashes: an id always follows the same id. A node then stands for a whole prefix.
type hashNodes struct {
	dense  []int32         // id to node+1, 0 for none; ids are mostly small
	sparse map[int64]int32 // id to node, of ids that were far beyond the number of nodes when they came
	ids    []int64         // id of each node
	parent []int32         // node before, -1 for a first block
}

// path appends the nodes of a prompt's ids to dst.
func (h *hashNodes) path(ids []int64, dst []int32) ([]int32, error) {
	prev := int32(-1)
	for i, id := range ids {
		n := h.lookup(id)
		if n < 0 {
			n = h.add(id, prev)
		} else if h.parent[n] != prev {
			return dst, &InputError{
				Key:      fmt.Sprintf("hash_ids[%d]", i),
				Found:    fmt.Sprintf("id %d after %s, in an earlier prompt after %s", id, h.idName(prev), h.idName(h.parent[n])),
				Expected: "ids in order, each always after the same one (chained prefix hashes)",
				Do:       "the source is damaged or its ids are not prefix hashes",
			}
		}
		dst = append(dst, n)
		prev = n
	}
	return dst, nil
}

func (h *hashNodes) lookup(id int64) int32 {
	if id < int64(len(h.dense)) && h.dense[id] > 0 {
		return h.dense[id] - 1
	}
	if n, ok := h.sparse[id]; ok {
		return n
	}
	return -1
}

func (h *hashNodes) add(id int64, parent int32) int32 {
	n := int32(len(h.parent))
	h.parent = append(h.parent, parent)
	h.ids = append(h.ids, id)
	if id < 4*int64(n)+1024 {
		if missing := id + 1 - int64(len(h.dense)); missing > 0 {
			h.dense = append(h.dense, make([]int32, missing)...)
		}
		h.dense[id] = n + 1
		return n
	}
	if h.sparse == nil {
		h.sparse = make(map[int64]int32)
	}
	h.sparse[id] = n
	return n
}

func (h *hashNodes) idName(node int32) string {
	if node < 0 {
		return "no id"
	}
	return fmt.Sprintf("id %d", h.ids[node])
}

func (h *hashNodes) len() int { return len(h.parent) }
