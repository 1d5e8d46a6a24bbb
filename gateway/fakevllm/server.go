package fakevllm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/model/latency"
)

// Server is a fake vLLM server. It is an http.Handler; whoever serves it owns the listener.
type Server struct {
	cfg     Config
	law     *latency.Law
	clock   clock
	created int64 // Unix time
	mux     *http.ServeMux

	mu     sync.Mutex
	core   *core
	meter  *meter
	faults Faults
	closed bool
	gone   chan struct{} // closed by Close

	publisher *kvevents.Publisher // nil for none

	load     atomic.Int64 // requests for tokens under way
	requests atomic.Int64 // in all
	answers  answerStore
}

// New starts a server. The configuration's remaining fields are filled in; an error says which one is out of range.
func New(cfg Config) (*Server, error) {
	if err := cfg.finish(); err != nil {
		return nil, err
	}
	law, err := latency.New(cfg.Setup)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Server{cfg: cfg, law: law, clock: clock{start: now, speed: cfg.Speed}, created: now.Unix(), mux: http.NewServeMux(), gone: make(chan struct{})}
	if cfg.KVEvents != nil {
		if s.publisher, err = kvevents.NewPublisher(*cfg.KVEvents); err != nil {
			return nil, fmt.Errorf("KV events: %w", err)
		}
		s.cfg.publish = func(list []kvevents.Event) {
			s.publisher.Publish(&kvevents.Batch{Seconds: float64(time.Now().UnixNano()) / 1e9, Events: list})
		}
	}
	s.start()
	s.routes()
	return s, nil
}

// Config is the configuration with everything filled in.
func (s *Server) Config() Config { return s.cfg }

// start begins with an empty cache and counters at zero.
func (s *Server) start() {
	s.meter = newMeter(&s.cfg, s.gauges)
	s.core = newCore(&s.cfg, s.law, s.clock, s.meter)
	s.core.factor = s.faults.factor()
}

// engine is the core of now; Restart replaces it.
func (s *Server) engine() *core {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core
}

func (s *Server) gauges() gauges {
	c := s.engine()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gauges
}

// Close ends the engine; requests under way lose their connection. Shut the HTTP server down first to let them finish.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.gone)
	}
	c := s.core
	s.mu.Unlock()
	c.stop()
	if s.publisher != nil {
		_ = s.publisher.Close()
	}
}

// Restart is what a crash and a new start of the process look like: connections are cut, the cache is empty, counters
// start at zero.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.core.stop()
	if s.publisher != nil {
		s.publisher.Restart()
	}
	s.answers.clear()
	s.start()
}

func (s *Server) routes() {
	s.post("/v1/chat/completions", s.chat)
	s.post("/v1/completions", s.completion)
	s.post("/v1/responses", s.responses)
	s.post("/v1/messages", s.messages)
	s.post("/v1/messages/count_tokens", s.countTokens)
	s.post("/tokenize", s.tokenize)
	s.post("/detokenize", s.detokenize)
	if s.cfg.Render {
		s.post("/v1/chat/completions/render", s.renderChat)
		s.post("/v1/completions/render", s.renderCompletion)
	}
	if s.cfg.Resident {
		s.post("/sluice/resident", s.resident)
	}
	if s.cfg.AllowFaults {
		s.post("/fault", s.setFaults)
		s.mux.HandleFunc("GET /fault", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Faults()) })
	}
	s.post("/reset_prefix_cache", s.resetPrefixCache)
	s.post("/sleep", s.sleep)
	s.post("/wake_up", s.wakeUp)
	s.mux.HandleFunc("GET /is_sleeping", s.isSleeping)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /health", s.health)
	s.mux.HandleFunc("GET /ping", s.health)
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": "0.28.0+sluice"})
	})
	s.mux.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]int64{"server_load": s.load.Load()})
	})
	s.mux.HandleFunc("GET /metrics", s.metrics)
}

func (s *Server) post(path string, h http.HandlerFunc) { s.mux.HandleFunc("POST "+path, h) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Faults().Down && r.URL.Path != "/fault" {
		panic(http.ErrAbortHandler)
	}
	s.mux.ServeHTTP(w, r)
}

// problem is an answer that is an error, in the form of vLLM's.
type problem struct {
	status  int
	kind    string
	message string
	param   string
}

func badRequest(param, format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, kind: "BadRequestError", message: fmt.Sprintf(format, args...), param: param}
}

