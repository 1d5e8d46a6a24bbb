package kvevents

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
)

// PublisherConfig says where a Publisher publishes.
type PublisherConfig struct {
	Endpoint string // tcp://host:port; port 0 is any that is free
	Connect  bool   // connect to Endpoint, where a subscriber waits
	Replay   string // where replays are asked for; "" for nowhere
	Topic    string
	Maps     bool // batches are maps, not arrays
	Steps    int  // batches kept for replay; 10,000
	Queue    int  // batches that wait for one subscriber before it loses some; 1,000
}

// maxReplayBytes bounds the batches kept for replay beside their number.
const maxReplayBytes = 64 << 20

// Publisher publishes batches as vLLM does: numbered from 0, the last ones kept for replay. Its methods may be called from
// many goroutines.
type Publisher struct {
	cfg     PublisherConfig
	ctx     context.Context
	stop    context.CancelFunc
	wait    sync.WaitGroup
	pub     net.Listener // nil if it connects
	replays net.Listener // nil for none

	mu     sync.Mutex
	seq    uint64
	kept   []numbered
	bytes  int
	lose   int
	subs   map[*subscription]struct{}
	conns  map[*conn]struct{} // of replays
	closed bool
}

type numbered struct {
	seq     uint64
	payload []byte
}

// subscription is one subscriber.
type subscription struct {
	*conn
	queue  chan numbered
	mu     sync.Mutex
	topics [][]byte
}

// NewPublisher starts to publish.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if cfg.Steps <= 0 {
		cfg.Steps = 10_000
	}
	if cfg.Queue <= 0 {
		cfg.Queue = 1_000
	}
	p := &Publisher{cfg: cfg, subs: make(map[*subscription]struct{}), conns: make(map[*conn]struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	var err error
	if cfg.Connect {
		_, _, err = split(cfg.Endpoint)
	} else {
		p.pub, err = listen(cfg.Endpoint)
	}
	if err == nil && cfg.Replay != "" {
		p.replays, err = listen(cfg.Replay)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	if cfg.Connect {
		p.wait.Go(p.connect)
	} else {
		p.wait.Go(func() { p.accept(p.pub, zmq4.Pub, p.subscriber) })
	}
	if p.replays != nil {
		p.wait.Go(func() { p.accept(p.replays, zmq4.Router, p.replay) })
	}
	return p, nil
}

// Addr is where subscribers connect to, "" if the publisher connects itself.
func (p *Publisher) Addr() string { return address(p.pub) }

// ReplayAddr is where replays are asked for, "" for nowhere.
func (p *Publisher) ReplayAddr() string { return address(p.replays) }

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	if l.Addr().Network() == "unix" {
		return "ipc://" + l.Addr().String()
	}
	return "tcp://" + l.Addr().String()
}

// Publish sends a batch to all subscribers and returns its number. It does not wait: a subscriber that is too slow loses it.
func (p *Publisher) Publish(b *Batch) uint64 {
	payload := b.Append(nil, p.cfg.Maps)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := numbered{p.seq, payload}
	p.seq++
	p.kept, p.bytes = append(p.kept, n), p.bytes+len(payload)
	for len(p.kept) > p.cfg.Steps || p.bytes > maxReplayBytes && len(p.kept) > 1 {
		p.bytes -= len(p.kept[0].payload)
		p.kept[0].payload = nil
		p.kept = p.kept[1:]
	}
	if p.lose > 0 {
		p.lose--
		return n.seq
	}
	for s := range p.subs {
		if s.wants(p.cfg.Topic) {
			select {
			case s.queue <- n:
			default:
			}
		}
	}
	return n.seq
}

// Lose keeps the next n batches from all subscribers, as a network does. They can be replayed.
func (p *Publisher) Lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = n
}

// Restart begins again with number 0 and nothing to replay, on new connections, as a new process does.
func (p *Publisher) Restart() {
	p.mu.Lock()
	p.seq, p.kept, p.bytes = 0, nil, 0
	p.mu.Unlock()
	p.Disconnect()
}

