package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-sim/sluice/gateway/sse"
	"github.com/sluice-sim/sluice/policies"
)

// Handler serves the API and, unless they have an address of their own, the operations.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, api := range apis {
		mux.HandleFunc("POST "+path, g.serveAPI(api))
	}
	mux.HandleFunc("GET /v1/models", g.listModels)
	mux.HandleFunc("GET /health", g.health)
	if g.cfg.Operations == "" {
		g.operations(mux)
	}
	mux.HandleFunc("/", g.unknownPath)
	return mux
}

// OperationsHandler serves the operations alone.
func (g *Gateway) OperationsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", g.health)
	g.operations(mux)
	mux.HandleFunc("/", g.unknownPath)
	return mux
}

func (g *Gateway) operations(mux *http.ServeMux) {
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /decide", g.decide)
	mux.HandleFunc("POST /release", g.releaseLease)
	mux.HandleFunc("POST /finish_session", g.finishSession)
	mux.HandleFunc("GET /debug/state", g.debugState)
	mux.HandleFunc("GET /decisions", g.decisions)
	mux.HandleFunc("POST /replicas/{name}/drain", g.drainReplica(true))
	mux.HandleFunc("POST /replicas/{name}/resume", g.drainReplica(false))
}

func (g *Gateway) unknownPath(w http.ResponseWriter, _ *http.Request) {
	r := &refusal{status: http.StatusNotFound, reason: "unknown_path", message: "the gateway serves no such path with this method"}
	g.metrics.refused.WithLabelValues(r.reason).Inc()
	r.write(w, sse.Chat)
}

// server is an HTTP server with the gateway's limits.
func (g *Gateway) server(h http.Handler) *http.Server {
	l := &g.cfg.Limits
	return &http.Server{
		Handler: h, MaxHeaderBytes: int(l.HeaderBytes), ReadHeaderTimeout: seconds(l.BodyS), ReadTimeout: seconds(l.BodyS), IdleTimeout: 2 * time.Minute,
		ErrorLog: g.quiet,
	}
}

// Serve serves until ctx ends, then drains for at most drain_s, and closes the gateway. ready, if not nil, is told the
// addresses.
func (g *Gateway) Serve(ctx context.Context, ready func(api, operations net.Addr)) error {
	api, err := net.Listen("tcp", g.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	servers := []*http.Server{g.server(g.Handler())}
	listeners := []net.Listener{api}
	operations := api.Addr()
	if g.cfg.Operations != "" {
		l, err := net.Listen("tcp", g.cfg.Operations)
		if err != nil {
			api.Close()
			return fmt.Errorf("operations_listen: %w", err)
		}
		servers, listeners, operations = append(servers, g.server(g.OperationsHandler())), append(listeners, l), l.Addr()
	}
	g.Start()
	failed := make(chan error, len(servers))
	for i, s := range servers {
		go func() { failed <- s.Serve(listeners[i]) }()
	}
	if ready != nil {
		ready(api.Addr(), operations)
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	g.log.Info("draining", "for_s", g.cfg.DrainS)
	limit, cancel := context.WithTimeout(context.Background(), seconds(g.cfg.DrainS))
	defer cancel()
	g.Stop(limit)
	over, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(over) != nil {
			s.Close()
		}
	}
	if closed := g.Close(); err == nil {
		err = closed
	}
	return err
}

func (g *Gateway) listModels(w http.ResponseWriter, _ *http.Request) {
	list := []map[string]any{}
	for _, name := range g.modelNames() {
		list = append(list, map[string]any{"id": name, "object": "model", "created": 0, "owned_by": "sluice"})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

// health is 200 while turns can be served.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	up := 0
	g.driver.Do(func(b *Batch) { up = len(b.View().Up()) })
	switch {
	case g.driver.Err() != nil:
		writeJSON(w, http.StatusInternalServerError, map[string]any{"status": "core_failed"})
	case g.stopping.Load():
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "draining"})
	case up == 0:
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": policies.NoReplicaUp.String()})
	default:
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "replicas_up": up})
	}
}

// decisions is the last lines of the decision log.
func (g *Gateway) decisions(w http.ResponseWriter, r *http.Request) {
	n := int(g.cfg.Log.Tail)
	if q := r.URL.Query().Get("n"); q != "" {
		x, err := strconv.Atoi(q)
		if err != nil || x < 1 {
			g.refuse(w, r, sse.Chat, badRequest("invalid_n", "n: expected a number of lines"))
			return
		}
		n = min(n, x)
	}
	w.Header().Set("Content-Type", "application/jsonl")
	_, _ = w.Write(g.file.Last(n)) // the client may be gone
}

// leaseState is a lease as it is shown.
type leaseState struct {
	Attempt policies.AttemptID `json:"attempt"`
	Session string             `json:"session"` // an alias
	Replica string             `json:"replica"`
	AgeS    float64            `json:"age_s"`
	IdleS   float64            `json:"idle_s"` // since something of it moved
	Prompt  int32              `json:"prompt_tokens"`
	Output  int32              `json:"output_tokens"`
	Owner   string             `json:"owner"` // request, or decide
}

// debugState shows what the gateway knows, without prompts and without names that clients gave.
func (g *Gateway) debugState(w http.ResponseWriter, _ *http.Request) {
	const most = 1000
	leases, waits := []leaseState{}, map[string]int{}
	var gate, router string
	g.driver.Do(func(b *Batch) {
		gate, router = g.driver.cfg.Core.Policy.Gate.Name, g.driver.cfg.Core.Policy.Router.Name
		now := b.Now()
		for _, r := range g.replicas {
			b.Leases(r.id, func(a *Attempt) {
				if len(leases) == most {
					return
				}
				owner := "request"
				if a.cancel == nil {
					owner = "decide"
				}
				leases = append(leases, leaseState{
					Attempt: a.id, Session: g.alias(a.thread.of.session.key), Replica: r.cfg.Name, AgeS: float64(now-a.leasedAt) / 1e9,
					IdleS: float64(now-policies.Time(a.touched.Load())) / 1e9, Prompt: a.prompt.Tokens, Output: a.tokens.Load(), Owner: owner,
				})
			})
		}
		b.Waiting(func(a *Attempt) { waits[a.hold.String()]++ })
	})
	var logEnded any
	if err := g.file.Err(); err != nil {
		logEnded = err.Error()
	}
	a := g.driver.Audit()
	writeJSON(w, http.StatusOK, map[string]any{
		"now_s": float64(g.clock.Now()) / 1e9, "draining": g.stopping.Load(), "gate": gate, "router": router,
		"replicas": g.replicaStates(), "leases": leases, "waiting": waits, "audit": a, "imbalance": a.Imbalance(), "content": g.contentCounts(),
		"prompt_basis": g.cfg.Prompt.Basis, "decision_log_ended": logEnded,
	})
}
