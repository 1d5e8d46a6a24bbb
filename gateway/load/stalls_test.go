package load

import (
	"slices"
	"sync"
	"time"
)

// stall is a time in which the machine was busy with other things, and as long again in which it caught up. In nanoseconds
// of its clock.
type stall struct{ From, To int64 }

// shortest is how much too long a sleep has to be for a stall.
const shortest = 10 * time.Millisecond

// watcher notes when sleeps take longer than they should. In a process that does nothing else that is the machine's doing.
type watcher struct {
	mu         sync.Mutex
	seen       []stall
	quit, done chan struct{}
}

// watchStalls begins to watch, until close.
func watchStalls() *watcher {
	w := &watcher{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		const nap = 2 * time.Millisecond
		for {
			due := time.Now().Add(nap)
			select {
			case <-w.quit:
				return
			case <-time.After(nap):
			}
			if late := time.Since(due); late >= shortest {
				w.mu.Lock()
				w.seen = append(w.seen, stall{due.UnixNano(), due.Add(2 * late).UnixNano()})
				w.mu.Unlock()
			}
		}
	}()
	return w
}

func (w *watcher) stalls() []stall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *watcher) close() { close(w.quit); <-w.done }

// stalled says whether what is measured of a turn was under way in a stall.
func (t *turn) stalled(stalls []stall) bool {
	for _, w := range [][2]int64{{t.began, t.here}, {t.sent, t.got}, {t.sentLast, t.gotLast}} {
		if slices.ContainsFunc(stalls, func(s stall) bool { return s.From <= w[1] && w[0] <= s.To }) {
			return true
		}
	}
	return false
}
