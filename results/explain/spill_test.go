package explain

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
)

func TestSpill(t *testing.T) {
	for _, c := range []struct {
		what   string
		reason policies.Reason
		terms  []string
		hits   []float64 // by replica, in the term hit_tokens
		to     policies.ReplicaID
		want   []string
	}{
		{"away", policies.Spilled, []string{"requests", "hit_tokens"}, []float64{0, 1600, 21296}, 1, []string{"  Its home, the longest resident prefix, was replica 2 with 21,296 tokens."}},
		{"equal hits: the lowest", policies.Spilled, []string{"requests", "hit_tokens"}, []float64{0, 32, 32}, 2, []string{"  Its home, the longest resident prefix, was replica 1 with 32 tokens."}},
		{"to its home", policies.Spilled, []string{"requests", "hit_tokens"}, []float64{0, 1, 0}, 1, []string{"  Its home, the longest resident prefix, is this replica with 1 token: it has the best score all the same."}},
		{"no such term", policies.Spilled, []string{"requests", "work"}, []float64{0, 1, 0}, 1, nil},
		{"no scores", policies.Spilled, []string{"requests", "hit_tokens"}, nil, 1, nil},
		{"another reason", policies.HomeLost, []string{"requests", "hit_tokens"}, []float64{0, 1, 0}, 0, nil},
	} {
		x := &story{log: &timeline{header: &decisionlog.Header{Scores: decisionlog.ScoreForm{Terms: c.terms}}}}
		e := event{command: policies.Command{Kind: policies.Dispatch, Replica: c.to, Reason: c.reason}}
		for r, n := range slices.Backward(c.hits) {
			s := policies.ReplicaScore{Replica: policies.ReplicaID(r)}
			s.Terms[1] = n
			e.scores = append(e.scores, s)
		}
		x.spill(&e)
		if d := cmp.Diff(c.want, x.text); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, d)
		}
	}
}

// Every reason has a meaning or a name that says it.
func TestReasonsHaveMeanings(t *testing.T) {
	for r := policies.Ungated; r <= policies.Hotspot; r++ {
		if meaning[r] == "" {
			t.Errorf("%s has no meaning", r)
		}
	}
}
