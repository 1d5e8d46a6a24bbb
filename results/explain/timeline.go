package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
)

// event is one thing that a log says of an attempt: a fact or a command.
type event struct {
	now     policies.Time
	step    int64
	fact    policies.Fact    // Kind 0: none
	command policies.Command // Kind 0: none
	scores  []policies.ReplicaScore
	answers []decisionlog.Answer
}

// timeline is what a log says of the attempts of a subject, and who the streams belong to.
type timeline struct {
	header *decisionlog.Header
	tree   *prefix.Tree
	kv     bool // the log has KV events
	owners map[prefix.StreamID]owner
	of     []history // by attempt of the subject
}

// owner is who first sent a prompt of a stream.
type owner struct {
	session policies.SessionID
	thread  policies.ThreadID
}

// history is the story of one attempt.
type history struct {
	id     policies.AttemptID // -1: the log does not have it
	turn   policies.Turn
	events []event
}

// candidate is an arrival in the log that could be an attempt of the subject.
type candidate struct {
	attempt int // index of the subject's
	history history
}

// readTimeline goes through a log once. The log names threads over all sessions, the results within theirs; both number them
// alike, so arrivals of several threads that are alike in all else are told apart by their order.
func readTimeline(lines decisionlog.Lines, s *subject, alike []int) (*timeline, error) {
	d := decisionlog.NewDecoder()
	l := &timeline{header: &d.Header, tree: d.Tree, owners: map[prefix.StreamID]owner{}, of: make([]history, len(s.attempts))}
	var all []candidate
	at := map[policies.AttemptID]int{}
	for line, err := range lines {
		if err != nil {
			return nil, err
		}
		step, err := d.Take(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", results.DecisionsFile, err)
		}
		if step == nil {
			continue
		}
		for i := range step.Facts {
			f := &step.Facts[i]
			l.kv = l.kv || f.Kind == policies.BlocksStored
			if f.Kind == policies.TurnArrived {
				if _, ok := l.owners[f.Turn.Prompt.Stream]; !ok {
					l.owners[f.Turn.Prompt.Stream] = owner{f.Turn.Session, f.Turn.Thread}
				}
				if k := s.matches(step.Now, &f.Turn); k >= 0 {
					at[f.Turn.Attempt] = len(all)
					all = append(all, candidate{k, history{id: f.Turn.Attempt, turn: f.Turn}})
				}
			} else if k, ok := at[f.Attempt]; ok && aboutAttempt(f.Kind) {
				all[k].history.events = append(all[k].history.events, event{now: step.Now, step: step.Number, fact: *f})
			}
		}
		if len(at) > 0 {
			follow(step, at, all)
		}
	}
	if err := d.End(); err != nil {
		return nil, fmt.Errorf("%s: %w", results.DecisionsFile, err)
	}
	l.choose(all, alike)
	return l, nil
}

func follow(step *decisionlog.Step, at map[policies.AttemptID]int, all []candidate) {
	for _, c := range step.Commands {
		k, ok := at[c.Attempt]
		if !ok {
			continue
		}
		e := event{now: step.Now, step: step.Number, command: c}
		if c.Kind == policies.Dispatch {
			for _, s := range step.Scores {
				if s.Attempt == c.Attempt {
					e.scores = slices.Clone(s.Of)
				}
			}
			for _, a := range step.Answers {
				if a.Attempt == c.Attempt {
					e.answers = append(e.answers, a)
				}
			}
		}
		all[k].history.events = append(all[k].history.events, e)
	}
}

func aboutAttempt(k policies.FactKind) bool {
	switch k {
	case policies.AttemptSuperseded, policies.ClientGone, policies.UsageProbed, policies.PrefixProbed, policies.Dispatched, policies.FirstToken,
		policies.Finished, policies.Failed:
		return true
	}
	return false
}

// nearPS is how far a time of the results, a float of seconds, may be from the same time in the log, whole nanoseconds.
const nearPS = 1_000_000

// matches is which attempt of s an arrival can be; -1 for none.
func (s *subject) matches(now policies.Time, t *policies.Turn) int {
	if int32(t.Session) != s.session || t.Number != s.number {
		return -1
	}
	for k := range s.attempts {
		a := &s.attempts[k]
		if off := a.ArrivalPS - int64(now)*1000; a.Attempt == t.Retry+1 && a.PromptTokens == t.Prompt.Tokens && off > -nearPS && off < nearPS {
			return k
		}
	}
	return -1
}

// choose takes of the candidates for each attempt the one at the same place among its like as in the results.
func (l *timeline) choose(all []candidate, alike []int) {
	for k := range l.of {
		l.of[k].id = -1
		var same []history
		for _, c := range all {
			if c.attempt == k {
				same = append(same, c.history)
			}
		}
		slices.SortFunc(same, func(a, b history) int { return cmp.Compare(a.turn.Thread, b.turn.Thread) })
		if alike[k] < len(same) {
			l.of[k] = same[alike[k]]
		}
	}
}

// countAlike says for each attempt of s how many turns of lower threads of its session look the same to matches.
func countAlike(run *results.Run, s *subject) ([]int, error) {
	n := make([]int, len(s.attempts))
	return n, run.Turns(func(t *results.Turn) error {
		if t.Session != s.session || t.Number != s.number || t.Thread >= s.thread {
			return nil
		}
		for k := range s.attempts {
			a := &s.attempts[k]
			if off := a.ArrivalPS - t.ArrivalPS; a.Attempt == t.Attempt && a.PromptTokens == t.PromptTokens && off > -nearPS && off < nearPS {
				n[k]++
			}
		}
		return nil
	})
}
