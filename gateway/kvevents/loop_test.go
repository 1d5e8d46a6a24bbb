package kvevents

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mirror is what a subscriber makes of an engine: the hashes that it holds.
type mirror struct {
	mu      sync.Mutex
	holds   map[Hash]bool
	seqs    []uint64
	reasons []string
}

func (m *mirror) update(u Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.Reset {
		clear(m.holds)
		m.reasons = append(m.reasons, u.Reason)
	}
	if u.Batch == nil {
		return
	}
	m.seqs = append(m.seqs, u.Seq)
	apply(m.holds, u.Batch)
}

func apply(holds map[Hash]bool, b *Batch) {
	for i := range b.Events {
		for _, h := range b.Events[i].Hashes {
			if b.Events[i].Kind == BlockStored {
				holds[h] = true
			} else {
				delete(holds, h)
			}
		}
		if b.Events[i].Kind == AllBlocksCleared {
			clear(holds)
		}
	}
}

func (m *mirror) hashes() []Hash {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.holds))
}

// pair is a publisher and a subscriber that follows it.
type pair struct {
	t      *testing.T
	pub    *Publisher
	sub    *Subscriber
	mirror mirror
	holds  map[Hash]bool // what the engine holds
	next   Hash
}

func start(t *testing.T, pub PublisherConfig, sub SubscriberConfig) *pair {
	t.Helper()
	x := &pair{t: t, mirror: mirror{holds: map[Hash]bool{}}, holds: map[Hash]bool{}}
	sub.Retry, sub.Timeout = 2*time.Millisecond, 2*time.Second
	var err error
	if pub.Connect {
		if x.sub, err = NewSubscriber(sub); err != nil {
			t.Fatal(err)
		}
		pub.Endpoint = x.sub.Addr()
	}
	if x.pub, err = NewPublisher(pub); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.pub.Close(); err != nil {
			t.Error(err)
		}
	})
	if !pub.Connect {
		sub.Endpoint = x.pub.Addr()
		if sub.Replay == "yes" {
			sub.Replay = x.pub.ReplayAddr()
		}
		if x.sub, err = NewSubscriber(sub); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.sub.Run(ctx, x.mirror.update)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	x.until("the subscription", func() bool { return x.pub.Subscribers() == 1 })
	return x
}

func (x *pair) until(what string, ok func() bool) {
	x.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("%s did not come: %+v, %v", what, x.sub.Stats(), x.mirror.reasons)
		}
	}
}

// store publishes that the engine holds one block more.
func (x *pair) store() {
	x.next++
	x.publish(Event{Kind: BlockStored, Hashes: []Hash{x.next}, Tokens: []int32{1}, BlockTokens: 1})
}

func (x *pair) publish(e Event) {
	b := &Batch{Rank: -1, Seconds: float64(time.Now().UnixNano()), Events: []Event{e}}
	apply(x.holds, b)
	x.pub.Publish(b)
}

func (x *pair) agree() {
	x.t.Helper()
	want := slices.Sorted(maps.Keys(x.holds))
	x.until(fmt.Sprint("a mirror with ", want), func() bool { return slices.Equal(x.mirror.hashes(), want) })
}

