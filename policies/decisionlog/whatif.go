package decisionlog

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Tally is what one core did over a log.
type Tally struct {
	Gate, Router string
	Arrived      int64
	Admitted     int64
	ByReplica    []int64 // dispatches
	Holds        int64   // commands
	Held         int64   // attempts that were held at least once
	Rejected     int64
	Aborted      int64
	Probes       int64
	Waiting      int64         // at the end of the log
	Wait         policies.Time // sum over the admitted, from arrival to admission
	MaxWait      policies.Time
}

// Comparison is what another core would have done on the facts of a log.
//
// The other core gets the facts as they were logged: arrivals, samples and KV events are those that the logged policies
// brought about. What follows a dispatch (first token, end) comes as long after it as in the log; where the other core
// dispatches earlier it comes when it came in the log. Attempts that the log never dispatched end when they ended there.
// A probe that only the other core sends is answered at once, from the last usage and the KV events in the log, or as
// unsupported where these say nothing.
type Comparison struct {
	Header, Other Header
	Steps         int64
	Logged, Would Tally
	Both          int64            // attempts that both dispatched
	Moved         int64            // of these, to another replica
	Later         int64            // of these, at another moment
	Guessed       int64            // probes answered from other facts of the log
	Unanswered    int64            // probes that nothing in the log answers
	Missing       policies.Signals // what the other policies use and the log does not have
}

// maxWakes bounds the steps that another core asks for between those of the log.
const maxWakes = 100_000_000

