package decisionlog

import (
	"errors"
	"iter"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
)

// Lines is the lines of a log in order, each with its line feed, valid until the next one. It ends with the first error.
type Lines = iter.Seq2[[]byte, error]

// Outcome is what a replay went through.
type Outcome struct {
	Header   *Header
	Steps    int64
	Facts    int64
	Commands int64
}

// Difference is the first command of a replay that is not the one in the log.
type Difference struct {
	Line          int
	Step          int64
	Now           policies.Time
	Command       int    // within the step, from 1
	Expected, Got string // as the log writes them; empty where there is no command
}

// Error implements error.
func (d *Difference) Error() string {
	none := func(s string) string {
		if s == "" {
			return "no command"
		}
		return s
	}
	return "line " + strconv.Itoa(d.Line) + ", step " + strconv.FormatInt(d.Step, 10) + " at " + strconv.FormatInt(int64(d.Now), 10) + " ns: command " +
		strconv.Itoa(d.Command) + " differs\n  expected " + none(d.Expected) + "\n  got      " + none(d.Got)
}

// Replay feeds the facts of a log to a new core, built as the log's header says, and requires the commands of the log. The error
// is a *Difference where they differ; any other says that the log is damaged, or what could not be built.
func Replay(lines Lines) (Outcome, error) {
	d := NewDecoder()
	var c policies.Machine
	known := &echo{}
	out := Outcome{Header: &d.Header}
	var got []policies.Command
	for line, err := range lines {
		if err != nil {
			return out, err
		}
		was := d.Header
		s, err := d.Take(line)
		if err != nil {
			return out, err
		}
		if c == nil {
			if c, err = d.Header.Build(d.Tree, known); err != nil {
				return out, errors.New("line 1: " + err.Error())
			}
		}
		if d.Changed() {
			if err := d.Header.replace(c, &was); err != nil {
				return out, errors.New("line " + strconv.Itoa(d.Line()) + ": " + err.Error())
			}
		}
		if s == nil {
			continue
		}
		known.answers, known.lost = s.Answers, false
		got = c.Step(s.Now, s.Facts, got[:0])
		if diff := firstDifference(s, got); diff != nil {
			diff.Line = d.Line()
			return out, diff
		}
		if known.lost || len(known.answers) > 0 {
			return out, errors.New("line " + strconv.Itoa(d.Line()) + ": the policies asked the oracle something else than the log says; it is damaged, or from another version")
		}
		out.Steps++
		out.Facts += int64(len(s.Facts))
		out.Commands += int64(len(got))
	}
	return out, d.End()
}

func firstDifference(s *Step, got []policies.Command) *Difference {
	for i := range max(len(got), len(s.Commands)) {
		if i < len(got) && i < len(s.Commands) && got[i] == s.Commands[i] {
			continue
		}
		return &Difference{Step: s.Number, Now: s.Now, Command: i + 1, Expected: describe(s.Commands, i), Got: describe(got, i)}
	}
	return nil
}

func describe(list []policies.Command, at int) string {
	if at >= len(list) {
		return ""
	}
	return string(append(appendCommand(nil, &list[at]), '}'))
}

// echo is an oracle that says what the log says, if it is asked in the same order.
type echo struct {
	answers []Answer
	lost    bool
}

// Completion implements policies.Oracle.
func (e *echo) Completion(_ policies.Time, r policies.ReplicaID, t *policies.Turn) policies.Time {
	if len(e.answers) == 0 || e.answers[0].Attempt != t.Attempt || e.answers[0].Replica != r {
		e.lost = true
		return policies.Never
	}
	at := e.answers[0].Completion
	e.answers = e.answers[1:]
	return at
}
