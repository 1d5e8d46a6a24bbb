package policies

// Inheritor is implemented by a gate that counts what it admitted, so that it can take another's place while turns run.
type Inheritor interface {
	// Inherit is called once for each lease, by replica, before the gate is asked or told anything.
	Inherit(now Time, v *View, l *Lease)
}

// Replace puts a gate and a router in the place of the present ones; nil leaves one as it is. It is for knobs that change
// while turns wait and run: the view, the leases and the queue stay, and every turn that is held is asked anew in the
// next Step, which is to follow at once. What the old gate and router remembered beyond the view is gone.
func (c *Controller) Replace(gate Gate, router Router) {
	if router != nil {
		c.router, c.view.router = router, router
	}
	if gate == nil {
		return
	}
	late, ok := gate.(LateNotice)
	c.gate, c.lateNotice = gate, ok && late.NoticesLate()
	if heir, ok := gate.(Inheritor); ok {
		c.Leases(func(l *Lease) { heir.Inherit(c.now, c.view, l) })
	}
	q := &c.view.waiters
	for i := range q.slots {
		if q.slots[i].state == holding {
			q.ask(int32(i))
		}
	}
}
