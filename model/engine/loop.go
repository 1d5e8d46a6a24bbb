package engine

// Loop is vLLM's engine loop around an Engine: one step at a time, or with asynchronous scheduling a queue of two, so
// that a step is scheduled while the one before it runs (spec: vllm 9.1).
//
// The driver calls Advance after it has given the engine its inputs. As long as Advance schedules without waiting, it
// is called again (vLLM takes new inputs before each call). When it returns a step, that step is the oldest in flight;
// the driver lets its time pass, applies aborts that arrived meanwhile, and calls Complete.
type Loop struct {
	Engine
	steps [3]Step
	queue [2]int8 // indices into steps, oldest first
	depth int8    // steps in flight
	next  int8    // the step record to fill next
	runScratch
}

// NewLoop returns an idle loop. It takes e over, which must not be used any more but as the loop's.
func NewLoop(e *Engine) *Loop { return &Loop{Engine: *e} }

// Outcome is what a call of Advance came to.
type Outcome uint8

const (
	Idle      Outcome = iota // nothing to do until there is new input
	Scheduled                // a step was scheduled and nothing is waited for: call Advance again
	Blocked                  // the loop waits for the oldest step in flight
)

// Advance is one iteration of the loop up to the point where it blocks. scheduled is the step that this call put in
// flight, or nil; oldest is the step waited for when the outcome is Blocked.
func (l *Loop) Advance() (outcome Outcome, scheduled, oldest *Step) {
	limit := int8(1)
	if l.cfg.Async {
		limit = 2
	}
	if l.HasRequests() {
		i := l.next
		l.next = (l.next + 1) % int8(len(l.steps))
		scheduled = &l.steps[i]
		l.Schedule(scheduled)
		l.queue[l.depth] = i
		l.depth++
		if l.depth < limit && (scheduled.Tokens > 0 || l.HasRequests()) {
			return Scheduled, scheduled, nil
		}
	}
	if l.depth == 0 {
		return Idle, nil, nil
	}
	return Blocked, scheduled, &l.steps[l.queue[0]]
}

// Complete processes the output of the oldest step in flight.
func (l *Loop) Complete() *Step {
	st := &l.steps[l.queue[0]]
	l.queue[0] = l.queue[1]
	l.depth--
	l.Update(st)
	return st
}

// InFlight is the number of steps scheduled and not processed.
func (l *Loop) InFlight() int { return int(l.depth) }