// WhatIf feeds the facts of a log to a core with other policies; settings as in Header.With.
func WhatIf(lines Lines, settings []string) (*Comparison, error) {
	d := NewDecoder()
	var w *whatIf
	for line, err := range lines {
		if err != nil {
			return nil, err
		}
		s, err := d.Take(line)
		if err != nil {
			return nil, err
		}
		if w == nil {
			if w, err = newWhatIf(d, settings); err != nil {
				return nil, err
			}
		}
		if s == nil {
			continue
		}
		if err := w.take(s); err != nil {
			return nil, errors.New("line " + strconv.Itoa(d.Line()) + ": " + err.Error())
		}
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	w.out.Header, w.out.Steps = d.Header, d.Steps()
	for _, a := range w.attempts {
		w.out.Logged.Waiting += one(!a.loggedOver && a.logged.at < 0)
		w.out.Would.Waiting += one(!a.wouldOver && a.would.at < 0)
	}
	return w.out, nil
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

type whatIf struct {
	c        policies.Machine
	view     *policies.View // what is resident where, which all router instances know alike
	out      *Comparison
	attempts map[policies.AttemptID]*attempt
	usage    []float64 // by replica: the last that was heard; NaN
	awaited  map[probeKey]bool
	due      []later                              // by (at, order)
	last     map[policies.SessionID]policies.Time // when the last fact that was put off comes
	order    int64
	wakes    int64
	facts    []policies.Fact
	next     []policies.Fact // for another Step at the same moment
	commands []policies.Command
}

// attempt is how far an attempt is in both worlds. Placements have at -1 until there is one.
type attempt struct {
	arrived       policies.Time
	session       policies.SessionID
	thread        policies.ThreadID
	prompt        prefix.Prefix
	logged, would placement
	heldLogged    bool
	heldWould     bool
	loggedOver    bool // ended, or gone from the gate
	wouldOver     bool
	life          []policies.Fact // what happened to it in the log while the other core still held it
	lifeAt        []policies.Time
}

type placement struct {
	at      policies.Time
	replica policies.ReplicaID
}

type probeKey struct {
	kind    policies.CommandKind
	attempt policies.AttemptID
	replica policies.ReplicaID
}

// later is a fact that comes later than in the log.
type later struct {
	at    policies.Time
	order int64
	fact  policies.Fact
}

func newWhatIf(d *Decoder, settings []string) (*whatIf, error) {
	other, err := d.Header.With(settings)
	if err != nil {
		return nil, err
	}
	all, needs, err := other.build(d.Tree, nil)
	if err != nil {
		return nil, err
	}
	if needs&policies.NeedsOracle != 0 {
		return nil, errors.New("a policy that asks an oracle cannot be tried on a log, which has no exact knowledge of what did not happen")
	}
	n := len(other.Capabilities)
	w := &whatIf{c: other.machine(all), view: all[0].View(), out: &Comparison{Other: other}, attempts: map[policies.AttemptID]*attempt{}, awaited: map[probeKey]bool{}, last: map[policies.SessionID]policies.Time{}}
	// Probes have substitutes, so that they count as missing only where one went unanswered.
	w.out.Missing = needs &^ d.Header.Signals &^ policies.NeedsProbes
	w.out.Logged = Tally{Gate: d.Header.Gate.Name, Router: d.Header.Router.Name, ByReplica: make([]int64, n)}
	w.out.Would = Tally{Gate: other.Gate.Name, Router: other.Router.Name, ByReplica: make([]int64, n)}
	for range n {
		w.usage = append(w.usage, math.NaN())
	}
	return w, nil
}

// take lives through one step of the log.
func (w *whatIf) take(s *Step) error {
	for {
		at := w.c.NextWake()
		if len(w.due) > 0 {
			at = min(at, w.due[0].at)
		}
		if at >= s.Now {
			break
		}
		if w.wakes++; w.wakes > maxWakes {
			return errors.New("the other policies asked to be woken " + strconv.Itoa(maxWakes) + " times between the steps of the log")
		}
		w.step(at, append(w.takeDue(at), policies.Fact{Kind: policies.Woke, Replica: policies.NoReplica}), nil)
	}
	w.facts = append(w.facts[:0], w.takeDue(s.Now)...)
	for i := range s.Facts {
		w.hear(s.Now, &s.Facts[i])
	}
	w.step(s.Now, w.facts, s.Commands)
	w.next = w.next[:0]
	for i := range s.Commands {
		w.logged(s.Now, &s.Commands[i])
	}
	if len(w.next) > 0 {
		w.step(s.Now, slices.Clone(w.next), nil)
	}
	return nil
}

// takeDue takes the facts that are due at now.
func (w *whatIf) takeDue(now policies.Time) []policies.Fact {
	var facts []policies.Fact
	n := 0
	for ; n < len(w.due) && w.due[n].at <= now; n++ {
		facts = append(facts, w.due[n].fact)
	}
	w.due = slices.Delete(w.due, 0, n)
	return facts
}

func (w *whatIf) postpone(at policies.Time, f policies.Fact, s policies.SessionID) {
	w.order++
	w.last[s] = max(w.last[s], at)
	x := later{at, w.order, f}
	i, _ := slices.BinarySearchFunc(w.due, x, func(a, b later) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
	w.due = slices.Insert(w.due, i, x)
}

// hear hands a fact of the log on, later or not at all where the other core is elsewhere by now.
func (w *whatIf) hear(now policies.Time, f *policies.Fact) {
	switch f.Kind {
	case policies.TurnArrived:
		w.attempts[f.Turn.Attempt] = &attempt{
			arrived: now, session: f.Turn.Session, thread: f.Turn.Thread, prompt: f.Turn.Prompt,
			logged: placement{at: -1}, would: placement{at: -1},
		}
		w.out.Logged.Arrived++
		w.out.Would.Arrived++
	case policies.UsageProbed, policies.PrefixProbed:
		kind := policies.ProbeUsage
		if f.Kind == policies.PrefixProbed {
			kind = policies.ProbePrefix
		}
		if f.Kind == policies.UsageProbed && f.Outcome == policies.ProbeValue {
			w.heardUsage(f.Replica, f.Usage)
		}
		key := probeKey{kind, f.Attempt, f.Replica}
		if !w.awaited[key] {
			return
		}
		delete(w.awaited, key)
	case policies.MetricsSampled:
		if f.Sample.Has&policies.HasUsage != 0 {
			w.heardUsage(f.Replica, f.Sample.Usage)
		}
	case policies.Dispatched, policies.FirstToken, policies.TokensProgressed, policies.Finished, policies.Failed:
		w.live(now, f)
		return
	case policies.ThreadFinished, policies.SessionFinished:
		if w.over(now, f) {
			return
		}
	case policies.ClientGone, policies.AttemptSuperseded:
		w.facts = append(w.facts, *f)
		w.gone(f.Attempt)
		return
	}
	w.facts = append(w.facts, *f)
}

func (w *whatIf) heardUsage(r policies.ReplicaID, usage float64) {
	if r >= 0 && int(r) < len(w.usage) && usage >= 0 {
		w.usage[r] = usage
	}
}

// live is what happened to an attempt that the log had dispatched.
func (w *whatIf) live(now policies.Time, f *policies.Fact) {
	a := w.attempts[f.Attempt]
	if a == nil {
		return
	}
	a.loggedOver = a.loggedOver || f.Kind == policies.Finished || f.Kind == policies.Failed
	switch {
	case a.would.at < 0 && !a.wouldOver:
		a.life, a.lifeAt = append(a.life, *f), append(a.lifeAt, now)
	case a.would.at > a.logged.at && a.logged.at >= 0:
		w.postpone(now+a.would.at-a.logged.at, *f, a.session)
	default:
		w.facts = append(w.facts, *f)
	}
	w.forget(f.Attempt, a)
}

// over puts the end of a thread or session off until the other core is through with its turns; false if it is.
func (w *whatIf) over(now policies.Time, f *policies.Fact) bool {
	var newest policies.AttemptID
	var held *attempt
	for id, a := range w.attempts {
		of := a.session == f.Session && (f.Kind == policies.SessionFinished || a.thread == f.Thread)
		if of && a.logged.at >= 0 && a.would.at < 0 && !a.wouldOver && (held == nil || id > newest) {
			newest, held = id, a
		}
	}
	at := w.last[f.Session]
	if f.Kind == policies.SessionFinished {
		delete(w.last, f.Session)
	}
	if held != nil {
		held.life, held.lifeAt = append(held.life, *f), append(held.lifeAt, now)
	} else if at > now {
		w.postpone(at, *f, f.Session)
	}
	return held != nil || at > now
}

// gone is the end of a client's patience. Where only the other core runs the attempt, nothing in the log will end it.
func (w *whatIf) gone(id policies.AttemptID) {
	a := w.attempts[id]
	if a == nil || a.logged.at >= 0 {
		return
	}
	a.loggedOver = true
	if a.would.at >= 0 {
		w.facts = append(w.facts, policies.Fact{Kind: policies.Failed, Attempt: id, Replica: a.would.replica})
	}
	a.wouldOver = true
	w.forget(id, a)
}

func (w *whatIf) forget(id policies.AttemptID, a *attempt) {
	if a.loggedOver && (a.wouldOver || a.would.at >= 0) {
		delete(w.attempts, id)
	}
}

// step has the other core take facts, and answers its probes until it has no more. logged are the commands of the log at
// this moment.
func (w *whatIf) step(now policies.Time, facts []policies.Fact, logged []policies.Command) {
	for {
		w.commands = w.c.Step(now, facts, w.commands[:0])
		w.next = w.next[:0]
		for i := range w.commands {
			w.would(now, &w.commands[i], logged)
		}
		if len(w.next) == 0 {
			return
		}
		facts, logged = slices.Clone(w.next), nil
	}
}

// would does what a command of the other core says.
func (w *whatIf) would(now policies.Time, c *policies.Command, logged []policies.Command) {
	t := &w.out.Would
	a := w.attempts[c.Attempt]
	t.count(now, c, a, a != nil && !a.heldWould)
	if a == nil {
		return
	}
	switch c.Kind {
	case policies.Hold:
		a.heldWould = true
	case policies.ProbeUsage, policies.ProbePrefix:
		if slices.Contains(logged, *c) {
			w.awaited[probeKey{c.Kind, c.Attempt, c.Replica}] = true
			return
		}
		w.next = append(w.next, w.answer(c, a))
	case policies.Reject, policies.Abort:
		a.wouldOver = true
		w.forget(c.Attempt, a)
	case policies.Dispatch:
		a.would = placement{now, c.Replica}
		w.compare(a)
		for i, f := range a.life {
			w.postpone(now+a.lifeAt[i]-a.logged.at, f, a.session)
		}
		a.life, a.lifeAt = nil, nil
		if a.loggedOver && a.logged.at < 0 {
			w.next = append(w.next, policies.Fact{Kind: policies.Failed, Attempt: c.Attempt, Replica: c.Replica})
		}
		w.forget(c.Attempt, a)
	}
}

// answer is what the log lets one say to a probe that it does not have.
func (w *whatIf) answer(c *policies.Command, a *attempt) policies.Fact {
	f := policies.Fact{Kind: policies.UsageProbed, Attempt: c.Attempt, Replica: c.Replica, Outcome: policies.ProbeUnsupported}
	known := false
	if c.Kind == policies.ProbePrefix {
		f.Kind = policies.PrefixProbed
		f.PromptTokens = a.prompt.Tokens
		f.HitTokens, known = w.view.HitTokens(c.Replica, a.prompt)
	} else if u := w.usage[c.Replica]; u >= 0 {
		f.Usage, known = u, true
	}
	if known {
		f.Outcome = policies.ProbeValue
		w.out.Guessed++
	} else {
		w.out.Unanswered++
	}
	return f
}

// logged follows a command of the log.
func (w *whatIf) logged(now policies.Time, c *policies.Command) {
	a := w.attempts[c.Attempt]
	w.out.Logged.count(now, c, a, a != nil && !a.heldLogged)
	if a == nil {
		return
	}
	switch c.Kind {
	case policies.Hold:
		a.heldLogged = true
	case policies.Dispatch:
		a.logged = placement{now, c.Replica}
		w.compare(a)
	case policies.Reject, policies.Abort:
		a.loggedOver = true
		if a.would.at >= 0 {
			w.next = append(w.next, policies.Fact{Kind: policies.Failed, Attempt: c.Attempt, Replica: a.would.replica})
		}
		w.forget(c.Attempt, a)
	}
}

// compare is called when one of the two has dispatched a.
func (w *whatIf) compare(a *attempt) {
	if a.logged.at < 0 || a.would.at < 0 {
		return
	}
	w.out.Both++
	w.out.Moved += one(a.logged.replica != a.would.replica)
	w.out.Later += one(a.logged.at != a.would.at)
}

func (t *Tally) count(now policies.Time, c *policies.Command, a *attempt, firstHold bool) {
	switch c.Kind {
	case policies.Admit:
		t.Admitted++
		if a != nil {
			t.Wait += now - a.arrived
			t.MaxWait = max(t.MaxWait, now-a.arrived)
		}
	case policies.Dispatch:
		if c.Replica >= 0 && int(c.Replica) < len(t.ByReplica) {
			t.ByReplica[c.Replica]++
		}
	case policies.Hold:
		t.Holds++
		t.Held += one(firstHold)
	case policies.Reject:
		t.Rejected++
	case policies.Abort:
		t.Aborted++
	case policies.ProbeUsage, policies.ProbePrefix:
		t.Probes++
	}
}

// Notes says in words what the comparison rests on.
func (c *Comparison) Notes() []string {
	notes := []string{"Arrivals, samples and KV events are those of the log; a turn takes as long after its dispatch as it took there."}
	if c.Would.Aborted > c.Logged.Aborted {
		notes = append(notes, "A turn that is held until the next one of its thread arrives, which the log's clients sent earlier than they would have, is superseded.")
	}
	if c.Missing != 0 {
		text := "The log has no "
		for i, name := range c.Missing.Names() {
			if i > 0 {
				text += ", "
			}
			text += name
		}
		notes = append(notes, text+", which "+c.Would.Gate+" and "+c.Would.Router+" would use; they decide as they do when that is missing.")
	}
	if n := c.Guessed + c.Unanswered; n > 0 {
		notes = append(notes, strconv.FormatInt(n, 10)+" probes are not in the log: "+strconv.FormatInt(c.Guessed, 10)+
			" were answered from its samples and KV events, "+strconv.FormatInt(c.Unanswered, 10)+" as unsupported.")
	}
	return notes
}
