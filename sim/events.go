package sim

// eventKind orders events of one instant, which come after the ends of steps (see ends); smaller happens first.
type eventKind uint8

const (
	clientSees    eventKind = iota // a: attempt whose answer reaches its client, b: its generation
	sessionStarts                  // a: session
	turnArrives                    // a: session, b: turn in it, c: place of the session
	clientGivesUp                  // a: attempt, b: its generation
	faultBegins                    // a: fault
	faultDetected                  // a: fault
	faultEnds                      // a: fault
	probeReaches                   // a: probe
	probeExpires                   // a: probe, b: its generation
	pinExpires                     // a: pin, b: its generation
	kvEventsReach                  // a: replica, b: its epoch of KV events
	scrapeReaches                  // a: replica, b: slot of the scrape
	scrapeDue
	wakeDue
)

// event is one thing that will happen.
type event struct {
	at   int64
	seq  uint64
	a    int32
	b    uint32
	c    int32
	kind eventKind
}

func (e *event) before(f *event) bool {
	if e.at != f.at {
		return e.at < f.at
	}
	if e.kind != f.kind {
		return e.kind < f.kind
	}
	if e.a != f.a {
		return e.a < f.a
	}
	if e.kind == turnArrives && e.b != f.b {
		return e.b < f.b
	}
	return e.seq < f.seq
}

// agenda is a 4-ary heap of events by (time, kind, number of the thing, sequence). The number comes before the sequence
// because jumping over steps puts events on the agenda earlier than walking does.
type agenda struct {
	heap []event
	seq  uint64
}

func (q *agenda) push(at int64, kind eventKind, a int32, b uint32) {
	q.add(event{at: at, a: a, b: b, kind: kind})
}

// pushTurn plans the arrival of a turn of the session with that number.
func (q *agenda) pushTurn(at int64, number int32, t turnRef) {
	q.add(event{at: at, a: number, b: uint32(t.turn), c: t.session, kind: turnArrives})
}

func (q *agenda) add(e event) {
	e.seq = q.seq
	q.seq++
	if len(q.heap) == cap(q.heap) {
		q.grow()
	}
	q.heap = append(q.heap, e)
	h := q.heap
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 4
		if !e.before(&h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = e
}

// grow makes room so that the four children of an event, 128 bytes, lie in two lines of memory: the first of them begins at a
// multiple of four events.
func (q *agenda) grow() {
	room := make([]event, 3+len(q.heap), max(64, 2*cap(q.heap)))
	q.heap = room[3 : 3+copy(room[3:], q.heap)]
}

func (q *agenda) pop() event {
	h := q.heap
	top := h[0]
	n := len(h) - 1
	e := h[n]
	q.heap = h[:n]
	if n == 0 {
		return top
	}
	h = h[:n]
	i := 0
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		c, at := first, h[first].at // almost always the times alone decide
		last := min(first+4, n)
		for k := first + 1; k < last; k++ {
			if x := h[k].at; x < at || x == at && h[k].before(&h[c]) {
				c, at = k, x
			}
		}
		if at > e.at || at == e.at && !h[c].before(&e) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = e
	return top
}