var loopback = PublisherConfig{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0", Topic: "kv@engine"}

func TestBatchesComeInOrder(t *testing.T) {
	x := start(t, loopback, SubscriberConfig{Replay: "yes", Topic: "kv"})
	for range 300 {
		x.store()
	}
	x.agree()
	if s := x.sub.Stats(); s.Batches != 300 || s.Resets != 0 || !slices.IsSorted(x.mirror.seqs) || !s.Connected {
		t.Errorf("%+v", s)
	}
}

func TestLostBatchesAreReplayed(t *testing.T) {
	x := start(t, loopback, SubscriberConfig{Replay: "yes"})
	x.store()
	x.agree()
	x.pub.Lose(5)
	for range 7 {
		x.store()
	}
	x.agree()
	if s := x.sub.Stats(); s.Gaps != 1 || s.Replayed < 5 || s.Resets != 0 || s.Batches != 8 {
		t.Errorf("%+v, expected a gap that was filled", s)
	}
}

// TestFirstBatchesLost: an engine that publishes before the subscription has reached it.
func TestFirstBatchesLost(t *testing.T) {
	x := start(t, loopback, SubscriberConfig{Replay: "yes"})
	time.Sleep(50 * time.Millisecond) // by now it has asked what there was before, which was nothing
	x.pub.Lose(2)
	for range 3 {
		x.store()
	}
	x.agree()
	if s := x.sub.Stats(); s.Resets != 0 || s.Batches != 3 {
		t.Errorf("%+v, expected three batches", s)
	}
}

// What was lost and has nothing after it is asked for when the engine is quiet, on a new connection and later.
func TestTheLastBatchesLost(t *testing.T) {
	x := start(t, loopback, SubscriberConfig{Replay: "yes", Quiet: 100 * time.Millisecond})
	for range 2 {
		time.Sleep(30 * time.Millisecond) // by now what there was before has been asked for
		x.pub.Lose(2)
		x.store()
		x.store()
		x.agree()
		x.store()
		x.agree()
	}
	if s := x.sub.Stats(); s.Resets != 0 || s.Gaps != 0 || s.Batches != 6 {
		t.Errorf("%+v, expected six batches", s)
	}
}

func TestLostBatchesWithoutReplay(t *testing.T) {
	x := start(t, loopback, SubscriberConfig{})
	x.store()
	x.agree()
	x.pub.Lose(1)
	x.store()
	clear(x.holds) // what came before is void
	x.store()
	x.agree()
	if s := x.sub.Stats(); s.Gaps != 1 || s.Resets != 1 {
		t.Errorf("%+v, expected a reset", s)
	}
}

func TestMoreLostThanIsKept(t *testing.T) {
	few := loopback
	few.Steps = 3
	x := start(t, few, SubscriberConfig{Replay: "yes"})
	x.store()
	x.agree()
	x.pub.Lose(5)
	for range 6 {
		x.store()
	}
	maps.DeleteFunc(x.holds, func(h Hash, _ bool) bool { return h <= 4 }) // of 7 the last 3 can be replayed
	x.agree()
	if s := x.sub.Stats(); s.Resets != 1 {
		t.Errorf("%+v, expected a reset", s)
	}
}

func TestALateSubscriberLearnsWhatIsKept(t *testing.T) {
	x := start(t, loopback, SubscriberConfig{Replay: "yes"})
	for range 10 {
		x.store()
	}
	x.agree()
	other, err := NewSubscriber(SubscriberConfig{Endpoint: x.pub.Addr(), Replay: x.pub.ReplayAddr()})
	if err != nil {
		t.Fatal(err)
	}
	late := mirror{holds: map[Hash]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		other.Run(ctx, late.update)
	}()
	x.until("what was published before", func() bool { return len(late.hashes()) == 10 })
	cancel()
	<-done
}

func TestConnectionLostAndTheSameEngine(t *testing.T) {
	x := start(t, loopback, SubscriberConfig{Replay: "yes"})
	x.store()
	x.agree()
	x.pub.Disconnect()
	x.store() // while nobody is connected
	x.agree()
	x.store()
	x.agree()
	if s := x.sub.Stats(); s.Connects != 2 || s.Resets != 0 || s.Batches != 3 {
		t.Errorf("%+v, expected two connections and no reset", s)
	}
}

// An engine that starts again counts from the beginning. Nothing of before holds, though the numbers may be the same.
func TestAnotherEngineAtTheSamePlace(t *testing.T) {
	for name, ahead := range map[string]int{"behind": 2, "at the same number": 5, "further": 9} {
		t.Run(name, func(t *testing.T) {
			x := start(t, loopback, SubscriberConfig{Replay: "yes"})
			for range 5 {
				x.store()
			}
			x.agree()
			x.pub.Restart()
			clear(x.holds)
			for range ahead {
				x.store()
			}
			x.agree()
			if s := x.sub.Stats(); s.Resets != 1 {
				t.Errorf("%+v, expected a reset: %v", s, x.mirror.reasons)
			}
		})
	}
}

func TestAnotherEngineWithoutReplay(t *testing.T) {
	x := start(t, PublisherConfig{Endpoint: "tcp://127.0.0.1:0"}, SubscriberConfig{})
	x.store()
	x.agree()
	x.pub.Restart()
	clear(x.holds)
	x.until("the next connection", func() bool { return x.sub.Stats().Connects == 2 && x.pub.Subscribers() == 1 })
	x.store()
	x.agree()
	if s := x.sub.Stats(); s.Resets != 1 {
		t.Errorf("%+v, expected a reset", s)
	}
}

// Some engines connect to whoever follows them.
func TestTheEngineConnects(t *testing.T) {
	x := start(t, PublisherConfig{Connect: true, Topic: "kv"}, SubscriberConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true})
	x.store()
	x.agree()
	x.pub.Restart() // and connects again
	clear(x.holds)
	x.until("the next connection", func() bool { return x.sub.Stats().Connects == 2 && x.pub.Subscribers() == 1 })
	x.store()
	x.agree()
}

