package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestDialing(t *testing.T) {
	Bubble(t, func(t *testing.T) {
		var n Network
		refused := func(when string) {
			t.Helper()
			var op *net.OpError
			if _, err := n.Dial(t.Context(), "tcp", "a:80"); !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Op != "dial" {
				t.Errorf("%s: %v", when, err)
			}
		}
		refused("nobody listens")
		l := n.Listen("a:80")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "tcp", "a:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody accepts: %v", err)
		}
		got := make(chan error)
		go func() {
			c, err := l.Accept()
			if err == nil {
				_, err = io.Copy(c, c) // what comes goes back
				_ = c.Close()
			}
			got <- err
		}()
		c, err := n.Dial(t.Context(), "tcp", "a:80")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		refused("closed")
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("a connection does not outlive its listener: %v", err)
		}
		if n, err := io.ReadFull(c, make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("%d bytes came back, %v", n, err)
		}
		_ = c.Close()
		if err := <-got; err != nil {
			t.Error(err)
		}
		n.Listen("a:80").Close() // the address is free again
	})
}

// TestKill: who is connected gets nothing any more, even in the moment before his connection breaks, and then it breaks.
func TestKill(t *testing.T) {
	Bubble(t, func(t *testing.T) {
		var n Network
		l := n.Listen("a:80")
		s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hang" {
				<-r.Context().Done()
			}
		})}
		served := make(chan error)
		go func() { served <- s.Serve(l) }()
		to := &http.Transport{DialContext: n.Dial}
		get := func(path string) error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a"+path, nil)
			if err != nil {
				return err
			}
			resp, err := to.RoundTrip(req)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		broke := make(chan error)
		go func() { broke <- get("/hang") }()
		synctest.Wait()
		if err := get("/"); err != nil { // over a second connection, which idles then
			t.Error(err)
		}
		synctest.Wait()
		l.dead.Store(true)
		_ = l.Close()
		if err := get("/"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("over the connection that is there still, and then over a new one: %v", err)
		}
		l.Kill()
		if err := <-broke; !errors.Is(err, io.EOF) {
			t.Errorf("the first connection: %v", err)
		}
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		to.CloseIdleConnections()
		_ = s.Close()
	})
}
