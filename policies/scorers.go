package policies

// ScoreOne is a score of 1. A scorer's scores are from 0 to ScoreOne.
const ScoreOne int64 = 1_000_000_000

// Weighted is a scorer with its weight, in thousandths, at most a million.
type Weighted struct {
	Scorer Scorer
	Weight int64
}

// AddScores writes the weighted sum of the terms' scores for every replica into totals; scratch is overwritten. Both have
// one element for each replica. A score outside 0 to ScoreOne counts as the nearer of them. A total is in ScoreOne's
// thousandths: 1 with weight 1 is 1000 ScoreOne.
func AddScores(now Time, v *View, t *Turn, terms []Weighted, totals, scratch []int64) {
	clear(totals)
	totals = totals[:len(scratch)]
	for _, w := range terms {
		clear(scratch)
		w.Scorer.Score(now, v, t, scratch)
		for i, s := range scratch {
			totals[i] += w.Weight * min(max(s, 0), ScoreOne)
		}
	}
}

// Part is n/d as a score, rounded down; 0 <= n, 0 < d, and n at most 9e9.
func Part(n, d int64) int64 { return ScoreOne * n / d }