// Disconnect closes all connections; peers may come again.
func (p *Publisher) Disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subs {
		s.close()
	}
	for c := range p.conns {
		c.close()
	}
}

// Subscribers is how many have subscribed to the topic.
func (p *Publisher) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s := range p.subs {
		if s.wants(p.cfg.Topic) {
			n++
		}
	}
	return n
}

// Close ends all connections and waits for the publisher's goroutines.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	var err error
	for _, l := range []net.Listener{p.pub, p.replays} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	p.Disconnect()
	p.wait.Wait()
	return err
}

func (p *Publisher) accept(l net.Listener, as zmq4.SocketType, serve func(*conn)) {
	for p.ctx.Err() == nil {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			pause(p.ctx, 10*time.Millisecond) // out of descriptors, for instance
			continue
		}
		p.wait.Go(func() {
			if k, err := open(p.ctx, c, as, true); err == nil {
				serve(k)
				k.close()
			}
		})
	}
}

// connect publishes to a subscriber that waits at the endpoint, and comes again when the connection ends.
func (p *Publisher) connect() {
	for p.ctx.Err() == nil {
		if k, err := dial(p.ctx, p.cfg.Endpoint, zmq4.Pub); err == nil {
			p.subscriber(k)
			k.close()
		}
		pause(p.ctx, 50*time.Millisecond)
	}
}

// pause waits, not longer than ctx lasts.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// subscriber serves one subscriber until its connection ends.
func (p *Publisher) subscriber(k *conn) {
	s := &subscription{conn: k, queue: make(chan numbered, p.cfg.Queue)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.subs[s] = struct{}{}
	p.mu.Unlock()
	gone := make(chan struct{})
	p.wait.Go(func() {
		defer close(gone)
		for {
			frames, err := k.receive()
			if err != nil {
				return
			}
			if len(frames) == 1 && len(frames[0]) > 0 {
				s.subscribe(frames[0])
			}
		}
	})
	p.write(s, gone)
	p.mu.Lock()
	delete(p.subs, s)
	p.mu.Unlock()
	k.close()
	<-gone
}

func (p *Publisher) write(s *subscription, gone <-chan struct{}) {
	topic := []byte(p.cfg.Topic)
	for {
		select {
		case <-gone:
			return
		case n := <-s.queue:
			if s.send(topic, binary.BigEndian.AppendUint64(nil, n.seq), n.payload) != nil {
				return
			}
		}
	}
}

// maxTopics bounds what one subscriber may subscribe to.
const maxTopics = 64

// subscribe takes a subscription (a 1 and a topic) or takes it back (a 0).
func (s *subscription) subscribe(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	topic := frame[1:]
	switch {
	case frame[0] == 1 && len(s.topics) < maxTopics:
		s.topics = append(s.topics, topic)
	case frame[0] == 0:
		for i, t := range s.topics {
			if bytes.Equal(t, topic) {
				s.topics = append(s.topics[:i], s.topics[i+1:]...)
				return
			}
		}
	}
}

func (s *subscription) wants(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.topics {
		if bytes.HasPrefix([]byte(topic), t) {
			return true
		}
	}
	return false
}

// endOfReplay is the number after the last batch of a replay.
const endOfReplay = ^uint64(0)

// replay answers the requests of one peer: a number, and then all batches from that number on that are kept.
func (p *Publisher) replay(k *conn) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.conns[k] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, k)
		p.mu.Unlock()
	}()
	for {
		frames, err := k.receive()
		if err != nil || len(frames) != 2 || len(frames[1]) != 8 {
			return
		}
		from := binary.BigEndian.Uint64(frames[1])
		p.mu.Lock()
		kept := append([]numbered(nil), p.kept...)
		p.mu.Unlock()
		for _, n := range append(kept, numbered{seq: endOfReplay}) {
			if n.seq >= from && k.send(nil, binary.BigEndian.AppendUint64(nil, n.seq), n.payload) != nil {
				return
			}
		}
	}
}
