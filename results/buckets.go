package results

// First values of the ranges of turn numbers and of prompt tokens; the last range is open.
var (
	turnEdges    = [...]int64{1, 2, 3, 4, 5, 6, 8, 11, 16, 21, 31, 51, 76, 101, 151, 201}
	contextEdges = [...]int64{0, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18}
)

// bucket is the range that holds v, the first one if v lies below it.
func bucket(edges []int64, v int64) int {
	n := 0
	for _, edge := range edges[1:] {
		n += int(uint64(edge-v-1) >> 63) // 1 if edge <= v; no branch, which could not be foreseen
	}
	return n
}

// bucketsOf adds a finished attempt to its buckets, if it is the last one, and returns them as fields of a tag.
func (c *Collector) bucketsOf(t *Turn) uint32 {
	turn, context := bucket(turnEdges[:], int64(t.Number)), bucket(contextEdges[:], int64(t.PromptTokens))
	if t.Final {
		for _, b := range []*bucketSums{&c.sums.byTurn[turn], &c.sums.byContext[context]} {
			b.hit += t.hits()
			b.ceiling += int64(t.CeilingTokens)
			b.prompt += int64(t.PromptTokens)
		}
	}
	return turnField.tag(turn) | contextField.tag(context)
}

// bucketsWith are buckets without their distributions.
func bucketsWith(edges []int64, sums []bucketSums) []Bucket {
	all := make([]Bucket, len(edges))
	for i := range all {
		all[i] = Bucket{From: edges[i], HitRate: ratio(float64(sums[i].hit), float64(sums[i].prompt)),
			Ceiling: ratio(float64(sums[i].ceiling), float64(sums[i].prompt))}
		if i+1 < len(edges) {
			all[i].To = edges[i+1] - 1
		}
	}
	return all
}

// usedBuckets are those with a turn.
func usedBuckets(all []Bucket) []Bucket {
	used := []Bucket{}
	for _, b := range all {
		if b.Turns = b.E2EL.N; b.Turns > 0 {
			used = append(used, b)
		}
	}
	return used
}
