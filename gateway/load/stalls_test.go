package load

import (
	"sync/atomic"
	"time"
)

// stalls notes by how much a sleep takes longer than it should: that is how long the machine was busy with other things.
type stalls struct {
	worst      atomic.Int64 // nanoseconds, since the last reset
	quit, done chan struct{}
}

// watchStalls begins to watch, until close.
func watchStalls() *stalls {
	s := &stalls{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		const nap = 5 * time.Millisecond
		for began := time.Now(); ; began = time.Now() {
			select {
			case <-s.quit:
				return
			case <-time.After(nap):
				s.worst.Store(max(s.worst.Load(), int64(time.Since(began)-nap)))
			}
		}
	}()
	return s
}

func (s *stalls) close() { close(s.quit); <-s.done }

func (s *stalls) take() time.Duration { return time.Duration(s.worst.Swap(0)) }
