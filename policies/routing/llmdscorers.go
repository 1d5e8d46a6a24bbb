package routing

import "github.com/sluice-sim/sluice/policies"

// The scorers of llm-d that keep nothing, and the two that do. spec: policies 3.4.

// queueScorer: (max - W)/(max - min).
type queueScorer struct{ loads *llmdLoads }

func (s queueScorer) Score(_ policies.Time, v *policies.View, _ *policies.Turn, dst []int64) {
	minMax(v, &s.loads.waiting, dst)
}

// runningScorer: the same of R.
type runningScorer struct{ loads *llmdLoads }

func (s runningScorer) Score(_ policies.Time, v *policies.View, _ *policies.Turn, dst []int64) {
	minMax(v, &s.loads.running, dst)
}

// minMax scores the smallest figure 1 and the largest 0; 1 for all if they are equal.
func minMax(v *policies.View, f *figures, dst []int64) {
	f.score(v, dst, func(x int64) int64 { return minMaxScore(x, f.least, f.most) })
}

func minMaxScore(x, least, most int64) int64 {
	if least == most {
		return policies.ScoreOne
	}
	return policies.Part(most-x, most-least)
}

// kvUsageScorer: 1 - U.
type kvUsageScorer struct{ loads *llmdLoads }

func (s kvUsageScorer) Score(_ policies.Time, v *policies.View, _ *policies.Turn, dst []int64) {
	known, sum := int64(0), int64(0)
	for _, r := range v.Up() {
		if free := s.loads.free[r]; free != unknownScore {
			known, sum = known+1, sum+free
		}
	}
	mean := policies.ScoreOne / 2 // with nothing known, the same for all
	if known > 0 {
		mean = sum / known
	}
	for _, r := range v.Up() {
		if dst[r] = s.loads.free[r]; dst[r] == unknownScore {
			dst[r] = mean
		}
	}
}

// unknownScore marks a replica that has not reported.
const unknownScore = -1

// freeScore is 1 - usage as a score, rounded down; 0 for a usage that is no number.
func freeScore(usage float64) int64 {
	if !(usage < 1) {
		return 0
	}
	return int64(float64((1 - max(0, usage)) * float64(policies.ScoreOne)))
}

// loadAwareScorer: a half with nothing waiting, otherwise a half of 1 - min(W, T)/T.
type loadAwareScorer struct {
	loads     *llmdLoads
	threshold int64
}

func (s loadAwareScorer) Score(_ policies.Time, v *policies.View, _ *policies.Turn, dst []int64) {
	s.loads.waiting.score(v, dst, func(x int64) int64 { return loadAwareScore(x, s.threshold) })
}

func loadAwareScore(waiting, threshold int64) int64 {
	return policies.Part(threshold-min(waiting, threshold), 2*threshold)
}

// activeRequestScorer: 1 up to idle turns in flight, otherwise (max - F)/max of busy.
type activeRequestScorer struct {
	loads      *llmdLoads
	idle, busy int64
}

func (s activeRequestScorer) Score(_ policies.Time, v *policies.View, _ *policies.Turn, dst []int64) {
	f := &s.loads.inFlight
	f.score(v, dst, func(x int64) int64 { return activeRequestScore(x, f.most, s.idle, s.busy) })
}

func activeRequestScore(inFlight, most, idle, busy int64) int64 {
	if inFlight <= idle {
		return policies.ScoreOne
	}
	return busy * (most - inFlight) / most
}

// tokenLoadScorer: 1 - (tokens in flight, this prompt's uncached ones included)/M.
type tokenLoadScorer struct {
	most   int64
	lookup *llmdLookup
}

func (s tokenLoadScorer) Score(_ policies.Time, v *policies.View, t *policies.Turn, dst []int64) {
	for _, r := range v.Up() {
		dst[r] = tokenLoadScore(s.lookup.inFlight(v, r)+int64(t.Prompt.Tokens-s.lookup.hits[r]), s.most)
	}
}

func tokenLoadScore(tokens, most int64) int64 { return policies.Part(max(0, most-tokens), most) }

