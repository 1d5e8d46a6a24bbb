package admission

import "slices"

// fifo is a queue that reuses its memory.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(x T) {
	if q.head > 0 && len(q.items) == cap(q.items) && q.head >= len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

// settle moves the item that was pushed last before those that it precedes, in a queue that is in order without it.
func (q *fifo[T]) settle(precedes func(a, b T) bool) {
	for i := len(q.items) - 1; i > q.head && precedes(q.items[i], q.items[i-1]); i-- {
		q.items[i], q.items[i-1] = q.items[i-1], q.items[i]
	}
}

// front is the oldest item; the queue must not be empty.
func (q *fifo[T]) front() T { return q.items[q.head] }

// remove takes the first item out that is so.
func (q *fifo[T]) remove(so func(T) bool) {
	if i := slices.IndexFunc(q.items[q.head:], so); i == 0 {
		q.pop()
	} else if i > 0 {
		q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	}
}

func (q *fifo[T]) pop() T {
	x := q.items[q.head]
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return x
}
