package latency

// Direction of a transfer between a GPU and the memory of its host.
type Direction uint8

const (
	ToGPU  Direction = iota // a load
	ToHost                  // a store
)

// TransferQueue is one link with a queue for each direction: transfers in one direction follow one another in the order
// of submission. One that begins while the other direction is busy goes at the rate of BothWays until its end; what the
// other direction does later does not change it any more. Times are picoseconds.
type TransferQueue struct {
	alone, both *Link
	free        [2]int64 // when a direction has nothing left to do
}

// NewTransferQueue returns an idle queue for a link.
func NewTransferQueue(l *Link) TransferQueue { return TransferQueue{alone: l, both: l.BothWays()} }

// Submit queues a transfer at time now, which must not go back, and returns when it begins and ends.
func (q *TransferQueue) Submit(now int64, d Direction, blocks, bytes int64) (begin, end int64) {
	begin = max(now, q.free[d])
	l := q.alone
	if q.free[1-d] > begin {
		l = q.both
	}
	q.free[d] = begin + l.Picoseconds(blocks, bytes)
	return begin, q.free[d]
}

// Free is when a direction has nothing left to do.
func (q *TransferQueue) Free(d Direction) int64 { return q.free[d] }
