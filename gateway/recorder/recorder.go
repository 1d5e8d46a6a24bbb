// Package recorder writes what a gateway saw as a trace that `sluice run` replays: who shared which prefix, lengths, gaps
// and durations; no text, no token, no hash, no identifier of the clients (spec: inputs 3.2). Serving never waits for it:
// what does not fit is dropped and counted.
//
// Sessions are kept in memory until they end and then go into a file whole, renumbered from 0 in each file, so that files
// cannot be linked to each other. What a file holds can be checked with Verify.
package recorder

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-sim/sluice/gateway/content"
)

// Config says what is recorded and where. A field that is 0 has its default.
type Config struct {
	Dir         string        // where files go
	Secret      []byte        // keys the choice of sessions, at least 16 bytes; it is not written
	Sample      float64       // share of sessions, above 0 and up to 1; 1
	BlockTokens int32         // the blocks that were hashed
	Queue       int           // turns that wait to be taken; 4,096
	FileTurns   int           // turns of one file; 200,000
	FileAge     time.Duration // after which a file is written even if it is not full; 10 min
	Files       int           // files that are kept, the oldest are removed; 100
	OpenTurns   int           // sessions that have not ended and their turns; 1,000,000
	Idle        time.Duration // after which a session counts as ended; 1 h
	Log         *slog.Logger  // told of files written and of failures; none if nil
}

// maxSessionTurns is after how many turns a session goes on as another one.
const maxSessionTurns = 50_000