func TestUnixSockets(t *testing.T) {
	dir := t.TempDir()
	x := start(t, PublisherConfig{Endpoint: "ipc://" + filepath.Join(dir, "pub"), Replay: "ipc://" + filepath.Join(dir, "replay"), Maps: true}, SubscriberConfig{Replay: "yes"})
	x.store()
	x.agree()
}

// Whatever happens on the way, the mirror becomes what the engine holds, as long as the engine keeps all.
func TestRandomFaults(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	x := start(t, loopback, SubscriberConfig{Replay: "yes"})
	for range 400 {
		switch k := draw.IntN(40); {
		case k == 0:
			x.pub.Restart()
			clear(x.holds)
		case k == 1:
			x.pub.Disconnect()
		case k < 5:
			x.pub.Lose(1 + draw.IntN(3))
		case k == 5:
			x.publish(Event{Kind: AllBlocksCleared})
		case k < 15 && len(x.holds) > 0:
			x.publish(Event{Kind: BlockRemoved, Hashes: []Hash{slices.Sorted(maps.Keys(x.holds))[draw.IntN(len(x.holds))]}})
		case k == 15:
			time.Sleep(2 * time.Millisecond)
		default:
			x.store()
		}
	}
	x.pub.Lose(0)
	x.until("a connection", func() bool { return x.pub.Subscribers() == 1 })
	x.store()
	x.agree()
	t.Logf("%+v", x.sub.Stats())
}

// An endpoint of a subscriber that says what no engine would.
func TestHostileEngines(t *testing.T) {
	ready := func(c net.Conn) *conn {
		k, err := open(context.Background(), c, zmq4.Pub, true)
		if err != nil {
			return nil
		}
		return k
	}
	greeting := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48)
	for name, engine := range map[string]func(c net.Conn){
		"hangs up":                 func(net.Conn) {},
		"other protocol":           func(c net.Conn) { c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 100))) },
		"a property that is short": func(c net.Conn) { c.Write([]byte(greeting + "\x04\x08\x05READY\xff\x00")) },
		"a length out of range":    func(c net.Conn) { c.Write([]byte(greeting + "\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff")) },
		"a frame that is too long": func(c net.Conn) {
			if k := ready(c); k != nil {
				k.wire.out.WriteString("\x02\x00\x00\x00\x10\x00\x00\x00\x00")
				k.wire.out.Flush()
				time.Sleep(20 * time.Millisecond)
			}
		},
		"frames without end": func(c net.Conn) {
			if k := ready(c); k != nil {
				for range 2 << 20 {
					if _, err := k.wire.out.WriteString("\x01\x00"); err != nil {
						return
					}
				}
			}
		},
		"messages of other forms": func(c net.Conn) {
			if k := ready(c); k != nil {
				for _, m := range [][][]byte{{{}}, {{}, {1}}, {{}, {1}, {}}, {{}, make([]byte, 8), {}, {}}, {{}, make([]byte, 8), []byte("no batch")}} {
					_ = k.send(m...)
				}
				time.Sleep(20 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wait sync.WaitGroup
			served := make(chan struct{}, 100)
			wait.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					engine(c)
					c.Close()
					served <- struct{}{}
				}
			})
			s, err := NewSubscriber(SubscriberConfig{Endpoint: address(l), Retry: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			wait.Go(func() {
				s.Run(ctx, func(u Update) {
					if u.Batch != nil {
						t.Errorf("a batch came of it: %+v", u.Batch)
					}
				})
			})
			for range 2 { // it comes again
				select {
				case <-served:
				case <-time.After(time.Minute):
					t.Error("the subscriber did not come again")
				}
			}
			cancel()
			l.Close()
			wait.Wait()
		})
	}
}

