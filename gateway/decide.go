package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/gateway/identity"
	"github.com/sluice-sim/sluice/gateway/sse"
	"github.com/sluice-sim/sluice/policies"
)

// question is the body of POST /decide: a turn that its sender will bring to an engine itself.
type question struct {
	Session   string  `json:"session"`
	Parent    string  `json:"parent"` // the session that this conversation is a part of
	Model     string  `json:"model"`
	TokenIDs  []int32 `json:"token_ids"` // of the prompt; or
	Prompt    string  `json:"prompt"`    // its text, which is hashed and forgotten
	MaxTokens int32   `json:"max_tokens"`
	WaitS     float64 `json:"wait_s"` // how long the answer may take; 0: as long as the configuration allows
}

// decision is its answer.
type decision struct {
	Lease    policies.AttemptID `json:"lease"`
	Replica  string             `json:"replica"`
	URL      string             `json:"url"`
	Reason   string             `json:"reason"`
	Routed   string             `json:"routed"`
	WaitedMS float64            `json:"waited_ms"`
	Decision int64              `json:"decision"`
}

// ending is the body of POST /release.
type ending struct {
	Lease        policies.AttemptID `json:"lease"`
	Outcome      string             `json:"outcome"` // finished, failed or cancelled
	PromptTokens int32              `json:"prompt_tokens"`
	OutputTokens int32              `json:"output_tokens"`
	CachedTokens int32              `json:"cached_tokens"`
	Final        bool               `json:"final"` // the session sends no more turns
}

// readJSON reads a small body of the operations' own.
func (g *Gateway) readJSON(w http.ResponseWriter, r *http.Request, to any) *refusal {
	raw, refused := g.readBody(w, r)
	if refused != nil {
		return refused
	}
	defer g.bodies.Add(-int64(len(raw)))
	if err := json.Unmarshal(raw, to); err != nil {
		return badRequest("invalid_body", "the body is not the JSON object that the documentation describes")
	}
	return nil
}

// decide makes a decision without a request: the lease is kept until /release, at most for limits.lease_s.
func (g *Gateway) decide(w http.ResponseWriter, r *http.Request) {
	defer g.running.Add(-1)
	if g.running.Add(1); g.stopping.Load() {
		g.refuse(w, r, sse.Chat, g.draining())
		return
	}
	var q question
	if refused := g.readJSON(w, r, &q); refused != nil {
		g.refuse(w, r, sse.Chat, refused)
		return
	}
	f, refused := g.flightOf(r, &q)
	if refused == nil {
		g.flights.Store(f, nil)
		defer g.flights.Delete(f)
		defer f.cancel(nil)
		if refused = f.arriveAlone(); refused == nil {
			refused = f.await()
		}
	}
	if refused != nil {
		g.refuse(w, r, sse.Chat, refused)
		return
	}
	p := g.replicas[f.verdict.Replica]
	g.metrics.requests.WithLabelValues(r.URL.Path, "200").Inc()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	err := json.NewEncoder(w).Encode(decision{
		Lease: f.attempt.ID(), Replica: p.cfg.Name, URL: p.cfg.URL, Reason: f.verdict.Reason.String(), Routed: f.verdict.Routed.String(),
		WaitedMS: float64(f.waited) / float64(time.Millisecond), Decision: f.verdict.Step,
	})
	if err != nil || r.Context().Err() != nil { // nobody knows of the lease
		g.driver.Do(func(b *Batch) { b.Gone(f.attempt); b.Failed(f.attempt) })
	}
}

