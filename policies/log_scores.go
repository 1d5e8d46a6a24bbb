package policies

// MaxScoreTerms is how many parts a score may be broken into.
const MaxScoreTerms = 12

// Scored is implemented by a router that can say how it judges each replica. A decision log asks for it right before
// Route; nothing else does, so it costs nothing where no log is written.
type Scored interface {
	// ScoreTerms names the parts of a score, in the words of a log (snake_case, unit last); at most MaxScoreTerms.
	// lowest is whether the smallest score is the best.
	ScoreTerms() (terms []string, lowest bool)
	// Scores appends how each replica that Route would consider for t now scores, in ascending order of replicas. It has no
	// side effect that a decision could depend on.
	Scores(now Time, v *View, t *Turn, dst []ReplicaScore) []ReplicaScore
}

// ReplicaScore is how a router judges one replica for one turn. A figure that is not known is NaN.
type ReplicaScore struct {
	Replica ReplicaID
	Score   float64                // what the router compares
	Terms   [MaxScoreTerms]float64 // what it is made of, named by ScoreTerms
}
