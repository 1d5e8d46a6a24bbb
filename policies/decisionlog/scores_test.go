package decisionlog_test

import (
	"math"
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
)

// The scores in a log are those that decided: where a router goes by the best of them, the turn went to a best one.
func TestBestScoreWins(t *testing.T) {
	terms := map[string][]string{
		"least-requests": nil, "vllm-dp": {"waiting", "running", "in_flight"}, "lmetric": {"hit_tokens", "uncached_tokens", "queued_tokens", "requests"},
		"smetric": {"hit_tokens", "uncached_tokens", "queued_tokens", "decode_tokens", "requests", "decode_safe"}, "smetric-figure": nil,
		"bailian": {"hit_tokens", "requests"}, "dynamo": {"hit_tokens", "queued_tokens", "decode_tokens", "in_flight"},
		"llm-d": nil,
	}
	for router, names := range terms {
		log, _ := record(t, world(t, "none", router, 1))
		d := decisionlog.NewDecoder()
		judged, spread := 0, 0
		for line := range lines(log) {
			s, err := d.Take(line)
			check(t, err)
			if s == nil {
				continue
			}
			at := 0
			for _, c := range s.Commands {
				if c.Kind != policies.Dispatch {
					continue
				}
				if at == len(s.Scores) || s.Scores[at].Attempt != c.Attempt || len(s.Scores[at].Of) == 0 {
					t.Fatalf("%s: step %d has no scores of attempt %d", router, s.Number, c.Attempt)
				}
				of := s.Scores[at].Of
				at++
				if router == "bailian" { // draws
					judged, spread = judged+1, spread+1
					continue
				}
				if c.Reason == policies.HomeHit { // stays where most is resident
					for i := range of {
						of[i].Score = -of[i].Terms[0]
					}
				}
				judged++
				if best := chosenIsBest(of, c.Replica, d.Header.Scores.Lowest || c.Reason == policies.HomeHit); best < 0 {
					t.Errorf("%s: step %d sends attempt %d to replica %d for %v, but scores %v", router, s.Number, c.Attempt, c.Replica, c.Reason, of)
				} else if best < len(of) {
					spread++
				}
			}
		}
		if form := d.Header.Scores; !form.Scored || names != nil && !slices.Equal(form.Terms, names) || len(form.Terms) > policies.MaxScoreTerms {
			t.Errorf("%s: terms %v", router, form)
		}
		if judged < 100 || spread < 20 {
			t.Errorf("%s: %d decisions, in %d of which the replicas differ", router, judged, spread)
		}
	}
}

// chosenIsBest is how many replicas have the best score, -1 if the chosen one is not among them.
func chosenIsBest(of []policies.ReplicaScore, chosen policies.ReplicaID, lowest bool) int {
	best, n, hit := math.Inf(1), 0, false
	for _, s := range of {
		x := s.Score
		if !lowest {
			x = -x
		}
		if x < best {
			best, n, hit = x, 0, false
		}
		if x == best {
			n++
			hit = hit || s.Replica == chosen
		}
	}
	if !hit {
		return -1
	}
	return n
}
