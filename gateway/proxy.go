package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/gateway/identity"
	"github.com/sluice-sim/sluice/gateway/sse"
)

// apis are the paths that pass through.
var apis = map[string]sse.API{
	"/v1/chat/completions": sse.Chat, "/v1/completions": sse.Completions, "/v1/responses": sse.Responses, "/v1/messages": sse.Messages,
}

// serveAPI serves one request of an API that passes through.
func (g *Gateway) serveAPI(api sse.API) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer g.running.Add(-1)
		if n := g.running.Add(1); g.stopping.Load() {
			g.refuse(w, r, api, g.draining())
			return
		} else if n > g.cfg.Limits.Running {
			g.refuse(w, r, api, tooMany("too_many_requests", "as many requests are under way as may be", seconds(g.cfg.Limits.RetryAfterS)))
			return
		}
		raw, refused := g.readBody(w, r)
		if refused != nil {
			g.refuse(w, r, api, refused)
			return
		}
		defer g.bodies.Add(-int64(len(raw)))
		f, raw, refused := g.read(r, api, raw)
		if refused != nil {
			g.refuse(w, r, api, refused)
			return
		}
		g.flights.Store(f, nil)
		defer g.flights.Delete(f)
		defer f.release()
		if refused = f.enter(); refused == nil {
			refused = f.await()
		}
		if refused != nil {
			g.refuse(w, r, api, refused)
			return
		}
		g.forward(w, r, f, raw)
	}
}

// draining is what a client is told while the gateway stops.
func (g *Gateway) draining() *refusal {
	return unavailable("draining", "the gateway is stopping; ask another one", seconds(g.cfg.Limits.RetryAfterS))
}

// refuse answers a request with an error of the gateway's own.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, api sse.API, why *refusal) {
	g.metrics.refused.WithLabelValues(why.reason).Inc()
	g.metrics.requests.WithLabelValues(r.URL.Path, strconv.Itoa(why.status)).Inc()
	if why.status == statusClientGone {
		panic(http.ErrAbortHandler) // nobody reads an answer
	}
	if g.stopping.Load() {
		w.Header().Set("Connection", "close")
	}
	why.write(w, api)
}

// read finds out what a request is: whose, and which prompt. It returns the body to send on.
func (g *Gateway) read(r *http.Request, api sse.API, raw []byte) (*flight, []byte, *refusal) {
	parsed, err := identity.Parse(raw, identity.Limits{Bytes: g.cfg.Limits.BodyBytes})
	if err != nil {
		var b *identity.BodyError
		if errors.As(err, &b) && b.TooLarge {
			return nil, nil, &refusal{status: http.StatusRequestEntityTooLarge, reason: "body_too_large", message: err.Error()}
		}
		return nil, nil, badRequest("invalid_body", err.Error())
	}
	f := &flight{g: g, api: api, parsed: parsed}
	if f.id, err = g.rules.Of(r.Header, parsed); err != nil {
		return nil, nil, badRequest("invalid_session_id", err.Error())
	}
	if refused := f.label(r.Header); refused != nil {
		return nil, nil, refused
	}
	g.continueResponse(f)
	if id := requestID(r.Header); id != "" {
		body := g.digest(r.URL.Path, raw)
		f.requestKey = f.sessionKey() + "\x00" + id + "\x00" + string(body[:])
	}
	prompt, counted, err := g.identify(r.Context(), api, raw, parsed)
	if err != nil {
		return nil, nil, badRequest("invalid_prompt", err.Error())
	}
	f.chain, f.tokens, f.basis = prompt.chain, prompt.ids, content.Bytes
	if counted {
		f.basis = content.Tokens
	}
	if most := g.longestPrompt(); counted && most > 0 && int64(f.chain.Tokens) > most {
		return nil, nil, badRequest("prompt_too_long", "the prompt has "+strconv.Itoa(int(f.chain.Tokens))+" tokens, at most "+strconv.FormatInt(most, 10)+" fit")
	}
	if parsed.Stream && !parsed.IncludeUsage && !parsed.StreamOptions && (api == sse.Chat || api == sse.Completions) {
		raw, f.strip = askUsage(raw), true
	}
	f.parsed = &identity.Body{Model: parsed.Model, MaxTokens: parsed.MaxTokens} // the rest would keep the body a second time
	f.ctx, f.cancel = context.WithCancelCause(r.Context())
	return f, raw, nil
}

// errBodiesFull is a body for which there is no room now.
var errBodiesFull = errors.New("as many bytes of bodies are held as may be")

// meteredBody counts what is read for all bodies together.
type meteredBody struct {
	from io.Reader
	g    *Gateway
	n    int64
}

// Read implements io.Reader.
func (m *meteredBody) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.n += int64(n)
	if m.g.bodies.Add(int64(n)) > m.g.cfg.Limits.Bodies {
		return n, errBodiesFull
	}
	return n, err
}

// readBody reads a body. Its bytes are counted in g.bodies until the caller gives them back.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	limit := g.cfg.Limits.BodyBytes
	tooLarge := &refusal{status: http.StatusRequestEntityTooLarge, reason: "body_too_large", message: "at most " + strconv.FormatInt(limit, 10) + " bytes are taken"}
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	if encoded := r.Header.Get("Content-Encoding"); encoded != "" && encoded != "identity" {
		return nil, &refusal{status: http.StatusUnsupportedMediaType, reason: "encoded_body", message: "bodies must not be compressed"}
	}
	body := meteredBody{from: http.MaxBytesReader(w, r.Body, limit), g: g}
	raw, err := io.ReadAll(&body)
	if err == nil {
		return raw, nil
	}
	g.bodies.Add(-body.n)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case errors.Is(err, errBodiesFull):
		return nil, unavailable("bodies_full", errBodiesFull.Error(), seconds(g.cfg.Limits.RetryAfterS))
	}
	return nil, badRequest("incomplete_body", "the request's body did not come as announced")
}

