package decisionlog

import (
	"errors"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Writer is where a log goes.
type Writer interface {
	Write(p []byte) (n int, err error)
}

// Recorder writes the log of one core. A driver builds its router with Router, asks Watch for the oracle (a gateway has none),
// and calls Step after every Step of the core.
type Recorder struct {
	w       Writer
	header  Header
	begun   bool
	streams int    // slots of the tree that were written
	changes uint64 // of the tree, likewise
	step    Step
	line    []byte
	pool    [][]policies.ReplicaScore
}

// NewRecorder returns a recorder of a core that is built as h says.
func NewRecorder(w Writer, h Header) *Recorder { return &Recorder{w: w, header: h} }

// Router is declaration d with a router that tells its scores to the log before it routes. Its decisions are the same.
func (r *Recorder) Router(d policies.Declaration) policies.Declaration {
	make := d.NewRouter
	d.NewRouter = func(e policies.Env, p policies.Params) policies.Router {
		inner := make(e, p)
		scored, ok := inner.(policies.Scored)
		if !ok {
			return inner
		}
		r.header.Scores.Scored = true
		r.header.Scores.Terms, r.header.Scores.Lowest = scored.ScoreTerms()
		return &tap{inner, scored, r}
	}
	return d
}

// tap is a router that tells its scores.
type tap struct {
	policies.Router
	scored policies.Scored
	to     *Recorder
}

// Route implements policies.Router.
func (t *tap) Route(now policies.Time, v *policies.View, turn *policies.Turn) (policies.ReplicaID, policies.Reason) {
	r := t.to
	n := len(r.step.Scores)
	if n == len(r.pool) {
		r.pool = append(r.pool, nil)
	}
	r.pool[n] = t.scored.Scores(now, v, turn, r.pool[n][:0])
	r.step.Scores = append(r.step.Scores, Scores{turn.Attempt, r.pool[n]})
	return t.Router.Route(now, v, turn)
}

// Watch returns an oracle that answers as known does and has the log keep the answers; nil for nil.
func (r *Recorder) Watch(known policies.Oracle) policies.Oracle {
	if known == nil {
		return nil
	}
	return &witness{known, r}
}

type witness struct {
	known policies.Oracle
	to    *Recorder
}

// Completion implements policies.Oracle.
func (w *witness) Completion(now policies.Time, r policies.ReplicaID, t *policies.Turn) policies.Time {
	at := w.known.Completion(now, r, t)
	w.to.step.Answers = append(w.to.step.Answers, Answer{t.Attempt, r, at})
	return at
}

// Step writes a Step of the core and what is new in tree. It keeps nothing that it is handed.
func (r *Recorder) Step(tree *prefix.Tree, now policies.Time, facts []policies.Fact, commands []policies.Command) error {
	b := r.line[:0]
	if !r.begun {
		if err := r.header.check(); err != nil {
			return err
		}
		b, r.begun = r.header.Append(b), true
	}
	b = r.appendTree(b, tree)
	r.step.Number++
	r.step.Now, r.step.Facts, r.step.Commands = now, facts, commands
	start := len(b)
	b = r.step.Append(b, &r.header.Scores)
	r.step.Facts, r.step.Commands, r.step.Answers, r.step.Scores = nil, nil, r.step.Answers[:0], r.step.Scores[:0]
	r.line = b
	if len(b)-start > MaxLineBytes {
		return errors.New("decision log: step " + strconv.FormatInt(r.step.Number, 10) + " takes " + strconv.Itoa(len(b)-start) + " bytes, at most " + strconv.Itoa(MaxLineBytes) + " are read back")
	}
	_, err := r.w.Write(b)
	return err
}
