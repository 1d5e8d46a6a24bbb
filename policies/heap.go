package policies

// heap is a binary heap of waiters by (at, attempt) that tells each its position, so that any can be taken out.
type heap []entry

type entry struct {
	at      Time
	attempt AttemptID
	slot    int32
}

func (e entry) before(f entry) bool {
	return e.at < f.at || e.at == f.at && e.attempt < f.attempt
}

func (h *heap) push(e entry, moved func(slot, pos int32)) {
	*h = append(*h, e)
	h.rise(int32(len(*h)-1), moved)
}

func (h *heap) removeAt(pos int32, moved func(slot, pos int32)) {
	last := int32(len(*h) - 1)
	e := (*h)[last]
	*h = (*h)[:last]
	if pos == last {
		return
	}
	(*h)[pos] = e
	if pos > 0 && e.before((*h)[(pos-1)/2]) {
		h.rise(pos, moved)
	} else {
		h.sink(pos, moved)
	}
}

func (h *heap) rise(pos int32, moved func(slot, pos int32)) {
	a := *h
	e := a[pos]
	for pos > 0 {
		parent := (pos - 1) / 2
		if !e.before(a[parent]) {
			break
		}
		a[pos] = a[parent]
		moved(a[pos].slot, pos)
		pos = parent
	}
	a[pos] = e
	moved(e.slot, pos)
}

func (h *heap) sink(pos int32, moved func(slot, pos int32)) {
	a := *h
	e := a[pos]
	n := int32(len(a))
	for {
		child := 2*pos + 1
		if child >= n {
			break
		}
		if child+1 < n && a[child+1].before(a[child]) {
			child++
		}
		if !a[child].before(e) {
			break
		}
		a[pos] = a[child]
		moved(a[pos].slot, pos)
		pos = child
	}
	a[pos] = e
	moved(e.slot, pos)
}
