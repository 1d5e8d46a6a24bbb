package results

// turnKey identifies a turn over its attempts.
type turnKey struct{ session, thread, number int32 }

// retriedTurn is a turn with several attempts of which some are still to come. The last one takes the arrival of the
// first: the client waits from there.
type retriedTurn struct {
	first int64 // the earliest arrival of the attempts before the last one
	seen  int32 // of these
	last  *Turn // nil: still to come
}

// join adds an attempt to the metrics; a last one when those before it have come. They may come in any order, since an
// abandoned attempt can end after its successor.
func (c *Collector) join(t *Turn) error {
	if t.Final && t.Attempt <= 1 {
		return c.add(t, t.ArrivalPS)
	}
	key := turnKey{t.Session, t.Thread, t.Number}
	r := c.retried[key]
	if r == nil {
		r = &retriedTurn{first: Missing}
		c.retried[key] = r
	}
	if t.Final {
		r.last = new(Turn)
		*r.last = *t
	} else {
		r.seen++
		if t.ArrivalPS != Missing && (r.first == Missing || t.ArrivalPS < r.first) {
			r.first = t.ArrivalPS
		}
		if err := c.add(t, t.ArrivalPS); err != nil {
			return err
		}
	}
	if r.last == nil || r.seen < r.last.Attempt-1 {
		return nil
	}
	delete(c.retried, key)
	return c.addLast(r)
}

func (c *Collector) addLast(r *retriedTurn) error {
	t, arrival := r.last, r.last.ArrivalPS
	r.last = nil
	if r.first != Missing && (arrival == Missing || r.first < arrival) {
		arrival = r.first
	}
	return c.add(t, arrival)
}

// joinRest adds the last attempts that others should have come before.
func (c *Collector) joinRest() error {
	for _, r := range c.retried { // order does not show: metrics do not depend on that of the attempts
		if r.last != nil {
			if err := c.addLast(r); err != nil {
				return err
			}
		}
	}
	return nil
}
