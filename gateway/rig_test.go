package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
)

// network is where rigs are, each at an address of its own.
var (
	network   memnet.Network
	addresses atomic.Int64
)

// serve serves at a new address of the network until the test ends.
func serve(t testing.TB, s *http.Server) (url string, l *memnet.Listener) {
	l = network.Listen(fmt.Sprintf("host%d:80", addresses.Add(1)))
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-served })
	return "http://" + l.Addr().String(), l
}

// stub is an engine that does what a test tells it.
type stub struct {
	URL      string
	listener *memnet.Listener
	mu       sync.Mutex
	serve    http.HandlerFunc // of the four APIs; nil for an answer of five tokens
	metrics  http.HandlerFunc // nil for an idle vLLM
	probe    http.HandlerFunc // of /probe; nil for 404
	sleeping bool
	unwell   bool
	late     time.Duration // of the health check

	requests  atomic.Int64
	cancelled chan time.Time // when a request's client was seen to be gone
	bodies    chan []byte
}

func newStub(t testing.TB) *stub {
	s := &stub{cancelled: make(chan time.Time, 1000), bodies: make(chan []byte, 1000)}
	mux := http.NewServeMux()
	for path := range apis {
		mux.HandleFunc("POST "+path, s.api)
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		late := s.late
		s.mu.Unlock()
		select {
		case <-time.After(late):
		case <-r.Context().Done():
		}
		if s.get(func() bool { return s.unwell }) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]bool{"is_sleeping": s.get(func() bool { return s.sleeping })})
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		h := s.metrics
		s.mu.Unlock()
		if h == nil {
			h = metricsOf(0, 0, 0, 100)
		}
		h(w, r)
	})
	mux.HandleFunc("POST /probe", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		h := s.probe
		s.mu.Unlock()
		if h == nil {
			h = http.NotFound
		}
		_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client is gone only once the body was read
		h(w, r)
	})
	s.URL, s.listener = serve(t, &http.Server{Handler: mux})
	return s
}

// die ends the engine as the end of its process would.
func (s *stub) die() { s.listener.Kill() }

func (s *stub) get(f func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

func (s *stub) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *stub) api(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	body, _ := io.ReadAll(r.Body)
	select {
	case s.bodies <- body:
	default:
	}
	defer func() {
		if r.Context().Err() != nil {
			select {
			case s.cancelled <- time.Now():
			default:
			}
		}
	}()
	s.mu.Lock()
	h := s.serve
	s.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if h == nil {
		h = fiveTokens
	}
	h(w, r)
}

// metricsOf are the metrics of an engine.
func metricsOf(running, waiting int, usage float64, queries int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "vllm:num_requests_running{engine=\"0\"} %d\nvllm:num_requests_waiting{engine=\"0\"} %d\nvllm:kv_cache_usage_perc{engine=\"0\"} %g\n", running, waiting, usage)
		fmt.Fprintf(w, "vllm:prefix_cache_queries_total{engine=\"0\"} %d\nvllm:prefix_cache_hits_total{engine=\"0\"} 0\n", queries)
	}
}

const usageText = `"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":3}}`

// fiveTokens answers with five tokens, streamed if that was asked for.
func fiveTokens(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Stream        bool `json:"stream"`
		StreamOptions struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.NewDecoder(r.Body).Decode(&b)
	if !b.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","choices":[{"message":{"content":"a b c d e"}}],`+usageText+`}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 5 {
		fmt.Fprintf(w, "data: {\"id\":\"x\",\"choices\":[{\"delta\":{\"content\":\"t%d\"}}]}\n\n", i)
		w.(http.Flusher).Flush()
	}
	if b.StreamOptions.Usage {
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[],"+usageText+"}\n\n")
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// hang answers nothing until the client is gone.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// oneTokenThenHang streams one token and then nothing.
func oneTokenThenHang(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"t\"}}]}\n\n")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// rig is a gateway in front of stubs.
type rig struct {
	t      testing.TB
	g      *Gateway
	url    string
	stubs  []*stub
	client *http.Client
	log    *lockedBuffer
	close  func()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newRig is a gateway with short periods in front of n stubs. When the test ends no lease may live, and the decision log
// must replay.
func newRig(t testing.TB, n int, policy string, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, log: &lockedBuffer{}}
	source := "replicas:\n"
	for i := range n {
		s := newStub(t)
		r.stubs = append(r.stubs, s)
		source += fmt.Sprintf("  - {name: r%d, url: %q, kv_tokens: 100000, block_tokens: 16}\n", i, s.URL)
	}
	source += "health: {period_s: 0.02, timeout_s: 0.5}\nsignals: {scrape_s: 0.02, scrape_timeout_s: 0.2, stale_after_s: 0.2}\n" + policy
	c, err := ParseConfig("test", []byte(source))
	check(t, err)
	if change != nil {
		change(c)
	}
	if c.Log.Path == "" {
		c.Log.Path = t.TempDir() + "/decisions.jsonl"
	}
	r.g, err = New(c, Options{Version: "test", Log: slog.New(slog.NewTextHandler(r.log, nil)), Dial: network.Dial})
	check(t, err)
	r.g.Start()
	h := r.g.server(r.g.Handler())
	r.url, _ = serve(t, h)
	r.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: network.Dial, MaxIdleConnsPerHost: 100}}
	r.close = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.g.Stop(ctx)
		r.client.CloseIdleConnections()
		_ = h.Close()
		check(t, r.g.Close())
		if a := r.g.driver.Audit(); a.Imbalance() != 0 || a.Live != 0 || a.Waiting != 0 {
			t.Errorf("accounts at the end: %+v", a)
		}
		r.replay()
	})
	t.Cleanup(r.close)
	return r
}