// requestID is the client's own name of a request. With the same body it is a repetition; alone it may be that of a trace, which
// proxies give to all requests under it.
func requestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "X-Client-Request-Id", "Idempotency-Key"} {
		if v := h.Get(name); v != "" && len(v) <= identity.MaxKeyBytes {
			return v
		}
	}
	return ""
}

// continueResponse lets a request that continues a response belong to its session, unless the client named another.
func (g *Gateway) continueResponse(f *flight) {
	if f.parsed.PreviousResponseID == "" || f.id.Source != "" && f.id.Source != identity.FirstBlocks && f.id.Source != "body.user" {
		return
	}
	if id, ok := g.responses.get(g.digest("response", []byte(f.parsed.PreviousResponseID))); ok {
		final := f.id.Final
		f.id = id
		f.id.Source, f.id.Final = "body.previous_response_id", final
	}
}

// longestPrompt is the longest prompt that can ever be served, 0 if that is not known.
func (g *Gateway) longestPrompt() int64 {
	if n := g.cfg.Limits.PromptTokens; n > 0 {
		return n
	}
	most := int64(0)
	for _, c := range g.driver.cfg.Core.Capabilities {
		if c.KVTokens == 0 {
			return 0
		}
		most = max(most, c.KVTokens)
	}
	return most
}

// askUsage adds to a body that has no stream_options the one that asks for usage.
func askUsage(raw []byte) []byte {
	at := bytes.IndexByte(raw, '{') + 1
	rest := raw[at:]
	added := `"stream_options":{"include_usage":true}`
	if trimmed := bytes.TrimLeft(rest, " \t\r\n"); len(trimmed) > 0 && trimmed[0] != '}' {
		added += ","
	}
	out := make([]byte, 0, len(raw)+len(added))
	return append(append(append(out, raw[:at]...), added...), rest...)
}

// enter brings the request to the core: as a new turn, or as the next attempt of one that the client sent before and that
// has not ended.
func (f *flight) enter() *refusal {
	g, key := f.g, f.requestKey
	if key == "" {
		return f.arrive(nil, nil)
	}
	context.AfterFunc(f.ctx, func() {
		g.driver.Do(func(*Batch) {
			if g.byID[key] == f {
				delete(g.byID, key)
			}
		})
	})
	var former *flight
	refused := f.arrive(func() *Attempt {
		if former = g.byID[key]; former == nil {
			return nil
		}
		return former.attempt
	}, nil)
	if refused == nil && former != nil {
		former.cancel(errRepeated)
	}
	return refused
}

// errRepeated is a request that the client sent again.
var errRepeated = errors.New("the request was sent again")

// forward sends the request on to the engine that was chosen, and what that answers back.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, f *flight, raw []byte) {
	proxy := httputil.ReverseProxy{
		Transport: f, FlushInterval: -1, ErrorLog: g.quiet,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.ContentLength = int64(len(raw))
			p.Out.Body = io.NopCloser(bytes.NewReader(raw))
			p.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
			p.Out.TransferEncoding = nil
			p.Out.Header.Set("Accept-Encoding", "identity")
			p.SetXForwarded()
		},
		ModifyResponse: func(resp *http.Response) error {
			f.addHeaders(resp.Header)
			g.metrics.requests.WithLabelValues(r.URL.Path, strconv.Itoa(resp.StatusCode)).Inc()
			f.observe(resp)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { g.noAnswer(w, r, f, err) },
	}
	stop := context.AfterFunc(f.ctx, func() { // a client that does not read must not keep the request for ever
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
	})
	defer stop()
	proxy.ServeHTTP(w, r.WithContext(f.ctx))
}

// addHeaders says what was decided.
func (f *flight) addHeaders(h http.Header) {
	h.Set("X-Sluice-Replica", f.g.replicas[f.attempt.replica].cfg.Name)
	h.Set("X-Sluice-Queue-Ms", strconv.FormatFloat(float64(f.waited)/float64(time.Millisecond), 'f', 3, 64))
	h.Set("X-Sluice-Decision", strconv.FormatInt(f.verdict.Step, 10))
}

// noAnswer answers a client whose request got no answer of an engine.
func (g *Gateway) noAnswer(w http.ResponseWriter, r *http.Request, f *flight, err error) {
	var refused *refusal
	cause := context.Cause(f.ctx)
	switch {
	case errors.As(err, &refused):
	case errors.Is(cause, errRevoked):
		refused = &refusal{status: http.StatusGatewayTimeout, reason: "lease_expired", message: "the turn ran for as long as a turn may run, or its engine was restarted"}
	case errors.Is(cause, errDraining):
		refused = g.draining()
	case errors.Is(cause, errRepeated):
		refused = g.refusedByGate(Verdict{Kind: Stopped})
	case f.ctx.Err() != nil:
		refused = &refusal{status: statusClientGone, reason: "client_left"}
	default:
		refused = unavailable("upstream_failed", "the engine gave no answer", seconds(g.cfg.Limits.RetryAfterS))
		refused.status = http.StatusBadGateway
	}
	g.refuse(w, r, f.api, refused)
}

// quietLog drops what the reverse proxy logs; it may hold addresses and causes, which are logged elsewhere if at all.
func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }
