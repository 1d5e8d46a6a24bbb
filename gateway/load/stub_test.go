package load

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// pace is when the tokens of an answer come, from the moment at which the engine has the request.
type pace struct {
	First  time.Duration // the first token
	Every  time.Duration // each of the following
	Tokens int
}

func (p pace) length() time.Duration { return p.First + time.Duration(p.Tokens-1)*p.Every }

// Headers and fields by which the time that a turn spends between client and engine is measured, in nanoseconds of the
// machine's clock. What engine and client do themselves is no part of it.
const (
	hereHeader = "X-Load-Here" // when the engine had the whole request
	sentField  = `"sent":`     // when the engine wrote the event
)

// stub is an engine that does nothing: what it costs is the HTTP.
type stub struct{ pace pace }

// handler serves what a gateway asks an engine for.
func (s stub) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.chat)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"0\"} 0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.1\n")
	})
	return mux
}

func (s stub) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	here := time.Now()
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set(hereHeader, strconv.FormatInt(here.UnixNano(), 10))
	flush := http.NewResponseController(w)
	wait := time.NewTimer(s.pace.First)
	defer wait.Stop()
	var event []byte
	for i := range s.pace.Tokens {
		select {
		case <-wait.C:
		case <-r.Context().Done():
			return
		}
		event = fmt.Appendf(event[:0], "data: {\"id\":\"x\",\"choices\":[{\"delta\":{\"content\":\"word\"}}],%s%d}\n\n", sentField, time.Now().UnixNano())
		if i == s.pace.Tokens-1 {
			if bytes.Contains(body, []byte(`"include_usage":true`)) {
				event = fmt.Appendf(event, "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\n", len(body)/4, s.pace.Tokens)
			}
			event = append(event, "data: [DONE]\n\n"...)
		}
		if _, err := w.Write(event); err != nil || flush.Flush() != nil {
			return
		}
		wait.Reset(time.Until(here.Add(s.pace.First + time.Duration(i+1)*s.pace.Every)))
	}
}

// serve serves a handler on a free port of the loopback interface until stop.
func serve(h http.Handler) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Close
	}()
	return "http://" + l.Addr().String(), func() { _ = s.Close(); <-done }, nil
}
