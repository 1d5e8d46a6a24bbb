package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxUnwritten bounds what of the decision log waits for the disk.
const maxUnwritten = 64 << 20

// decisionFile takes the decision log from the driver without making it wait: a goroutine of its own writes to the file,
// and the last lines are kept to be shown. A log with a gap cannot be replayed, so when the disk is too slow, full, or the
// size is reached, the log ends there.
type decisionFile struct {
	mu      sync.Mutex
	tail    [][]byte
	next    int
	buf     []byte
	size    int64
	limit   int64
	file    *os.File
	why     error // the log has ended
	wake    chan struct{}
	done    chan struct{}
	written atomic.Int64
}

// newDecisionFile begins a log at path; "" for the last lines only.
func newDecisionFile(path string, limit int64, tail int) (*decisionFile, error) {
	d := &decisionFile{limit: limit, tail: make([][]byte, tail), wake: make(chan struct{}, 1), done: make(chan struct{})}
	if path == "" {
		close(d.done)
		return d, nil
	}
	if err := setAside(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("decision log: %w", err)
	}
	d.file = f
	go d.run()
	return d, nil
}

// setAside gives a file that is there the first free name with a number.
func setAside(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("decision log: %w", err)
	}
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.%d", path, n)
		if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(path, to)
		} else if err != nil {
			return fmt.Errorf("decision log: %w", err)
		}
	}
}

// Write implements decisionlog.Writer.
func (d *decisionFile) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for line := range bytes.Lines(p) {
		d.tail[d.next] = append(d.tail[d.next][:0], line...)
		d.next = (d.next + 1) % len(d.tail)
	}
	if d.file == nil {
		return len(p), nil
	}
	if d.why == nil {
		switch {
		case d.size+int64(len(p)) > d.limit:
			d.why = fmt.Errorf("the decision log has reached its size of %d bytes", d.limit)
		case len(d.buf)+len(p) > maxUnwritten:
			d.why = errors.New("the disk is too slow for the decision log")
		}
	}
	if d.why != nil {
		return 0, d.why
	}
	d.size += int64(len(p))
	d.buf = append(d.buf, p...)
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// run writes what has come until the log is closed.
func (d *decisionFile) run() {
	defer close(d.done)
	var spare []byte
	for open := true; open; {
		_, open = <-d.wake
		d.mu.Lock()
		out := d.buf
		d.buf = spare[:0]
		d.mu.Unlock()
		n, err := d.file.Write(out)
		d.written.Add(int64(n))
		if spare = out; err != nil {
			d.end(fmt.Errorf("writing the decision log: %w", err))
		}
		if open {
			time.Sleep(time.Millisecond) // more is written at a time
		}
	}
	if err := d.file.Close(); err != nil {
		d.end(fmt.Errorf("closing the decision log: %w", err))
	}
}

func (d *decisionFile) end(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why == nil {
		d.why = why
	}
}

// Err is why the log has ended; nil while it has not.
func (d *decisionFile) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.why
}

// Close writes what is left. Nothing may be written afterwards.
func (d *decisionFile) Close() error {
	if d.file != nil {
		close(d.wake)
	}
	<-d.done
	return d.Err()
}

// Last is the last n lines, oldest first.
func (d *decisionFile) Last(n int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []byte
	for i := max(0, len(d.tail)-n); i < len(d.tail); i++ {
		out = append(out, d.tail[(d.next+i)%len(d.tail)]...)
	}
	return out
}
