package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// meter shows how far a number of parallel tasks have come: one line on a terminal, rewritten, from one second on.
type meter struct {
	w      io.Writer // nil: show nothing
	unit   string
	done   []atomic.Int64
	total  []atomic.Int64
	quit   chan struct{}
	ended  sync.WaitGroup
	began  time.Time
	active bool // a line stands on the terminal

	stopped bool
}

// startMeter begins to count tasks. Nothing is shown unless w is a terminal.
func startMeter(w io.Writer, unit string, tasks int) *meter {
	m := &meter{unit: unit, done: make([]atomic.Int64, tasks), total: make([]atomic.Int64, tasks), began: time.Now()}
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return m
	}
	m.w, m.quit = w, make(chan struct{})
	m.ended.Go(m.loop)
	return m
}

// task is the progress function of one task.
func (m *meter) task(i int) func(done, total int64) {
	return func(done, total int64) {
		m.done[i].Store(done)
		m.total[i].Store(total)
	}
}

// stop ends the display and clears its line; a second call does nothing.
func (m *meter) stop() {
	if m.w == nil || m.stopped {
		return
	}
	m.stopped = true
	close(m.quit)
	m.ended.Wait()
	if m.active {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}

func (m *meter) loop() {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-tick.C:
			if time.Since(m.began) >= time.Second {
				m.show()
			}
		}
	}
}

func (m *meter) show() {
	var done, total, finished int64
	for i := range m.done {
		d, t := m.done[i].Load(), m.total[i].Load()
		done, total = done+d, total+t
		if t > 0 && d >= t {
			finished++
		}
	}
	line := fmt.Sprintf("%s of %s %s", thousands(done), thousands(total), m.unit)
	switch {
	case total == 0:
		line = "loading"
	case finished == int64(len(m.done)):
		line = "writing results"
	}
	if len(m.done) > 1 {
		line += fmt.Sprintf(", %d of %d runs done", finished, len(m.done))
	}
	fmt.Fprintf(m.w, "\r\x1b[K%s, %.0f s", line, time.Since(m.began).Seconds())
	m.active = true
}
