package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"
)

// SubscriberConfig says where a Subscriber listens.
type SubscriberConfig struct {
	Endpoint string // tcp://host:port
	Bind     bool   // wait at Endpoint for the engine, which connects (see EngineBinds)
	Replay   string // the engine's replay endpoint; "" if it has none
	Topic    string // only batches whose topic begins so

	Timeout time.Duration // of a replay; 5 s
	Retry   time.Duration // between two attempts to connect, at first; 100 ms, doubled up to 5 s
	Quiet   time.Duration // without a batch, until it is asked whether one was lost; 1 s, and first a tenth of it on a new connection
}

// Update is what a Subscriber tells.
type Update struct {
	// Batch is what the engine did; nil for a reset. It is valid until the handler returns.
	Batch *Batch
	Seq   uint64
	// Reset says that whatever was known of the engine's blocks is void, for Reason.
	Reset  bool
	Reason string
}

// SubscriberStats counts since the start.
type SubscriberStats struct {
	Connects, Batches, Replayed, Duplicates, Gaps, Resets, Malformed int64
	Connected                                                        bool // gauge
}

// Subscriber follows the events of one engine (of one data-parallel rank). Batches come in order and once each. Where some
// were lost and cannot be replayed, or the engine is a new process, it says Reset and goes on.
//
// That a batch was lost shows in the number of the next one. An engine that publishes no more for a while is asked, too: what it
// published before a subscription had reached it, or what a full queue dropped, can be the last for long.
//
// Which process it talks to can be told only by what that sent: after a new connection, or a gap, it asks for the last batch that
// it had as well, and if that is not the same the engine is a new one.
type Subscriber struct {
	cfg      SubscriberConfig
	listener net.Listener
	seed     maphash.Seed
	batch    Batch

	known  bool // last and digest are those of the last batch taken
	last   uint64
	digest uint64
	live   int64 // number of the last batch on this connection that was no replay; -1 for none

	again   atomic.Bool // what is known is to be learnt again
	current atomic.Pointer[conn]

	connects, batches, replayed, duplicates, gaps, resets, malformed atomic.Int64
	connected                                                        atomic.Bool
}

// NewSubscriber checks the configuration; with Bind, it begins to wait at the endpoint.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Retry <= 0 {
		cfg.Retry = 100 * time.Millisecond
	}
	if cfg.Quiet <= 0 {
		cfg.Quiet = time.Second
	}
	s := &Subscriber{cfg: cfg, seed: maphash.MakeSeed(), live: -1}
	if _, _, err := split(cfg.Endpoint); err != nil {
		return nil, err
	}
	if cfg.Replay != "" {
		if _, _, err := split(cfg.Replay); err != nil {
			return nil, err
		}
	}
	if cfg.Bind {
		l, err := listen(cfg.Endpoint)
		if err != nil {
			return nil, err
		}
		s.listener = l
	}
	return s, nil
}

// Addr is where an engine connects to, "" unless the subscriber binds.
func (s *Subscriber) Addr() string { return address(s.listener) }

// Stats may be called from any goroutine.
func (s *Subscriber) Stats() SubscriberStats {
	return SubscriberStats{s.connects.Load(), s.batches.Load(), s.replayed.Load(), s.duplicates.Load(), s.gaps.Load(),
		s.resets.Load(), s.malformed.Load(), s.connected.Load()}
}

