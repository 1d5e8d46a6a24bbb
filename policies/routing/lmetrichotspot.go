package routing

import (
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// hotspots is LMetric's detector of prefixes that are so popular that the product keeps choosing those that hold them. Turns
// are in classes by the content of their first blocks. A class raises the alarm when its share of the recent turns is
// larger than the share of replicas that hold its prefix; when it does for 2|M| turns in a row that all went to one of the M
// holders, the next goes to another.
type hotspots struct {
	window  int
	block   int32   // tokens
	recent  []int32 // ring of classes
	oldest  int
	counts  []int32 // by class: of recent
	streaks []int32 // by class: turns in a row won by a holder while there was alarm
	hits    []int32
	holders []bool
}

// hotspotBlocks is how many blocks tell classes apart.
const hotspotBlocks = 4

// verdict is what the detector makes of a turn.
type verdict struct {
	to       policies.ReplicaID
	why      policies.Reason
	class    int32
	atHolder bool // there was alarm and a holder won
}

// choose is the replica that the product chooses, or, when the turn's prefix has been too popular for long enough, the one
// that it chooses among those that do not hold it. It has no side effect.
func (h *hotspots) choose(m *lmetric, v *policies.View, t *policies.Turn) verdict {
	up := v.Up()
	if len(up) == 0 {
		return verdict{to: policies.NoReplica}
	}
	h.hits = hitsOf(v, t, h.hits)
	for len(h.holders) < v.Replicas() {
		h.holders = append(h.holders, false)
	}
	first := min(t.Prompt.Tokens, hotspotBlocks*h.block)
	least := max(1, min(first, (t.Prompt.Tokens-1)/h.block*h.block)) // the last token is never found
	n := 0
	for _, r := range up {
		if h.holders[r] = h.hits[r] >= least; h.holders[r] {
			n++
		}
	}
	d := verdict{why: policies.BestScore, class: int32(v.Owner(prefix.Prefix{Stream: t.Prompt.Stream, Tokens: first}).Stream)}
	d.to = h.least(m, v, t, false)
	count, streak := int32(0), int32(0)
	if int(d.class) < len(h.counts) {
		count, streak = h.counts[d.class], h.streaks[d.class]
	}
	if !hotspotAlarm(int64(count), int64(len(h.recent)), int64(n), int64(len(up))) || !h.holders[d.to] {
		return d
	}
	d.atHolder = true
	if int(streak) >= 2*n {
		d.to, d.why, d.atHolder = h.least(m, v, t, true), policies.Hotspot, false
	}
	return d
}

// hotspotAlarm says whether x/(1-x) > M/(n-M), where x is count of recent turns and M are holders of n replicas. With no
// holder or only holders there is nothing to be done.
func hotspotAlarm(count, recent, holders, replicas int64) bool {
	return holders > 0 && holders < replicas && count*(replicas-holders) > holders*(recent-count)
}

// least is the smallest product, lowest replica on a tie; only of those that do not hold the prefix if others is set.
func (h *hotspots) least(m *lmetric, v *policies.View, t *policies.Turn, others bool) policies.ReplicaID {
	best, least := policies.NoReplica, int64(0)
	for _, r := range v.Up() {
		if others && h.holders[r] {
			continue
		}
		p := m.place(v, r)
		if s := lmetricScore(p.Key, t.Prompt.Tokens-h.hits[r], p.A); best == policies.NoReplica || s < least {
			best, least = r, s
		}
	}
	return best
}

// note takes a turn's verdict into account.
func (h *hotspots) note(d verdict) {
	for int(d.class) >= len(h.counts) {
		h.counts, h.streaks = append(h.counts, 0), append(h.streaks, 0)
	}
	h.streaks[d.class]++
	if !d.atHolder {
		h.streaks[d.class] = 0
	}
	if len(h.recent) < h.window {
		h.recent = append(h.recent, d.class)
	} else {
		h.counts[h.recent[h.oldest]]--
		h.recent[h.oldest] = d.class
		h.oldest = (h.oldest + 1) % h.window
	}
	h.counts[d.class]++
}