// prefixScorer: blocks found of blocks looked up, and how many tokens that is.
type prefixScorer struct {
	minMax       bool
	lengthWeight int64 // ScoreOne is 1
	lengthTokens int64
	lookup       *llmdLookup
}

func newPrefixScorer(p policies.Params, l *llmdLookup) prefixScorer {
	return prefixScorer{p["prefix_scale"].Text == scaleMinMax, int64(p["match_length_weight"].Number * float64(policies.ScoreOne)), int64(p["match_length_tokens"].Number), l}
}

func (s prefixScorer) Score(_ policies.Time, v *policies.View, _ *policies.Turn, dst []int64) {
	var least, most int64 // of those that have any
	for _, r := range v.Up() {
		x := s.lookup.parts[r]
		if x > 0 && (least == 0 || x < least) {
			least = x
		}
		most = max(most, x)
	}
	hit, score := int32(-1), int64(0) // of the replica before: few are different
	for _, r := range v.Up() {
		if h := s.lookup.hits[r]; h != hit {
			hit, score = h, s.score(s.lookup.parts[r], h, least, most)
		}
		dst[r] = score
	}
}

func (s prefixScorer) score(part int64, hit int32, least, most int64) int64 {
	if s.minMax {
		part = minMaxPrefixScore(part, least, most)
	}
	if s.lengthWeight > 0 {
		part = lengthScore(part, int64(hit), s.lengthTokens, s.lengthWeight)
	}
	return part
}

// minMaxPrefixScore is where the share x lies between the least and the most of those above 0; 1 if these are all equal, and
// 0 for a share of 0.
func minMaxPrefixScore(x, least, most int64) int64 {
	switch {
	case x == 0:
		return 0
	case least == most:
		return policies.ScoreOne
	}
	return policies.Part(x-least, most-least)
}

// lengthScore is weight x (hit/tokens, at most 1)^2 + (1 - weight) x share.
func lengthScore(share, hit, tokens, weight int64) int64 {
	length := policies.Part(min(hit, tokens), tokens)
	length = length * length / policies.ScoreOne
	return (weight*length + (policies.ScoreOne-weight)*share) / policies.ScoreOne
}

// noHitLRU spreads prompts that nobody holds: replicas that never took one first, then by how long ago they did.
type noHitLRU struct {
	lookup *llmdLookup
	order  []policies.ReplicaID // that took one, the longest ago first
}

// noHitCapacity is how many replicas noHitLRU remembers.
const noHitCapacity = 1024

func (s *noHitLRU) used(r policies.ReplicaID) {
	for i, x := range s.order {
		if x == r {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	if len(s.order) == noHitCapacity {
		s.order = s.order[:copy(s.order, s.order[1:])]
	}
	s.order = append(s.order, r)
}

func (s *noHitLRU) Score(_ policies.Time, v *policies.View, _ *policies.Turn, dst []int64) {
	up := v.Up()
	for _, r := range up {
		dst[r] = policies.ScoreOne
		if !s.lookup.nowhere {
			dst[r] = policies.ScoreOne / 2
		}
	}
	if !s.lookup.nowhere {
		return
	}
	used := 0
	for _, r := range s.order {
		if v.IsUp(r) {
			used++
		}
	}
	rank := len(up) - used
	for _, r := range s.order {
		if v.IsUp(r) {
			dst[r] = rankedScore(rank, len(up))
			rank++
		}
	}
}

// rankedScore is 1 - rank/(n-1).
func rankedScore(rank, n int) int64 {
	if n < 2 {
		return policies.ScoreOne
	}
	return policies.Part(int64(n-1-rank), int64(n-1))
}

// sessionAffinity: 1 where the session's last turn went.
type sessionAffinity struct{ places }

func (s *sessionAffinity) Score(now policies.Time, _ *policies.View, t *policies.Turn, dst []int64) {
	if r, ok := s.get(now, int32(t.Session)); ok {
		dst[r] = policies.ScoreOne
	}
}