func (c *Config) check() error {
	switch {
	case c.Dir == "":
		return errors.New("recorder: no folder")
	case len(c.Secret) < 16:
		return fmt.Errorf("recorder: a secret of %d bytes, expected at least 16", len(c.Secret))
	case !(c.Sample >= 0 && c.Sample <= 1):
		return fmt.Errorf("recorder: a sample of %v, expected a share above 0 and up to 1", c.Sample)
	case c.BlockTokens < 1:
		return fmt.Errorf("recorder: blocks of %d tokens, expected at least 1", c.BlockTokens)
	}
	for _, x := range []struct {
		to  *int
		def int
	}{{&c.Queue, 4096}, {&c.FileTurns, 200_000}, {&c.Files, 100}, {&c.OpenTurns, 1_000_000}} {
		if *x.to <= 0 {
			*x.to = x.def
		}
	}
	if c.Sample == 0 {
		c.Sample = 1
	}
	if c.FileAge <= 0 {
		c.FileAge = 10 * time.Minute
	}
	if c.Idle <= 0 {
		c.Idle = time.Hour
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Outcome is how a turn ended.
type Outcome uint8

const (
	Finished Outcome = iota
	Cut              // it ended early, after some output: the client left, or the engine failed
	NoOutput         // it ended without output
	Refused          // it was not admitted
	numOutcomes
)

// Turn is a turn that has ended. Times are nanoseconds since any one moment.
type Turn struct {
	Session      string        // key; it is not written
	Thread       int64         // tells the conversations of a session apart
	Model        string        // alias, as configured
	Path         content.Path  // where the prompt lies; not kept
	Basis        content.Basis // what the prompt was hashed by; of Bytes, PromptTokens is an estimate
	PromptTokens int32
	OutputTokens int32
	ArrivedNS    int64
	EndedNS      int64
	Outcome      Outcome
}

// Stats counts since the start.
type Stats struct {
	Turns         int64 // written or waiting to be
	DroppedQueue  int64 // turns for which the queue had no room
	DroppedOpen   int64 // turns of sessions that were given up, for want of memory
	DroppedOther  int64 // turns without output, or with impossible figures
	Files, Failed int64 // files written; that could not be written
	OpenSessions  int64 // gauge
	OpenTurns     int64 // gauge
}

// Recorder takes turns from many goroutines.
type Recorder struct {
	cfg       Config
	threshold uint64
	queue     chan note
	stop      chan struct{}
	closing   sync.Once
	done      sync.WaitGroup
	err       error

	turns, droppedQueue, droppedOpen, droppedOther, files, failed, openSessions, openTurns atomic.Int64
}

// note is what reaches the recorder's goroutine: a turn, or the end of a session.
type note struct {
	turn  Turn
	ended bool
}

// New starts a recorder.
func New(cfg Config) (*Recorder, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	w, err := newWriter(&cfg)
	if err != nil {
		return nil, err
	}
	r := &Recorder{cfg: cfg, queue: make(chan note, cfg.Queue), stop: make(chan struct{}), threshold: math.MaxUint64}
	if cfg.Sample < 1 {
		r.threshold = uint64(cfg.Sample * (1 << 63) * 2)
	}
	r.done.Go(func() { r.run(w) })
	return r, nil
}

// Samples says whether turns of the session are recorded. A caller need not make a Turn of others.
func (r *Recorder) Samples(session string) bool {
	if r.threshold == math.MaxUint64 {
		return true
	}
	mac := hmac.New(sha256.New, r.cfg.Secret)
	mac.Write([]byte("sample"))
	mac.Write([]byte(session))
	return binary.LittleEndian.Uint64(mac.Sum(nil)) < r.threshold
}

// Record takes a turn; false if it was dropped for want of room. It does not wait. Turns of one thread come in the order in
// which they arrived.
func (r *Recorder) Record(t Turn) bool {
	if !r.Samples(t.Session) {
		return true
	}
	t.Path = slices.Clone(t.Path)
	select {
	case r.queue <- note{turn: t}:
		return true
	default:
		r.droppedQueue.Add(1)
		return false
	}
}

// EndSession says that the session sends no more turns. Where that does not get through, it ends when it has been idle.
func (r *Recorder) EndSession(session string) {
	select {
	case r.queue <- note{turn: Turn{Session: session}, ended: true}:
	default:
	}
}

// Close writes what is there and ends the recorder. Record must not be called any more.
func (r *Recorder) Close() error {
	r.closing.Do(func() { close(r.stop) })
	r.done.Wait()
	return r.err
}

// Stats may be called from any goroutine.
func (r *Recorder) Stats() Stats {
	return Stats{r.turns.Load(), r.droppedQueue.Load(), r.droppedOpen.Load(), r.droppedOther.Load(), r.files.Load(), r.failed.Load(),
		r.openSessions.Load(), r.openTurns.Load()}
}

func (r *Recorder) run(w *writer) {
	o := newOpen(r)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case n := <-r.queue:
			r.take(w, o, &n)
		case <-tick.C:
			r.pass(w, o, time.Now())
		case <-r.stop:
			for len(r.queue) > 0 {
				n := <-r.queue
				r.take(w, o, &n)
			}
			o.endAll()
			r.write(w, o)
			return
		}
	}
}

// take takes a note, and writes the file if it is full.
func (r *Recorder) take(w *writer, o *open, n *note) {
	o.take(n)
	if o.file.turns() >= r.cfg.FileTurns {
		r.write(w, o)
	}
}

// pass does what time demands: sessions that are idle end, and a file that is old is written.
func (r *Recorder) pass(w *writer, o *open, now time.Time) {
	o.endIdle(now)
	if now.Sub(o.file.begun) >= r.cfg.FileAge {
		r.write(w, o)
	}
}

// write writes the file that is complete and begins the next.
func (r *Recorder) write(w *writer, o *open) {
	if o.file.turns() == 0 {
		o.file.begun = time.Now()
		return
	}
	turns := o.file.turns()
	name, err := w.write(o.file.trace())
	if err != nil {
		r.failed.Add(1)
		r.err = errors.Join(r.err, err)
		r.cfg.Log.Error("recorder: a trace was lost", "turns", turns, "error", err)
	} else {
		r.files.Add(1)
		r.cfg.Log.Info("recorder: trace written", "file", name, "turns", turns)
	}
	o.file = newFile(&r.cfg)
}