// replay has the core repeat what the gateway decided.
func (r *rig) replay() {
	r.t.Helper()
	if _, err := decisionlog.Replay(fileLines(r.t, r.g.cfg.Log.Path)); err != nil {
		r.t.Errorf("the decision log does not replay: %v", err)
	}
}

// request is one that a client makes.
type request struct {
	path    string // of chat if empty
	session string
	id      string
	body    string // of chat if empty
	stream  bool
	header  http.Header
}

func (r *rig) do(ctx context.Context, q request) (*http.Response, error) {
	if q.path == "" {
		q.path = "/v1/chat/completions"
	}
	if q.body == "" {
		q.body = fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"a question of %s"}],"stream":%v}`, q.session, q.stream)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+q.path, strings.NewReader(q.body))
	check(r.t, err)
	if q.session != "" {
		req.Header.Set("X-Session-ID", q.session)
	}
	if q.id != "" {
		req.Header.Set("X-Request-ID", q.id)
	}
	for k, v := range q.header {
		req.Header[k] = v
	}
	return r.client.Do(req)
}

// got is an answer, read to its end.
type got struct {
	status  int
	header  http.Header
	body    string
	err     error
	replica string
	reason  string
}

func (r *rig) send(q request) got { return r.sendUntil(context.Background(), q) }

func (r *rig) sendUntil(ctx context.Context, q request) got {
	resp, err := r.do(ctx, q)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, resp.Header, string(body), err, resp.Header.Get("X-Sluice-Replica"), resp.Header.Get("X-Sluice-Reason")}
}

// sendOK sends and requires an answer of an engine.
func (r *rig) sendOK(q request) got {
	r.t.Helper()
	x := r.send(q)
	if x.err != nil || x.status != http.StatusOK {
		r.t.Fatalf("status %d, %v: %s", x.status, x.err, x.body)
	}
	return x
}

// until waits for something to become true.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for start := time.Now(); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func (r *rig) audit() Audit { return r.g.driver.Audit() }

// settled waits until no turn waits or runs, and returns the accounts.
func (r *rig) settled() Audit {
	r.t.Helper()
	until(r.t, "all leases released", func() bool { a := r.audit(); return a.Live == 0 && a.Waiting == 0 })
	return balanced(r.t, r.g.driver)
}

func (r *rig) state(name string) replicaState {
	for _, s := range r.g.replicaStates() {
		if s.Name == name {
			return s
		}
	}
	r.t.Fatalf("no replica %s", name)
	return replicaState{}
}

func (r *rig) untilState(name, state string) {
	r.t.Helper()
	until(r.t, name+" "+state, func() bool { return r.state(name).State == state })
}

// chainOf is the chain of a prompt of n tokens.
func chainOf(t testing.TB, g *Gateway, n int) content.Chain {
	t.Helper()
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	c, err := g.hasher.Tokens(content.Chain{}, "m", ids)
	check(t, err)
	return c
}

// knows is how much of a prompt of 80 tokens the core takes to be resident on a replica.
func (r *rig) knows(replica policies.ReplicaID) (hit int32) {
	r.g.driver.Do(func(b *Batch) {
		p, err := r.g.table.Place(chainOf(r.t, r.g, 80))
		check(r.t, err)
		hit, _ = b.View().HitTokens(replica, p)
		r.g.table.Drop(p.Stream)
	})
	return hit
}
