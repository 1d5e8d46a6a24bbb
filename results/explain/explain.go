package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/results"
)

// mostScores is how many replicas are listed with their scores.
const mostScores = 12

// story is an explanation being told.
type story struct {
	run   *results.Run
	s     *subject
	log   *timeline
	lines func() decisionlog.Lines
	text  []string
}

func (x *story) say(format string, args ...any) {
	x.text = append(x.text, fmt.Sprintf(format, args...))
}

// Turn explains one turn of a run, line by line: when it arrived, why and how long it waited, where it went and why, what was
// resident there and what was not, and when it was answered. lines gives the run's decision log anew at each call. What the
// files do not say is said to be unknown.
func Turn(run *results.Run, lines func() decisionlog.Lines, turn string) ([]string, error) {
	s, err := find(run, turn)
	if err != nil {
		return nil, err
	}
	alike, err := countAlike(run, s)
	if err != nil {
		return nil, err
	}
	l, err := readTimeline(lines(), s, alike)
	if err != nil {
		return nil, err
	}
	x := &story{run: run, s: s, log: l, lines: lines}
	x.title()
	for k := range s.attempts {
		if err := x.attempt(k); err != nil {
			return nil, err
		}
	}
	return x.text, nil
}

func (x *story) title() {
	a := &x.s.attempts[len(x.s.attempts)-1]
	thread := ""
	if x.s.thread > 0 {
		thread = fmt.Sprintf(" of thread %d", x.s.thread)
	}
	x.say("Session %s, turn %d%s: %s, %s; gate %s, router %s.", x.s.title(x.s.session), x.s.number, thread,
		plural(a.PromptTokens, "prompt token"), plural(a.OutputTokens, "output token"), x.log.header.Gate.Name, x.log.header.Router.Name)
	if b := x.s.before; b != nil && b.DonePS != results.Missing && b.Replica >= 0 {
		x.say("The turn before it ended at %s on replica %d, with %s of prompt and %s of output (%s).", seconds(b.DonePS), b.Replica,
			tokens(b.PromptTokens), tokens(b.OutputTokens), b.Outcome)
	}
}

func (x *story) attempt(k int) error {
	a := &x.s.attempts[k]
	if n := len(x.s.attempts); n > 1 {
		x.say("")
		x.say("Attempt %d of %d", a.Attempt, n)
	}
	if a.ArrivalPS == results.Missing {
		x.say("It never arrived: %s.", a.Outcome)
		return nil
	}
	since := ""
	if a.ToolGapPS != results.Missing && a.Attempt == 1 {
		since = fmt.Sprintf(", %s after what triggered it", seconds(a.ToolGapPS))
	}
	x.say("It arrived at %s%s.", seconds(a.ArrivalPS), since)
	h := &x.log.of[k]
	if h.id < 0 {
		x.say("The decision log has no such arrival; it is of another run, or cut off.")
		return nil
	}
	x.gate(a, h)
	d := slices.IndexFunc(h.events, func(e event) bool { return e.command.Kind == policies.Dispatch })
	if d >= 0 {
		x.route(&h.events[d])
		if err := x.resident(a, h, &h.events[d]); err != nil {
			return err
		}
	}
	x.end(a)
	return nil
}

// gate tells what happened until the attempt was admitted or gone.
func (x *story) gate(a *results.Turn, h *history) {
	for i := range h.events {
		e := &h.events[i]
		switch c := &e.command; c.Kind {
		case policies.Hold:
			x.say("  %s  held: %s", at(e.now), because(c.Reason))
		case policies.ProbeUsage:
			x.say("  %s  replica %d was asked for its KV usage", at(e.now), c.Replica)
		case policies.ProbePrefix:
			x.say("  %s  replica %d was asked how much of the prompt is resident", at(e.now), c.Replica)
		case policies.Admit:
			x.say("  %s  admitted: %s", at(e.now), because(c.Reason))
		case policies.Reject:
			x.say("  %s  rejected: %s", at(e.now), because(c.Reason))
		case policies.Abort:
			x.say("  %s  ended by the gate: %s", at(e.now), because(c.Reason))
		}
		switch f := &e.fact; f.Kind {
		case policies.UsageProbed:
			x.say("  %s  replica %d answered: %s", at(e.now), f.Replica, answered(f, fmt.Sprintf("KV usage %.3g", f.Usage)))
		case policies.PrefixProbed:
			x.say("  %s  replica %d answered: %s", at(e.now), f.Replica,
				answered(f, fmt.Sprintf("%s of %s (%s) resident", count(f.HitTokens), tokens(f.PromptTokens), percent(f.HitTokens, f.PromptTokens))))
		case policies.ClientGone:
			x.say("  %s  its client gave up", at(e.now))
		}
	}
	if w := a.GateWaitPS(); w != results.Missing {
		x.say("It waited %s at the gate.", seconds(w))
	}
}

