package kvevents

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// MaxMessageBytes bounds a message of a peer, all its frames together.
const MaxMessageBytes = 64 << 20

// handshakeTimeout bounds the time in which a peer must say who it is.
const handshakeTimeout = 5 * time.Second

// ErrTooLong is a message with more than MaxMessageBytes bytes. The connection is closed.
var ErrTooLong = fmt.Errorf("KV events: a message of more than %d bytes", MaxMessageBytes)

// split says in which way the endpoint of a ZMQ socket is reached: tcp://host:port or ipc:///path. A * stands for all
// addresses.
func split(endpoint string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(endpoint, "ipc://"); ok && path != "" {
		return "unix", path, nil
	}
	host, ok := strings.CutPrefix(endpoint, "tcp://")
	if _, _, err := net.SplitHostPort(host); !ok || err != nil {
		return "", "", fmt.Errorf("KV events: endpoint %q, expected tcp://host:port or ipc:///path", endpoint)
	}
	return "tcp", strings.Replace(host, "*", "", 1), nil
}

// ValidAddress says whether endpoint is one that can be reached or waited at.
func ValidAddress(endpoint string) bool {
	_, _, err := split(endpoint)
	return err == nil
}

// EngineBinds says whether a vLLM engine that is configured with endpoint waits for subscribers there, or connects to one.
func EngineBinds(endpoint string) bool {
	return strings.Contains(endpoint, "*") || strings.Contains(endpoint, "::") || strings.HasPrefix(endpoint, "ipc://")
}

func listen(endpoint string) (net.Listener, error) {
	network, address, err := split(endpoint)
	if err != nil {
		return nil, err
	}
	return net.Listen(network, address)
}

// dial connects to a peer of the given type and shakes hands.
func dial(ctx context.Context, endpoint string, as zmq4.SocketType) (*conn, error) {
	network, address, err := split(endpoint)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: handshakeTimeout}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return open(ctx, c, as, false)
}

// conn is a connection to a peer. One goroutine may receive and one may send.
type conn struct {
	wire *wire
	zmtp *zmq4.Conn
}

// open shakes hands over c, which it closes on an error or when ctx ends meanwhile. The library's reader of a peer's
// properties can panic on what the peer says; that is the peer's fault.
func open(ctx context.Context, c net.Conn, as zmq4.SocketType, server bool) (k *conn, err error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("KV events: a handshake that cannot be read: %v", p)
		}
		if err != nil {
			c.Close()
			k = nil
		}
	}()
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	w := &wire{Conn: c, in: bufio.NewReaderSize(c, 1<<16), out: bufio.NewWriterSize(c, 1<<16), shaking: true, skip: 64}
	z, err := zmq4.Open(w, null.Security(), as, nil, server, nil)
	if err != nil {
		return nil, err
	}
	w.shaking = false
	if err := errors.Join(w.out.Flush(), c.SetDeadline(time.Time{})); err != nil {
		return nil, err
	}
	return &conn{w, z}, nil
}

// receive returns the frames of the next message; commands are passed over.
func (k *conn) receive() ([][]byte, error) {
	for {
		m, err := k.zmtp.RecvMsg()
		if err != nil {
			return nil, err
		}
		if m.Type != zmq4.CmdMsg {
			return m.Frames, nil
		}
	}
}

// send sends one message.
func (k *conn) send(frames ...[]byte) error {
	if err := k.zmtp.SendMsg(zmq4.NewMsgFrom(frames...)); err != nil {
		return err
	}
	return k.wire.out.Flush()
}

func (k *conn) close() { k.wire.Conn.Close() }

// wire is a connection that follows the frames it carries (ZMTP 3) and refuses a message that is too long before anybody
// makes room for it. Reads and writes are buffered.
type wire struct {
	net.Conn
	in      *bufio.Reader
	out     *bufio.Writer
	shaking bool // what is written is sent before anything is read

	skip    uint64 // bytes until the next frame
	head    [9]byte
	headLen int
	message uint64 // bytes of the message so far
}

func (w *wire) Read(p []byte) (int, error) {
	if w.shaking {
		if err := w.out.Flush(); err != nil {
			return 0, err
		}
	}
	n, err := w.in.Read(p)
	if over := w.follow(p[:n]); over != nil {
		return 0, over
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) { return w.out.Write(p) }

// The flags of a frame.
const (
	frameMore = 1
	frameLong = 2
)

func (w *wire) follow(p []byte) error {
	for len(p) > 0 {
		if w.skip > 0 {
			n := min(w.skip, uint64(len(p)))
			w.skip -= n
			p = p[n:]
			continue
		}
		w.head[w.headLen] = p[0]
		w.headLen++
		p = p[1:]
		long := w.head[0]&frameLong != 0
		if long && w.headLen < 9 || w.headLen < 2 {
			continue
		}
		size := uint64(0)
		for _, c := range w.head[1:w.headLen] {
			size = size<<8 | uint64(c)
		}
		w.headLen, w.skip = 0, size
		if size > MaxMessageBytes {
			return ErrTooLong
		}
		if w.message += size + 64; w.message > MaxMessageBytes { // a frame takes memory even if it is empty
			return ErrTooLong
		}
		if w.head[0]&frameMore == 0 {
			w.message = 0
		}
	}
	return nil
}
