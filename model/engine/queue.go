package engine

// queue is a queue of waiting requests: first come first served, or ordered by (priority, arrival, id).
type queue struct {
	priority bool
	items    []Slot // from head on
	head     int
}

func (q *queue) len() int { return len(q.items) - q.head }

// slots are the requests that wait, in order.
func (q *queue) slots() []Slot { return q.items[q.head:] }

func (q *queue) front() Slot { return q.items[q.head] }

func (q *queue) pop() Slot {
	s := q.items[q.head]
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return s
}

// before tells whether a goes before b under priority scheduling.
func before(e *Engine, a, b Slot) bool {
	x, y := &e.requests[a], &e.requests[b]
	if x.priority != y.priority {
		return x.priority < y.priority
	}
	if x.arrival != y.arrival {
		return x.arrival < y.arrival
	}
	return x.id < y.id
}

func (q *queue) push(e *Engine, s Slot) {
	if q.head > len(q.items)/2 {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, s)
	if !q.priority {
		return
	}
	for i := len(q.items) - 1; i > q.head && before(e, s, q.items[i-1]); i-- {
		q.items[i], q.items[i-1] = q.items[i-1], s
	}
}

// pushFront puts s at the head; under priority scheduling at its place.
func (q *queue) pushFront(e *Engine, s Slot) {
	if q.priority {
		q.push(e, s)
		return
	}
	if q.head == 0 {
		room := len(q.items)/2 + 4
		n := len(q.items)
		q.items = append(q.items, make([]Slot, room)...)
		copy(q.items[room:], q.items[:n])
		q.head = room
	}
	q.head--
	q.items[q.head] = s
}

func (q *queue) remove(s Slot) {
	for i := q.head; i < len(q.items); i++ {
		if q.items[i] == s {
			q.items = append(q.items[:i], q.items[i+1:]...)
			return
		}
	}
}
