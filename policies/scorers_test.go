package policies

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixedScores gives the same scores always, and checks that its slice comes empty.
type fixedScores struct {
	t      *testing.T
	scores []int64
}

func (f fixedScores) Score(_ Time, _ *View, _ *Turn, dst []int64) {
	for i := range dst {
		if dst[i] != 0 {
			f.t.Errorf("score %d comes as %d", i, dst[i])
		}
		dst[i] = f.scores[i]
	}
}

func TestAddScores(t *testing.T) {
	terms := []Weighted{
		{fixedScores{t, []int64{0, ScoreOne, ScoreOne / 2}}, 2000},
		{fixedScores{t, []int64{-5, 7 * ScoreOne, Part(1, 4)}}, 500},
	}
	totals, scratch := []int64{9, 9, 9}, []int64{8, 8, 8}
	AddScores(0, nil, nil, terms, totals, scratch)
	if d := cmp.Diff([]int64{0, 2500 * ScoreOne, 1125 * ScoreOne}, totals); d != "" {
		t.Error(d)
	}
	if got := Part(4_000_000_000, 8_000_000_000); got != ScoreOne/2 {
		t.Errorf("a half is %d", got)
	}
}