func (g *Gateway) flightOf(r *http.Request, q *question) (*flight, *refusal) {
	f := &flight{g: g, parsed: &identity.Body{Model: q.Model, MaxTokens: max(0, q.MaxTokens)}, id: identity.Identity{Key: q.Session, Parent: q.Parent}}
	for _, x := range [][2]string{{"session", q.Session}, {"parent", q.Parent}} {
		if _, err := identity.Check(x[0], x[1]); err != nil {
			return nil, badRequest("invalid_session_id", err.Error())
		}
	}
	if refused := f.label(r.Header); refused != nil {
		return nil, refused
	}
	if len(q.TokenIDs) == 0 && q.Prompt == "" {
		return nil, badRequest("invalid_prompt", "expected token_ids or prompt")
	}
	var err error
	if len(q.TokenIDs) > 0 {
		f.chain, err = g.hasher.Tokens(content.Chain{}, q.Model, q.TokenIDs)
		f.tokens = q.TokenIDs
	} else {
		f.chain, err = g.hasher.Bytes(content.Chain{}, q.Model, [][]byte{[]byte(q.Prompt)})
	}
	if err != nil {
		return nil, badRequest("invalid_prompt", err.Error())
	}
	if q.WaitS > 0 {
		f.waited = max(0, seconds(g.cfg.Limits.WaitS)-seconds(q.WaitS))
	}
	f.ctx, f.cancel = context.WithCancelCause(r.Context())
	return f, nil
}

// arriveAlone brings a turn whose lease nobody here watches: nothing is there to be cancelled.
func (f *flight) arriveAlone() *refusal {
	var err error
	f.g.driver.Do(func(b *Batch) {
		f.attempt, err = f.g.place(b, Arrival{Session: f.sessionKey(), Thread: f.id.Key, Key: f.g.keyOf(f.sessionKey()), MaxTokens: f.parsed.MaxTokens,
			Class: f.class, Group: f.group, Owner: f}, f.chain)
	})
	if err != nil {
		return f.g.refusalOf(err)
	}
	return nil
}

// releaseLease ends a lease of /decide. A lease that has ended, or never was, is no error: releasing is idempotent.
func (g *Gateway) releaseLease(w http.ResponseWriter, r *http.Request) {
	var e ending
	if refused := g.readJSON(w, r, &e); refused != nil {
		g.refuse(w, r, sse.Chat, refused)
		return
	}
	if e.Outcome != "finished" && e.Outcome != "failed" && e.Outcome != "cancelled" {
		g.refuse(w, r, sse.Chat, badRequest("invalid_outcome", "outcome: expected finished, failed or cancelled"))
		return
	}
	released := false
	g.driver.Do(func(b *Batch) {
		a := b.Lease(e.Lease)
		if a == nil || a.cancel != nil { // a request that passes through ends by itself
			return
		}
		released = true
		key := a.thread.of.key
		if key == "" {
			key = a.thread.of.session.key
		}
		switch e.Outcome {
		case "finished":
			b.Finished(a, Usage{Prompt: max(0, e.PromptTokens), Output: max(0, e.OutputTokens), Cached: max(0, e.CachedTokens)})
		case "cancelled":
			b.Gone(a)
			b.Failed(a)
		default:
			b.Failed(a)
		}
		if e.Final {
			b.EndSession(key)
		}
	})
	writeJSON(w, http.StatusOK, map[string]bool{"released": released})
}

// finishSession ends the session, or the conversation, that the query or the body names. It is idempotent.
func (g *Gateway) finishSession(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("session_id")
	if key == "" {
		var x struct {
			SessionID string `json:"session_id"`
		}
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil || len(raw) > 0 && json.Unmarshal(raw, &x) != nil {
			g.refuse(w, r, sse.Chat, badRequest("invalid_body", "expected session_id in the query or in a JSON object"))
			return
		}
		key = x.SessionID
	}
	if key == "" || len(key) > identity.MaxKeyBytes {
		g.refuse(w, r, sse.Chat, badRequest("invalid_session_id", "expected session_id in the query or in a JSON object"))
		return
	}
	known := false
	g.driver.Do(func(b *Batch) { known = b.EndSession(key) })
	writeJSON(w, http.StatusOK, map[string]bool{"known": known})
}

// drainReplica has a replica take nothing new, or take turns again.
func (g *Gateway) drainReplica(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, p := range g.replicas {
			if p.cfg.Name != r.PathValue("name") {
				continue
			}
			g.driver.Do(func(b *Batch) {
				if on {
					g.impose(b, p, drained)
				} else {
					g.lift(b, p, drained)
				}
			})
			writeJSON(w, http.StatusOK, map[string]any{"replica": p.cfg.Name, "draining": on})
			return
		}
		writeJSON(w, http.StatusNotFound, map[string]any{"error": map[string]any{"message": "no replica has this name", "code": "unknown_replica"}})
	}
}