func answered(f *policies.Fact, value string) string {
	switch f.Outcome {
	case policies.ProbeValue:
		return value
	case policies.ProbeTimeout:
		return "too late (timeout)"
	}
	return "that it cannot say (unsupported)"
}

// route tells where the attempt went and how the replicas compared.
func (x *story) route(e *event) {
	x.say("At %s it went to replica %d: %s.", at(e.now), e.command.Replica, because(e.command.Reason))
	x.spill(e)
	form := &x.log.header.Scores
	switch {
	case len(e.scores) > 0:
		best := "highest"
		if form.Lowest {
			best = "lowest"
		}
		rows := [][]string{append([]string{"", "replica", "score"}, form.Terms...)}
		for _, s := range nearestScores(e.scores, e.command.Replica, form.Lowest) {
			row := []string{mark(s.Replica, e.command.Replica), fmt.Sprint(s.Replica), figure(s.Score)}
			for k := range form.Terms {
				row = append(row, figure(s.Terms[k]))
			}
			rows = append(rows, row)
		}
		x.say("  The scores of the router, of which the %s is the best%s:", best, of(len(e.scores), len(rows)-1))
		x.text = append(x.text, grid(rows)...)
	case len(e.answers) > 0:
		rows := [][]string{{"", "replica", "completion"}}
		for i, a := range e.answers {
			if i < mostScores || a.Replica == e.command.Replica {
				rows = append(rows, []string{mark(a.Replica, e.command.Replica), fmt.Sprint(a.Replica), at(a.Completion)})
			}
		}
		x.say("  What the oracle predicted%s:", of(len(e.answers), len(rows)-1))
		x.text = append(x.text, grid(rows)...)
	default:
		x.say("  The router %s does not score replicas.", x.log.header.Router.Name)
	}
}

func mark(r, chosen policies.ReplicaID) string {
	if r == chosen {
		return ">"
	}
	return ""
}

func of(all, shown int) string {
	if shown >= all {
		return ""
	}
	return fmt.Sprintf(" (%d of %d replicas)", shown, all)
}

// nearestScores is the best scores and the chosen one, best first; equal ones in order of replicas.
func nearestScores(all []policies.ReplicaScore, chosen policies.ReplicaID, lowest bool) []policies.ReplicaScore {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b policies.ReplicaScore) int {
		if lowest {
			return cmp.Compare(a.Score, b.Score)
		}
		return cmp.Compare(b.Score, a.Score)
	})
	var list []policies.ReplicaScore
	for i, s := range sorted {
		if i < mostScores || s.Replica == chosen {
			list = append(list, s)
		}
	}
	return list
}

// end tells what became of the attempt at its replica.
func (x *story) end(a *results.Turn) {
	if a.ScheduledPS != results.Missing {
		x.say("Its engine took it up at %s, %s after it was sent.", seconds(a.ScheduledPS), seconds(a.ScheduledPS-a.SentPS))
	} else if a.SentPS != results.Missing {
		x.say("Its engine never took it up.")
	}
	if a.Preemptions > 0 {
		x.say("The engine preempted it %s.", plural(a.Preemptions, "time"))
	}
	if a.FirstTokenPS != results.Missing {
		x.say("Its first token came at %s, %s after it arrived.", seconds(a.FirstTokenPS), seconds(a.FirstTokenPS-a.ArrivalPS))
	}
	if a.DonePS != results.Missing {
		x.say("It ended at %s, %s after it arrived, with %s of output: %s.", seconds(a.DonePS), seconds(a.DonePS-a.ArrivalPS), tokens(a.OutputTokens), a.Outcome)
	} else if a.Outcome != results.Rejected { // that was said
		x.say("When it ended is not in the results: %s.", a.Outcome)
	}
}