// Peers of a publisher that ask for what nobody should.
func TestHostileSubscribers(t *testing.T) {
	x := start(t, loopback, SubscriberConfig{Replay: "yes"})
	bad, err := dial(t.Context(), x.pub.Addr(), zmq4.Sub)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if bad.send([]byte(fmt.Sprintf("\x01topic%d", i))) != nil {
			break
		}
	}
	asks, err := dial(t.Context(), x.pub.ReplayAddr(), zmq4.Dealer)
	if err != nil {
		t.Fatal(err)
	}
	if err := asks.send(nil, []byte("seven")); err != nil {
		t.Fatal(err)
	}
	if _, err := asks.receive(); err == nil {
		t.Error("a request of five bytes was answered")
	}
	asks.close()
	bad.close()
	x.store()
	x.agree()
}

func TestEndpoints(t *testing.T) {
	for _, e := range []string{"", "tcp://", "tcp://host", "http://host:1", "ipc://", "inproc://x", "tcp://a:b:c"} {
		if _, err := NewSubscriber(SubscriberConfig{Endpoint: e}); err == nil {
			t.Errorf("a subscriber took %q", e)
		}
		if _, err := NewSubscriber(SubscriberConfig{Endpoint: "tcp://127.0.0.1:1", Replay: e}); err == nil && e != "" {
			t.Errorf("a subscriber took replay %q", e)
		}
		if p, err := NewPublisher(PublisherConfig{Endpoint: e}); err == nil {
			t.Errorf("a publisher took %q", e)
			p.Close()
		}
	}
	for e, binds := range map[string]bool{"tcp://*:5557": true, "tcp://[::]:5557": true, "ipc:///tmp/x": true, "tcp://10.0.0.1:5557": false} {
		if EngineBinds(e) != binds {
			t.Errorf("an engine with endpoint %s binds: %v", e, !binds)
		}
	}
}

// Whoever has forgotten what an engine holds can learn it again.
func TestResync(t *testing.T) {
	for name, pub := range map[string]PublisherConfig{"the subscriber connects": loopback, "the engine connects": {Connect: true, Replay: "tcp://127.0.0.1:0"}} {
		t.Run(name, func(t *testing.T) {
			sub := SubscriberConfig{Replay: "yes"}
			if pub.Connect {
				sub = SubscriberConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true}
			}
			x := start(t, pub, sub)
			x.store()
			x.agree()
			x.mirror.mu.Lock()
			clear(x.mirror.holds)
			x.mirror.mu.Unlock()
			x.sub.Resync()
			x.until("the next connection", func() bool { return x.sub.Stats().Connects == 2 && x.pub.Subscribers() == 1 })
			if pub.Connect { // there is no replay: what comes from now on
				clear(x.holds)
			}
			x.store()
			x.agree()
			if s := x.sub.Stats(); s.Resets != 1 {
				t.Errorf("%+v, expected a reset", s)
			}
		})
	}
}