// Run follows the engine until ctx ends, and calls handle for what happens, always from the goroutine of the call. It is
// called once, and returns when all it started has ended.
func (s *Subscriber) Run(ctx context.Context, handle func(Update)) {
	var wait sync.WaitGroup
	defer wait.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := func() (*conn, error) { return dial(ctx, s.cfg.Endpoint, zmq4.Sub) }
	if s.listener != nil {
		arrivals := make(chan *conn)
		wait.Go(func() { s.accept(ctx, &wait, arrivals) })
		next = func() (*conn, error) {
			select {
			case k := <-arrivals:
				return k, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	retry := s.cfg.Retry
	for ctx.Err() == nil {
		k, err := next()
		if err != nil {
			pause(ctx, retry)
			retry = min(2*retry, 5*time.Second)
			continue
		}
		retry = s.cfg.Retry
		s.connects.Add(1)
		s.connected.Store(true)
		s.follow(ctx, k, handle)
		s.connected.Store(false)
		k.close()
		pause(ctx, s.cfg.Retry)
	}
}

// Resync has what is known of the engine dropped and learnt again, as far as the engine can replay it: for whoever has forgotten
// it. It may be called from any goroutine.
func (s *Subscriber) Resync() {
	s.again.Store(true)
	if k := s.current.Load(); k != nil {
		k.close()
	}
}

// accept takes engines that connect. The newest is the one that lives: the connection before it is closed.
func (s *Subscriber) accept(ctx context.Context, wait *sync.WaitGroup, arrivals chan<- *conn) {
	stop := context.AfterFunc(ctx, func() { s.listener.Close() })
	defer stop()
	var current *conn
	for {
		c, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			pause(ctx, 10*time.Millisecond)
			continue
		}
		k, err := open(ctx, c, zmq4.Sub, true)
		if err != nil {
			continue
		}
		if current != nil {
			current.close()
		}
		current = k
		wait.Go(func() {
			select {
			case arrivals <- k:
			case <-ctx.Done():
				k.close()
			}
		})
	}
}

// follow takes batches from one connection until it ends.
func (s *Subscriber) follow(ctx context.Context, k *conn, handle func(Update)) {
	stop := context.AfterFunc(ctx, k.close)
	defer stop()
	if k.send(append([]byte{1}, s.cfg.Topic...)) != nil {
		return
	}
	s.current.Store(k)
	if s.again.Swap(false) {
		s.reset("it was asked for again", handle)
	}
	s.live = -1
	s.catchUp(ctx, "connected again, and it cannot be told what happened meanwhile", handle)
	var wait sync.WaitGroup
	messages, done := make(chan [][]byte), make(chan struct{})
	defer wait.Wait()
	defer k.close()
	defer close(done)
	wait.Go(func() {
		defer close(messages)
		for {
			frames, err := k.receive()
			if err != nil {
				return
			}
			select {
			case messages <- frames:
			case <-done:
				return
			}
		}
	})
	quiet, asks := time.NewTimer(s.cfg.Quiet/10), 2 // before the next batch
	defer quiet.Stop()
	for {
		select {
		case frames, ok := <-messages:
			if !ok || ctx.Err() != nil {
				return
			}
			if len(frames) != 3 || len(frames[1]) != 8 {
				s.malformed.Add(1)
				continue
			}
			s.take(ctx, binary.BigEndian.Uint64(frames[1]), frames[2], handle)
			asks = 1
		case <-quiet.C:
			s.inquire(ctx, handle)
			asks--
		}
		if asks > 0 {
			quiet.Reset(s.cfg.Quiet)
		}
	}
}

// inquire asks a quiet engine for what came after the last batch. An engine that does not answer, or that keeps nothing, may still
// be the same.
func (s *Subscriber) inquire(ctx context.Context, handle func(Update)) {
	if s.cfg.Replay == "" {
		return
	}
	if s.known {
		if _, err := s.replayOn(ctx, handle); !errors.Is(err, errOther) || ctx.Err() != nil {
			return
		}
		s.reset("batches were lost", handle)
	}
	s.replayAll(ctx, handle)
}

// take takes a batch that came on its own.
func (s *Subscriber) take(ctx context.Context, seq uint64, payload []byte, handle func(Update)) {
	if s.live >= 0 && seq <= uint64(s.live) {
		s.reset("the engine counts from the beginning again", handle)
		s.catchUp(ctx, "", handle)
	}
	first := s.live < 0
	s.live = int64(min(seq, 1<<63-1))
	switch {
	case s.known && seq > s.last+1:
		s.gaps.Add(1)
		s.catchUp(ctx, "batches were lost", handle)
	case !s.known && first && seq > 0: // published before the subscription had reached the engine
		s.catchUp(ctx, "", handle)
	}
	if ctx.Err() != nil {
		return // and it cannot be told what was lost
	}
	switch {
	case s.known && seq <= s.last:
		s.duplicates.Add(1)
		return
	case s.known && seq > s.last+1:
		s.reset("batches were lost", handle)
	}
	s.apply(seq, payload, handle)
}

// apply hands a batch on.
func (s *Subscriber) apply(seq uint64, payload []byte, handle func(Update)) {
	err := s.batch.Decode(payload)
	s.known, s.last, s.digest = true, seq, maphash.Bytes(s.seed, payload)
	if err != nil {
		s.malformed.Add(1)
		s.resets.Add(1)
		handle(Update{Seq: seq, Reset: true, Reason: err.Error()})
		return
	}
	s.batches.Add(1)
	handle(Update{Seq: seq, Batch: &s.batch})
}

// reset says that what is known is void; nothing if nothing is.
func (s *Subscriber) reset(reason string, handle func(Update)) {
	if s.known {
		s.known = false
		s.resets.Add(1)
		handle(Update{Reset: true, Reason: reason})
	}
}

// catchUp asks for what came after the last batch, or for all if there is none. Where the last batch is no longer the same
// what was known is void, for reason, and all that the engine still keeps is taken.
func (s *Subscriber) catchUp(ctx context.Context, reason string, handle func(Update)) {
	if s.cfg.Replay == "" {
		if s.live < 0 {
			s.reset(reason, handle)
		}
		return
	}
	if s.known {
		if same, err := s.replayOn(ctx, handle); ctx.Err() != nil || err == nil && same {
			return
		}
		s.reset(reason, handle)
	}
	s.replayAll(ctx, handle)
}

// replayOn takes what came after the last batch, which is known. same says that the engine still has that one.
func (s *Subscriber) replayOn(ctx context.Context, handle func(Update)) (same bool, err error) {
	err = s.replay(ctx, s.last, func(seq uint64, payload []byte) bool {
		if !same {
			same = seq == s.last && maphash.Bytes(s.seed, payload) == s.digest
			return same
		}
		s.replayed.Add(1)
		s.apply(seq, payload, handle)
		return true
	})
	return same, err
}

// replayAll takes all that the engine keeps. Without it, what is known begins with the next batch.
func (s *Subscriber) replayAll(ctx context.Context, handle func(Update)) {
	_ = s.replay(ctx, 0, func(seq uint64, payload []byte) bool {
		s.replayed.Add(1)
		s.apply(seq, payload, handle)
		return true
	})
}

var errOther = errors.New("KV events: the engine is another")

// replay asks for the batches from number from on and calls take for each, until that says no.
func (s *Subscriber) replay(ctx context.Context, from uint64, take func(seq uint64, payload []byte) bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	k, err := dial(ctx, s.cfg.Replay, zmq4.Dealer)
	if err != nil {
		return err
	}
	defer k.close()
	defer context.AfterFunc(ctx, k.close)()
	if err := k.send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return err
	}
	for next := from; ; {
		frames, err := k.receive()
		if err != nil {
			return err
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			return fmt.Errorf("KV events: a replay of %d frames, expected 3", len(frames))
		}
		seq := binary.BigEndian.Uint64(frames[1])
		if seq == endOfReplay {
			return nil
		}
		if seq < next || next > from && seq > next {
			return fmt.Errorf("KV events: a replay out of order: batch %d after %d", seq, next-1)
		}
		if !take(seq, frames[2]) {
			return errOther
		}
		next = seq + 1
	}
}
