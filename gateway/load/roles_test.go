package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-sim/sluice/gateway"
)

// roleVariable makes this test's program one of the processes of a measurement instead: what a process costs can be told
// only from outside the others.
const roleVariable = "SLUICE_LOAD_ROLE"

// part is what a process is told at its start.
type part struct {
	Pace    pace
	Engines []string // addresses of the engines
	Config  string   // of the gateway
	Count   int      // engines to be
}

// state is what a process says of itself.
type state struct {
	URLs       []string `json:",omitempty"`
	CPU        time.Duration
	Peak, Heap int64          // bytes: largest resident memory, and what the heap holds after a collection
	Goroutines int            // without those of this conversation
	Audit      *gateway.Audit `json:",omitempty"`
	Imbalance  int64
	Stalls     []stall `json:",omitempty"`
	Problem    string  // in the last state: what was left, "" for nothing
}

// play is a process: it serves, answers each line with its state, and ends with "stop" or its parent.
func play(role string) int {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	var p part
	if !in.Scan() || json.Unmarshal(in.Bytes(), &p) != nil {
		return 1
	}
	if role == "watch" {
		return watch(in, out)
	}
	urls, audit, stop, err := p.begin(role)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	say := func(problem error) bool {
		s := stateNow()
		s.URLs = urls
		if audit != nil {
			a := audit()
			s.Audit, s.Imbalance = &a, a.Imbalance()
		}
		if problem != nil {
			s.Problem = problem.Error()
		}
		return out.Encode(s) == nil
	}
	for said := say(nil); said && in.Scan() && in.Text() != "stop"; said = say(nil) {
	}
	problem := stop()
	if left := goleak.Find(); left != nil {
		problem = errors.Join(problem, left)
	}
	say(problem)
	return 0
}

// watch does nothing but look for stalls.
func watch(in *bufio.Scanner, out *json.Encoder) int {
	w := watchStalls()
	defer w.close()
	for said := out.Encode(state{}) == nil; said && in.Scan() && in.Text() != "stop"; {
		said = out.Encode(state{Stalls: w.stalls()}) == nil
	}
	_ = out.Encode(state{Stalls: w.stalls()}) // the parent may be gone
	return 0
}

// peakMemory is the largest resident memory; getrusage would count that of the parent.
func peakMemory() int64 {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

func stateNow() state {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return state{
		CPU: time.Duration(u.Utime.Nano() + u.Stime.Nano()), Peak: peakMemory(), Heap: int64(m.HeapAlloc + m.StackInuse), Goroutines: runtime.NumGoroutine(),
	}
}

func (p *part) begin(role string) (urls []string, audit func() gateway.Audit, stop func() error, err error) {
	switch role {
	case "engines":
		var stops []func()
		for range p.Count {
			u, stop, err := serve(stub{p.Pace}.handler())
			if err != nil {
				return nil, nil, nil, err
			}
			urls, stops = append(urls, u), append(stops, stop)
		}
		return urls, nil, func() error {
			for _, f := range stops {
				f()
			}
			return nil
		}, nil
	case "proxy":
		h, idle, err := plainProxy(p.Engines)
		if err != nil {
			return nil, nil, nil, err
		}
		u, stop, err := serve(h)
		return []string{u}, nil, func() error { stop(); idle(); return nil }, err
	case "gateway":
		return p.beginGateway()
	}
	return nil, nil, nil, fmt.Errorf("%s=%q: no such role", roleVariable, role)
}

func (p *part) beginGateway() (urls []string, audit func() gateway.Audit, stop func() error, err error) {
	cfg, err := gateway.ParseConfig("load", []byte(p.Config))
	if err != nil {
		return nil, nil, nil, err
	}
	g, err := gateway.New(cfg, gateway.Options{Version: "load"})
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- g.Serve(ctx, func(api, _ net.Addr) { ready <- api }) }()
	select {
	case err := <-done:
		cancel()
		return nil, nil, nil, err
	case addr := <-ready:
		return []string{"http://" + addr.String()}, g.Driver().Audit, func() error { cancel(); return <-done }, nil
	}
}

// plainProxy is what the gateway would be without sessions, policy and ledger: the same reverse proxy and transport, each
// request to the next engine.
func plainProxy(engines []string) (h http.Handler, idle func(), err error) {
	to := make([]*url.URL, len(engines))
	for i, e := range engines {
		if to[i], err = url.Parse(e); err != nil {
			return nil, nil, err
		}
	}
	transport := &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 30 * time.Second, WriteBufferSize: 32 << 10, ReadBufferSize: 16 << 10,
	}
	var next atomic.Uint64
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to[next.Add(1)%uint64(len(to))])
			p.SetXForwarded()
		},
	}, transport.CloseIdleConnections, nil
}

// process is one that plays a role.
type process struct {
	t   testing.TB
	in  io.WriteCloser
	out *json.Decoder
	cmd *exec.Cmd
}

// launch starts a process and returns what it said when it was ready.
func launch(t testing.TB, role string, p part) (*process, state) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), roleVariable+"="+role)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	check(t, err)
	out, err := c.StdoutPipe()
	check(t, err)
	check(t, c.Start())
	x := &process{t, in, json.NewDecoder(out), c}
	t.Cleanup(func() { in.Close(); _ = c.Wait() }) // if it has not ended
	check(t, json.NewEncoder(in).Encode(p))
	return x, x.heard()
}

func (x *process) heard() (s state) {
	x.t.Helper()
	check(x.t, x.out.Decode(&s))
	return s
}

func (x *process) state() state {
	x.t.Helper()
	_, err := io.Copy(x.in, strings.NewReader("?\n"))
	check(x.t, err)
	return x.heard()
}

// end stops the process. Nothing may be left in it.
func (x *process) end() state {
	x.t.Helper()
	_, err := io.Copy(x.in, strings.NewReader("stop\n"))
	check(x.t, err)
	s := x.heard()
	check(x.t, x.cmd.Wait())
	if s.Problem != "" {
		x.t.Error(s.Problem)
	}
	return s
}