func unavailable(message string) *problem {
	return &problem{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", message: message}
}

func (p *problem) write(w http.ResponseWriter) {
	var param any
	if p.param != "" {
		param = p.param
	}
	writeJSON(w, p.status, map[string]any{"error": map[string]any{"message": p.message, "type": p.kind, "param": param, "code": p.status}})
}

// writeAnthropic is the error in the form of the Messages API.
func (p *problem) writeAnthropic(w http.ResponseWriter) {
	kind := map[int]string{400: "invalid_request_error", 404: "not_found_error", 413: "request_too_large"}[p.status]
	if kind == "" {
		kind = "api_error"
	}
	writeJSON(w, p.status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": p.message}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// read decodes the body of a request.
func (s *Server) read(w http.ResponseWriter, r *http.Request, into any) *problem {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes))
	if err != nil {
		return &problem{status: http.StatusRequestEntityTooLarge, kind: "BadRequestError", message: fmt.Sprintf("the body is longer than %d bytes, or broke off", s.cfg.MaxBodyBytes)}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return badRequest("", "the body is not the JSON of this endpoint: %v", err)
	}
	return nil
}

// knows tells whether a request is for this server's model. No name is.
func (s *Server) knows(model string) *problem {
	if model == "" || model == s.cfg.Name {
		return nil
	}
	for _, a := range s.cfg.Alias {
		if a == model {
			return nil
		}
	}
	return &problem{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("there is no model %q here, only %q", model, s.cfg.Name), param: "model"}
}

// limits are what a request says of the length of its answer. Missing is nil.
type limits struct {
	max       *int64
	maxName   string
	min       *int64
	ignoreEOS bool
	seed      *int64
	salt      string
	priority  int64
}

// plan checks a prompt against the limits of the request and the model.
func (s *Server) plan(prompt []uint32, l limits, fallback int64) (work, *problem) {
	longest := int64(s.cfg.Engine.MaxModelLen)
	n := int64(len(prompt))
	switch {
	case n == 0:
		return work{}, badRequest("prompt", "the prompt has no tokens")
	case n >= longest:
		return work{}, badRequest("input_tokens", "the prompt has %d tokens, and the model's maximum context length is %d tokens, output included; shorten it", n, longest)
	}
	room := longest - n
	most := min(room, fallback)
	if l.max != nil {
		most = *l.max
	}
	switch {
	case most < 1:
		return work{}, badRequest(l.maxName, "%s is %d; it must be at least 1", l.maxName, most)
	case most > room:
		return work{}, badRequest(l.maxName, "%s is %d, but behind a prompt of %d tokens the model's maximum context length of %d tokens leaves %d", l.maxName, most, n, longest, room)
	}
	w := work{prompt: prompt, maxTokens: int32(most), ignoreEOS: l.ignoreEOS, salt: l.salt}
	if l.min != nil {
		if *l.min < 0 || *l.min > most {
			return work{}, badRequest("min_tokens", "min_tokens is %d; it must be between 0 and the maximum, %d", *l.min, most)
		}
		w.minTokens = int32(*l.min)
	}
	if l.seed != nil {
		w.seed = uint64(*l.seed)
	}
	w.priority = int32(max(math.MinInt32, min(math.MaxInt32, l.priority)))
	return w, nil
}

// run gives work to the engine and the answer to the client.
func (s *Server) run(w http.ResponseWriter, r *http.Request, work work, streams bool, d dialect) *problem {
	fault := s.takeFault()
	if fault.status != 0 {
		return &problem{status: fault.status, kind: "InternalServerError", message: "failed on demand"}
	}
	s.load.Add(1)
	defer s.load.Add(-1)
	q := newRequest(&s.cfg, work)
	q.id = s.requests.Add(1)
	c := s.engine()
	if !c.submit(q) {
		return unavailable("the engine has stopped")
	}
	defer c.abort(q) // does nothing if it has ended
	o := &output{server: s, core: c, request: q, dialect: d, answer: answer{
		id: s.requestID(r, q.id), created: time.Now().Unix(), model: s.cfg.Name, prompt: int32(len(work.prompt)), details: s.cfg.PromptDetails,
	}, dieAfter: fault.dieAfter}
	if streams {
		o.stream(r.Context(), w)
		return nil
	}
	return o.whole(r.Context(), w)
}

// requestID is what the answer's id is made of: the client's own, or a number.
func (s *Server) requestID(r *http.Request, n int64) string {
	if id := r.Header.Get("X-Request-Id"); id != "" && len(id) <= 200 {
		return id
	}
	return fmt.Sprintf("%016x", mix(uint64(s.created)<<32+uint64(n)))
}

// pause lets engine time pass.
func (s *Server) pause(ctx context.Context, sec float64) {
	if sec <= 0 {
		return
	}
	t := time.NewTimer(time.Duration(sec / s.cfg.Speed * 1e9))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
