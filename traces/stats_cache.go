package traces

import (
	"maps"
	"slices"
)

// CacheStats is what an infinite cache would hit when only prompts are kept: a request hits its leading blocks that an
// earlier request had. Ratios are nil without blocks or tokens.
type CacheStats struct {
	Blocks          int64    `json:"blocks"`
	PrefixHitBlocks int64    `json:"prefix_hit_blocks"`
	AnyHitBlocks    int64    `json:"any_hit_blocks"`  // known blocks at any position
	VLLMHitBlocks   int64    `json:"vllm_hit_blocks"` // at most floor((input-1)/block) of a request
	UniqueBlocks    int64    `json:"unique_blocks"`
	InputTokens     int64    `json:"input_tokens"`
	HitTokens       int64    `json:"hit_tokens"`
	BlockHit        *float64 `json:"block_hit,omitempty"`
	TokenHit        *float64 `json:"token_hit,omitempty"`
	Intra           int64    `json:"intra"` // hits on blocks that an earlier request of the same sequence had
	Cross           int64    `json:"cross"`
	IntraShare      *float64 `json:"intra_share,omitempty"`
	ReuseInterval   *Dist    `json:"reuse_interval_s,omitempty"` // since the last request with the block, by hit
}

// cacheCounter counts requests in order, namespace by namespace.
type cacheCounter struct {
	CacheStats
	block     int64
	intervals map[int64]int64 // reuse interval in nanoseconds to hits

	last   []int64 // by node of the namespace: time of the last request with it, unseen for none
	seq    []int32 // the sequence of that request
	former map[nodeSeq]struct{}
}

// nodeSeq says that a sequence had a node before another sequence did.
type nodeSeq struct{ node, seq int32 }

const unseen int64 = -1 << 62

func newCacheCounter(block int64) *cacheCounter {
	return &cacheCounter{block: block, intervals: map[int64]int64{}}
}

// namespace starts a namespace of ids with the given number of nodes.
func (c *cacheCounter) namespace(nodes int) {
	c.UniqueBlocks += int64(nodes)
	c.last = slices.Grow(c.last[:0], nodes)[:nodes]
	c.seq = slices.Grow(c.seq[:0], nodes)[:nodes]
	for i := range c.last {
		c.last[i] = unseen
	}
	c.former = map[nodeSeq]struct{}{}
}

// request counts one request and returns its hit tokens.
func (c *cacheCounter) request(path []int32, in, timeNS int64, sequence int32) int64 {
	k := int64(0)
	for k < int64(len(path)) && c.last[path[k]] != unseen {
		k++
	}
	for _, n := range path[k:] {
		if c.last[n] != unseen {
			c.AnyHitBlocks++
		}
	}
	c.Blocks += int64(len(path))
	c.PrefixHitBlocks += k
	c.AnyHitBlocks += k
	c.VLLMHitBlocks += min(k, (in-1)/c.block)
	hit := min(k*c.block, in)
	c.InputTokens += in
	c.HitTokens += hit
	run, since := int64(0), unseen // neighbours mostly have the same last request
	for _, n := range path[:k] {
		if c.last[n] != since {
			c.count(timeNS, since, run)
			run, since = 0, c.last[n]
		}
		run++
		if c.seq[n] == sequence {
			c.Intra++
		} else if _, had := c.former[nodeSeq{n, sequence}]; had {
			c.Intra++
		}
	}
	c.count(timeNS, since, run)
	for _, n := range path {
		if c.last[n] != unseen && c.seq[n] != sequence {
			c.former[nodeSeq{n, c.seq[n]}] = struct{}{}
		}
		c.last[n], c.seq[n] = timeNS, sequence
	}
	return hit
}

func (c *cacheCounter) count(now, since, run int64) {
	if run > 0 {
		c.intervals[now-since] += run
	}
}

func (c *cacheCounter) finish() *CacheStats {
	s := c.CacheStats
	s.Cross = s.PrefixHitBlocks - s.Intra
	s.BlockHit = ratio(s.PrefixHitBlocks, s.Blocks)
	s.TokenHit = ratio(s.HitTokens, s.InputTokens)
	s.IntraShare = ratio(s.Intra, s.PrefixHitBlocks)
	if s.PrefixHitBlocks == 0 {
		return &s
	}
	keys := slices.Sorted(maps.Keys(c.intervals))
	rank := func(percent int64) float64 {
		seen := int64(0)
		for _, k := range keys {
			if seen += c.intervals[k]; seen*100 >= percent*s.PrefixHitBlocks {
				return float64(k) / 1e9
			}
		}
		return float64(keys[len(keys)-1]) / 1e9
	}
	s.ReuseInterval = &Dist{N: s.PrefixHitBlocks, Min: float64(keys[0]) / 1e9, P50: rank(50), P90: rank(90), P99: rank(99),
		Max: float64(keys[len(keys)-1]) / 1e9}
	return &s
}

// ratio is a/b, nil when there is no b.
func ratio(a, b int64) *float64 {
	if b == 0 {
		return nil
	}
	r := float64(a) / float64(b)
	return &r
}
