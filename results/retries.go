package results

// turnKey identifies a turn over its attempts.
type turnKey struct{ session, thread, number int32 }

// retriedTurn is a turn with several attempts of which some are still to come. The last one takes the arrival of the
// first: the client waits from there.
type retriedTurn struct {
	first int64    // the earliest arrival of the attempts before the last one
	seen  int32    // of these
	last  *attempt // nil: still to come
}

// join adds an attempt to the metrics; a last one when those before it have come. They may come in any order, since an
// abandoned attempt can end after its successor.
func (c *Collector) join(a *attempt) error {
	if a.final && a.number <= 1 {
		return c.add(a)
	}
	t := c.retried[a.turn]
	if t == nil {
		t = &retriedTurn{first: Missing}
		c.retried[a.turn] = t
	}
	if a.final {
		t.last = new(attempt)
		*t.last = *a
	} else {
		t.seen++
		if a.arrival != Missing && (t.first == Missing || a.arrival < t.first) {
			t.first = a.arrival
		}
		if err := c.add(a); err != nil {
			return err
		}
	}
	if t.last == nil || t.seen < t.last.number-1 {
		return nil
	}
	delete(c.retried, a.turn)
	return c.addLast(t)
}

func (c *Collector) addLast(t *retriedTurn) error {
	a := t.last
	t.last = nil
	if t.first != Missing && (a.arrival == Missing || t.first < a.arrival) {
		a.arrival = t.first
	}
	return c.add(a)
}

// joinRest adds the last attempts that others should have come before.
func (c *Collector) joinRest() error {
	for _, t := range c.retried { // order does not show: metrics do not depend on that of the attempts
		if t.last != nil {
			if err := c.addLast(t); err != nil {
				return err
			}
		}
	}
	return nil
}
