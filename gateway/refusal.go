package gateway

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-sim/sluice/gateway/sse"
	"github.com/sluice-sim/sluice/policies"
)

// refusal is an answer that the gateway gives itself instead of an engine's.
type refusal struct {
	status     int
	reason     string // machine-readable, from a closed set; it goes into the error's code, a header and a metric
	message    string // for people, without anything that a client sent
	retryAfter time.Duration
	retry      bool  // Retry-After is sent
	step       int64 // of the decision log, for a refusal by the policies
}

// Error implements error.
func (r *refusal) Error() string { return r.reason + ": " + r.message }

func badRequest(reason, message string) *refusal {
	return &refusal{status: http.StatusBadRequest, reason: reason, message: message}
}

func tooMany(reason, message string, after time.Duration) *refusal {
	return &refusal{status: http.StatusTooManyRequests, reason: reason, message: message, retryAfter: after, retry: true}
}

func unavailable(reason, message string, after time.Duration) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, reason: reason, message: message, retryAfter: after, retry: true}
}

// refusalOf says what an arrival that the driver did not take is answered.
func (g *Gateway) refusalOf(err error) *refusal {
	after := seconds(g.cfg.Limits.RetryAfterS)
	switch {
	case errors.Is(err, ErrQueueFull):
		return tooMany("queue_full", "as many turns wait as may wait", after)
	case errors.Is(err, ErrTooManySessions):
		return tooMany("too_many_sessions", "as many sessions run as may live", after)
	case errors.Is(err, ErrCoreFailed):
		return unavailable("core_failed", "the decision core failed; the gateway has to be started again", after)
	}
	return unavailable("content_full", "the prompts of running turns take all the room that there is for their hashes", after)
}

// refusedByGate says what a turn that the policies refused is answered.
func (g *Gateway) refusedByGate(v Verdict) *refusal {
	after := v.RetryAfter
	if after == 0 {
		after = seconds(g.cfg.Limits.RetryAfterS)
	}
	switch v.Kind {
	case Stopped:
		return &refusal{status: http.StatusConflict, reason: policies.SupersededAttempt.String(), message: "the same request was sent again and took this one's place"}
	case Broken:
		return g.refusalOf(ErrCoreFailed)
	}
	r := tooMany(v.Reason.String(), "the admission policy refused the turn", after)
	r.step = v.Step
	return r
}

// write answers in the error form of api.
func (r *refusal) write(w http.ResponseWriter, api sse.API) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Sluice-Reason", r.reason)
	if r.step > 0 {
		h.Set("X-Sluice-Decision", strconv.FormatInt(r.step, 10))
	}
	if r.retry {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(r.retryAfter.Seconds())), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(int64(math.Ceil(float64(r.retryAfter)/float64(time.Millisecond))), 10))
	}
	kind := "invalid_request_error"
	switch {
	case r.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case r.status >= 500:
		kind = "api_error"
	}
	var body any = map[string]any{"error": map[string]any{"message": r.message, "type": kind, "param": nil, "code": r.reason}}
	if api == sse.Messages {
		body = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": r.message, "code": r.reason}}
	}
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
