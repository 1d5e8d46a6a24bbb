// Package traces holds what sessions did: the canonical record of sessions and turns, one reader or writer per file
// format, the generator, and statistics. A trace says what a session does; how sessions arrive, on which cluster and
// under which policies is the scenario's business.
//
// Times are integer nanoseconds, lengths are tokens. The package imports only prefix.
package traces

import "github.com/sluice-sim/sluice/prefix"

// Unknown marks a time or duration that the source does not give. It is not zero.
const Unknown int64 = -1

// Trace is a set of sessions over one tree of content.
type Trace struct {
	Name     string
	Tree     *prefix.Tree
	Models   []string // model names of the source, indexed by Turn.Model
	Groups   []string // group names (tenant, repository, prompt of a rollout), indexed by Session.Group; may be empty
	Sessions []Session
	Report   Report
}

// Session is one conversation: a root thread and the subagent threads that it spawned. A turn's dependencies are turns
// of the same session.
type Session struct {
	Name    string // identifier in the source
	StartNS int64  // recorded arrival, from the first arrival of the trace; Unknown when the source has none
	Group   int32  // index into Trace.Groups, -1 for none
	Threads int32  // number of threads; thread 0 is the root
	Turns   []Turn // in recorded order of start; every dependency points to an earlier turn
	Deps    []Dep  // dependencies of all turns, sliced by Turn.DepLo and Turn.DepHi
}

// Turn is one LLM call of a session.
type Turn struct {
	Thread int32 // 0 is the session's root thread
	Number int32 // 1 for the first turn of its thread
	Model  int32 // index into Trace.Models

	// Prompt is the content sent. The turn's output continues Prompt.Stream from token Prompt.Tokens on, so a later
	// turn whose prompt is a longer prefix of the same stream finds it resident.
	Prompt       prefix.Prefix
	OutputTokens int32 // tokens generated, at least 1 once imported for a run; the true length, which no policy sees

	StartNS    int64 // recorded start, from the session's start
	DurationNS int64 // recorded service time; Unknown when the source has none

	DepLo, DepHi int32 // this turn waits for Session.Deps[DepLo:DepHi]; none for a turn that starts with the session
}

// Trigger is what of an earlier turn a dependency waits for.
type Trigger uint8

const (
	OnCompletion Trigger = iota // the earlier turn's last token
	OnDispatch                  // the moment the earlier turn is sent
)

// Dep makes a turn arrive not before the trigger of an earlier turn plus a delay. A turn arrives at the latest of its
// dependencies.
type Dep struct {
	Turn    int32 // index into Session.Turns
	On      Trigger
	DelayNS int64 // tool gap (time between the trigger and the arrival), at least 0
}

// Report counts what an import read, changed and dropped. Every reader fills it; every drop has a reason.
type Report struct {
	Format   string
	Files    int64
	Bytes    int64 // after decompression
	Sessions int64
	Turns    int64       // turns read, dropped ones included
	Dropped  []DropCount // by reason, sorted by reason
	Notes    []NoteCount // repairs and assumptions, sorted by note
}

// DropCount is how many turns were dropped for one reason.
type DropCount struct {
	Reason string
	Turns  int64
}

// NoteCount is how often one repair or assumption was made, for example "negative gap set to 0".
type NoteCount struct {
	Note  string
	Count int64
}

// Turns is the number of turns that the trace holds.
func (t *Trace) Turns() int {
	n := 0
	for i := range t.Sessions {
		n += len(t.Sessions[i].Turns)
	}
	return n
}
