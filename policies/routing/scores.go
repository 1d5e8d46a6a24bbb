package routing

import (
	"math"

	"github.com/sluice-sim/sluice/policies"
)

// How routers explain themselves to a decision log: the figures that they compare and what these are made of.

// ScoreTerms implements policies.Scored.
func (leastRequests) ScoreTerms() ([]string, bool) { return nil, true }

// Scores implements policies.Scored: the turns in flight.
func (leastRequests) Scores(_ policies.Time, v *policies.View, _ *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	for _, r := range v.Up() {
		dst = append(dst, policies.ReplicaScore{Replica: r, Score: float64(v.InFlight(r))})
	}
	return dst
}

// ScoreTerms implements policies.Scored.
func (*vllmDP) ScoreTerms() ([]string, bool) {
	return []string{"waiting", "running", "in_flight"}, true
}

// Scores implements policies.Scored. Without a sample waiting and running are not known.
func (d *vllmDP) Scores(_ policies.Time, v *policies.View, _ *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	for _, r := range v.Up() {
		f := float64(v.InFlight(r))
		s := policies.ReplicaScore{Replica: r, Score: f}
		s.Terms = [policies.MaxScoreTerms]float64{math.NaN(), math.NaN(), f}
		if c := d.of(r); c.known {
			s.Score = float64(rankScore(c.waiting, c.running))
			s.Terms[0], s.Terms[1] = float64(c.waiting), float64(c.running)
		}
		dst = append(dst, s)
	}
	return dst
}

// ScoreTerms implements policies.Scored.
func (*lmetric) ScoreTerms() ([]string, bool) {
	return []string{"hit_tokens", "uncached_tokens", "queued_tokens", "requests"}, true
}

// Scores implements policies.Scored. Tokens and requests are those that are there before the turn.
func (m *lmetric) Scores(_ policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	m.hits = hitsOf(v, t, m.hits)
	for _, r := range v.Up() {
		queued, batch := v.QueuedTokens(r), m.batch.of(v, r)
		s := policies.ReplicaScore{Replica: r}
		s.Terms = [policies.MaxScoreTerms]float64{float64(m.hits[r]), float64(t.Prompt.Tokens - m.hits[r]), float64(queued), float64(batch)}
		if !m.queue {
			queued = 0
		}
		if m.plusOne {
			batch++
		}
		s.Score = float64(lmetricScore(queued, t.Prompt.Tokens-m.hits[r], batch))
		dst = append(dst, s)
	}
	return dst
}

// ScoreTerms implements policies.Scored.
func (*smetric) ScoreTerms() ([]string, bool) {
	return []string{"hit_tokens", "uncached_tokens", "queued_tokens", "decode_tokens", "requests", "decode_safe"}, true
}

// Scores implements policies.Scored. The score is the one that spilled and first turns go by; decode_safe is 1 where the
// decode mask lets the turn in, 0 where not, and not known without a mask.
func (m *smetric) Scores(now policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	m.hits = hitsOf(v, t, m.hits)
	for _, r := range v.Up() {
		s := policies.ReplicaScore{Replica: r, Score: m.score(v, t, r)}
		safe := math.NaN()
		if m.mask {
			safe = 0
			if m.safe(now, v, t, r) {
				safe = 1
			}
		}
		s.Terms = [policies.MaxScoreTerms]float64{
			float64(m.hits[r]), float64(t.Prompt.Tokens - m.hits[r]), float64(v.QueuedTokens(r)), float64(v.DecodeTokens(r)),
			float64(m.batch.of(v, r)), safe,
		}
		dst = append(dst, s)
	}
	return dst
}

// ScoreTerms implements policies.Scored.
func (m *bailian) ScoreTerms() ([]string, bool) { return []string{"hit_tokens", "requests"}, m.linear }

// Scores implements policies.Scored. The score is the sum of form linear, or else the exponent: weights are its powers of
// two, and one of the heaviest is drawn.
func (m *bailian) Scores(_ policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	m.hits = hitsOf(v, t, m.hits)
	up := v.Up()
	sum, largest := int64(0), int64(1)
	for _, r := range up {
		b := m.batch.of(v, r)
		sum, largest = sum+b, max(largest, b)
	}
	for _, r := range up {
		b := m.batch.of(v, r)
		below := float64(sum-int64(len(up))*b) / float64(int64(len(up))*largest)
		s := policies.ReplicaScore{Replica: r, Score: bailianExponent(m.a, m.b, m.hits[r], t.Prompt.Tokens, below)}
		if m.linear {
			s.Score = bailianSum(m.lambda, m.hits[r], t.Prompt.Tokens, b, largest)
		}
		s.Terms[0], s.Terms[1] = float64(m.hits[r]), float64(b)
		dst = append(dst, s)
	}
	return dst
}
