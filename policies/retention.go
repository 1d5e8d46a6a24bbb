package policies

// Retention decides how long the content of a finished turn is kept on its replica against eviction, because the thread
// is expected back. It needs an engine that can pin blocks; stock vLLM cannot.
type Retention interface {
	// Observe sees every fact after the view has taken it in.
	Observe(now Time, v *View, f *Fact)
	// Keep is asked when the Finished fact f was accepted: until when its prompt and output are to be kept. A moment
	// that is not later than now is not at all; Never is until the thread's next turn or end.
	Keep(now Time, v *View, f *Fact) Time
}

// pinned is the pin of a thread's last turn.
type pinned struct {
	attempt AttemptID // 0 for none
	replica ReplicaID
	until   Time
}

// retain keeps and releases content after a fact was shown. A pin ends with the first token of the thread's next turn,
// which holds the content itself by then, with the thread, or at its own end, which the driver sees to.
func (c *Controller) retain() {
	f := &c.fact
	switch f.Kind {
	case Finished:
		if c.view.ThreadEnded(f.Thread) { // an attempt that its client gave up; not worth keeping
			return
		}
		if until := c.retention.Keep(c.now, c.view, f); until > c.now {
			c.unpin(f.Thread)
			c.pins[f.Thread] = pinned{f.Attempt, f.Replica, until}
			c.out = append(c.out, Command{Kind: Pin, Attempt: f.Attempt, Replica: f.Replica, Until: until})
		}
	case FirstToken, ThreadFinished:
		c.unpin(f.Thread)
	case ReplicaDown, ReplicaRestarted:
		for i := range c.pins {
			if p := &c.pins[i]; p.attempt != 0 && p.replica == f.Replica {
				*p = pinned{}
			}
		}
	}
}

// pin is the record of a thread.
func (c *Controller) pin(t ThreadID) *pinned {
	for int(t) >= len(c.pins) {
		c.pins = append(c.pins, pinned{})
	}
	return &c.pins[t]
}

func (c *Controller) unpin(t ThreadID) {
	p := c.pin(t)
	if p.attempt == 0 {
		return
	}
	if p.until > c.now {
		c.emit(Unpin, p.attempt, p.replica, NoReason)
	}
	*p = pinned{}
}
