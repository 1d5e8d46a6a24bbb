// Package memnet is a network in memory for tests. Unlike sockets, its connections are something that a synctest bubble can
// wait for, so tests of servers, timeouts and failures run in virtual time and do not depend on how busy the machine is.
package memnet

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// Network connects who dials with who listens. The zero value is one where nobody listens.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*Listener
}

// addr is an address with a port, as URLs have it.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// Listen listens on an address, "host:port". It panics if somebody does already.
func (n *Network) Listen(address string) *Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		panic("memnet: somebody listens on " + address)
	}
	if n.listeners == nil {
		n.listeners = map[string]*Listener{}
	}
	l := &Listener{network: n, address: addr(address), conns: make(chan net.Conn), done: make(chan struct{}), open: map[*conn]bool{}}
	n.listeners[address] = l
	return l
}

// Dial connects to an address. Where nobody listens its error is the one that TCP gives.
func (n *Network) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: addr(address), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, refused
	}
	client, server := net.Pipe()
	c := &conn{Conn: server, listener: l}
	select {
	case l.conns <- c:
		return client, nil
	case <-l.done:
		return nil, refused
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: addr(address), Err: ctx.Err()}
	}
}

// Listener accepts connections.
type Listener struct {
	network *Network
	address addr
	conns   chan net.Conn
	done    chan struct{}
	once    sync.Once
	dead    atomic.Bool

	mu   sync.Mutex
	open map[*conn]bool
}

// Accept waits for who dials.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		l.mu.Lock()
		l.open[c.(*conn)] = true
		l.mu.Unlock()
		return c, nil
	case <-l.done:
		return nil, fmt.Errorf("accept %s: %w", l.address, net.ErrClosed)
	}
}

// Close ends listening. Connections stay.
func (l *Listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, string(l.address))
		l.network.mu.Unlock()
		close(l.done)
	})
	return nil
}

// Addr is the address that is listened on.
func (l *Listener) Addr() net.Addr { return l.address }

// Kill does what the end of a process does: from one moment on nobody listens and nothing comes over any connection, and all
// of them break. Closing them one after the other instead would let a client that saw the first one break be answered over
// the next.
func (l *Listener) Kill() {
	l.dead.Store(true)
	_ = l.Close() // it has no errors
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Conn.Close() // of a pipe; it has no errors
	}
	clear(l.open)
}

// conn is the end of a connection that was accepted.
type conn struct {
	net.Conn
	listener *Listener
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.listener.dead.Load() {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if c.listener.dead.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
