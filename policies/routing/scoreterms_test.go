package routing

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
)

// What a router logs is what it decides by: its choice has the best score, its scores change nothing, and the figures are
// those of the view.
func TestScoresSayWhatDecides(t *testing.T) {
	events := policies.Params{"prefix": text("events")}
	for _, c := range []struct {
		d     policies.Declaration
		p     policies.Params
		term  int // that is known, and its values
		terms [4]float64
	}{
		{LeastPendingTokens(), nil, 0, [4]float64{0, 4000, 12000, 0}},
		{LeastPendingTokens(), policies.Params{"half_life_s": number(5)}, 1, [4]float64{0, 0, 0, 0}},
		{LeastWork(), nil, 0, [4]float64{2000, 30000, 38000, 0}},
		{LeastWork(), policies.Params{"attention": boolean(false)}, 1, [4]float64{38000, 10000, 2000, 40000}},
		{Dynamo(), nil, 2, [4]float64{3200, 32000, 80000, 0}},
		{LLMD(), events, 0, [4]float64{1, .75, 0, 1}},
		{LLMD(), events, 2, [4]float64{.05, .75, .95, 0}},
		{SMGCacheAware(), policies.Params{"index": text("events")}, 0, [4]float64{1, 2, 2, 0}},
		{Preble(), nil, 0, [4]float64{0, 0, 0, 0}},
		{AIBrixPrefixCache(), nil, 1, [4]float64{1, 2, 2, 0}},
	} {
		w, u := golden(t, nil)
		r := build(c.d, c.p, policies.Capability{})
		scored := r.(policies.Scored)
		names, lowest := scored.ScoreTerms()
		if len(names) > policies.MaxScoreTerms || c.term >= len(names) {
			t.Errorf("%s: terms %v", c.d.Name, names)
		}
		before := w.peek(r, u)
		all := scored.Scores(w.now, w.view(), u, nil)
		to, _ := r.Route(w.now, w.view(), u)
		if to != before || len(all) != 4 {
			t.Errorf("%s: went to %d, before the scores to %d; %d scores", c.d.Name, to, before, len(all))
		}
		for i, s := range all {
			if s.Replica != policies.ReplicaID(i) || s.Terms[c.term] != c.terms[i] {
				t.Errorf("%s: %s of %d is %v, want %v", c.d.Name, names[c.term], s.Replica, s.Terms[c.term], c.terms[i])
			}
			if best := all[to].Score; lowest && s.Score < best || !lowest && s.Score > best {
				t.Errorf("%s: chose %d with %v, but %d scores %v", c.d.Name, to, best, i, s.Score)
			}
		}
	}
}
