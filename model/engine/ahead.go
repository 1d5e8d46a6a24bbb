package engine

import (
	"unsafe"

	"github.com/sluice-sim/sluice/prefetch"
	"github.com/sluice-sim/sluice/prefix"
)

// A driver with thousands of engines can ask for the memory that one of them will touch before it calls it (see package
// prefetch). That goes by stages: a stage follows pointers that the stage before it has asked for. Nothing changes by it, and
// it can be left out, or done for something that will not happen.

// Prefetch asks for what the next end of a step and the schedule call after it touch, in stages 0 to 3. Stage 3 is of use only
// where a request comes or goes, with an engine that registers late.
func (l *Loop) Prefetch(stage int) {
	switch stage {
	case 0:
		prefetch.Front(l, unsafe.Offsetof(l.byPhase))
	case 1:
		prefetch.Heads(l.requests)
		prefetch.Slice(l.running)
		if l.late != nil {
			l.late.Prefetch(0)
		}
	case 2:
		for i := range l.steps {
			prefetch.Slice(l.steps[i].Entries)
		}
		prefetch.Slice(l.crossing)
	case 3:
		if l.late != nil {
			l.late.Prefetch(1)
		}
	}
}

// PrefetchLast asks for what the end of a request touches, in stages 0 to 2, each after the stage of Prefetch with the number
// that is one more.
func (l *Loop) PrefetchLast(s Slot, stage int) {
	if int(s) >= len(l.requests) { // of an engine that has been replaced
		return
	}
	r := &l.requests[s]
	if stage == 0 {
		prefetch.Value(r)
	}
	if l.late != nil && r.held > 0 {
		l.late.PrefetchTable(r.table, stage)
	}
}

// PrefetchPath asks for what the lookup of a new request's path touches, after all stages of Prefetch.
func (l *Loop) PrefetchPath(path []prefix.Segment) {
	if l.late != nil {
		l.late.PrefetchPath(path)
	}
}

// Gets is what a request gets from a step.
type Gets uint8

const (
	Nothing Gets = iota // or a token that is neither its first nor its last
	First               // its first token
	Last                // its last
)

// Gets is a running request that gets its first or last token at the steps-th next end of a step, as far as lengths tell and
// nothing happens until then.
func (l *Loop) Gets(steps int32) (Slot, Gets) {
	for _, s := range l.running {
		r := &l.requests[s]
		switch out := r.tokens + steps - r.prompt.Tokens; {
		case out >= r.maxTokens:
			return s, Last
		case out == 1:
			return s, First
		}
	}
	return 0, Nothing
}
