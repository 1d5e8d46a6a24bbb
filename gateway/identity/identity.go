// Package identity tells which session a request belongs to, from its headers and its body. A list of rules is tried in
// order and the first that finds something decides (spec: gateway 4.4). Identifiers of single requests (X-Request-ID,
// X-Client-Request-Id) never name a session: a table keyed by them grows without bound.
//
// Body is parsed once, lightly and within limits, and is also what the rest of the gateway knows of a request: its model,
// whether it streams, how many tokens it may produce, and where its prompt lies. Nothing here keeps the text.
package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKeyBytes bounds a session identifier.
const MaxKeyBytes = 256

// Identity names the conversation of a request.
type Identity struct {
	// Key names the conversation; "" when no rule found one. A subagent has its own.
	Key string
	// Parent is the Key of the session that the conversation is a part of; "" for a root.
	Parent string
	// Source is the name of the rule that decided, "" when none did.
	Source string
	// Final says that the client will send no more turns of this conversation.
	Final bool
}

// HeaderError is a session identifier that is refused. The request is at fault.
type HeaderError struct {
	Where string // header or member of the body
	What  string
}

func (e *HeaderError) Error() string { return e.Where + ": " + e.What }

// Rules is an ordered list of rules. It does not change and may be used by many goroutines.
type Rules struct {
	rules  []rule
	secret []byte
}

type rule struct {
	name string
	find func(r *Rules, h http.Header, b *Body) (Identity, error)
}

// perRequest are the headers that never name a session.
var perRequest = []string{"X-Request-Id", "X-Client-Request-Id", "Request-Id", "X-Correlation-Id", "Traceparent"}

// headerRules are the rules that take a header's value as it is, in the default order.
var headerRules = []string{
	"X-Session-ID", "x-dynamo", "x-smg-routing-key", "x-litellm-session-id", "x-llm-d-inference-fairness-id",
	"x-claude-code-session-id", "x-session-affinity", "session-id", "session_id", "X-Amp-Thread-Id",
}

// bodyRules are the rules that read the body, in the default order.
var bodyRules = []string{
	"body.rid", "body.prompt_cache_key", "body.conversation", "body.metadata.user_id", "body.nvext.agent_context", "body.user",
}

// FirstBlocks is the rule that takes the keyed hash of the system prompt and the first user message.
const FirstBlocks = "first_blocks"

// DefaultOrder is the names of all rules, in the order in which they are tried.
func DefaultOrder() []string {
	return append(append(slices.Clone(headerRules), bodyRules...), FirstBlocks)
}

// NewRules returns the rules called order, tried after the header called header if that is not empty. A name is one of
// DefaultOrder; nil is all of them. secret keys the hash of FirstBlocks and must have at least 16 bytes if that rule is
// among them.
func NewRules(header string, order []string, secret []byte) (*Rules, error) {
	r := &Rules{secret: slices.Clone(secret)}
	if header != "" {
		rl, err := configured(header)
		if err != nil {
			return nil, err
		}
		r.rules = append(r.rules, rl)
	}
	if order == nil {
		order = DefaultOrder()
	}
	seen := map[string]bool{}
	for _, name := range order {
		find := finder(name)
		if find == nil {
			return nil, fmt.Errorf("session identity: no rule is called %q; the rules are %s", name, strings.Join(DefaultOrder(), ", "))
		}
		if seen[name] {
			return nil, fmt.Errorf("session identity: rule %q stands twice", name)
		}
		if name == FirstBlocks && len(secret) < 16 {
			return nil, fmt.Errorf("session identity: rule %q needs a secret of at least 16 bytes, got %d", name, len(secret))
		}
		seen[name] = true
		r.rules = append(r.rules, rule{name, find})
	}
	return r, nil
}

func configured(header string) (rule, error) {
	if header != textproto.TrimString(header) || !ValidHeader(header) {
		return rule{}, fmt.Errorf("session identity: %q is not the name of a header", header)
	}
	if name := http.CanonicalHeaderKey(header); slices.Contains(perRequest, name) {
		return rule{}, fmt.Errorf("session identity: %s names a single request, not a session; choose another header", name)
	}
	return rule{"header." + header, plainHeader(header)}, nil
}

// ValidHeader says whether name can be the name of a header.
func ValidHeader(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return name != ""
}

// Of names the conversation of a request with headers h and body b; b may be nil. The error is a *HeaderError: the
// request gives an identifier that is too long, holds control characters, or gives two different ones.
func (r *Rules) Of(h http.Header, b *Body) (Identity, error) {
	if b == nil {
		b = &Body{}
	}
	for i := range r.rules {
		id, err := r.rules[i].find(r, h, b)
		if err != nil {
			return Identity{}, err
		}
		if id.Key != "" {
			id.Source = r.rules[i].name
			return id, nil
		}
	}
	return Identity{}, nil
}

func finder(name string) func(*Rules, http.Header, *Body) (Identity, error) {
	switch name {
	case "x-dynamo":
		return dynamoHeaders
	case "x-claude-code-session-id":
		return claudeCode
	case "body.rid":
		return member("rid", func(b *Body) string { return stripTurn(b.RID) })
	case "body.prompt_cache_key":
		return member("prompt_cache_key", func(b *Body) string { return b.PromptCacheKey })
	case "body.conversation":
		return member("conversation", func(b *Body) string { return b.Conversation })
	case "body.metadata.user_id":
		return member("metadata.user_id", func(b *Body) string { return sessionOfUser(b.UserID) })
	case "body.nvext.agent_context":
		return agentContext
	case "body.user":
		return member("user", func(b *Body) string { return b.User })
	case FirstBlocks:
		return firstBlocks
	}
	if slices.Contains(headerRules, name) {
		return plainHeader(name)
	}
	return nil
}

func plainHeader(name string) func(*Rules, http.Header, *Body) (Identity, error) {
	return func(_ *Rules, h http.Header, _ *Body) (Identity, error) {
		v, err := Header(h, name)
		return Identity{Key: v}, err
	}
}

func member(name string, of func(*Body) string) func(*Rules, http.Header, *Body) (Identity, error) {
	return func(_ *Rules, _ http.Header, b *Body) (Identity, error) {
		v, err := Check(name, of(b))
		return Identity{Key: v}, err
	}
}

// claudeCode: a subagent sends the session's id and its own.
func claudeCode(_ *Rules, h http.Header, _ *Body) (Identity, error) {
	session, err := Header(h, "x-claude-code-session-id")
	if err != nil || session == "" {
		return Identity{}, err
	}
	agent, err := Header(h, "x-claude-code-agent-id")
	if err != nil || agent == "" {
		return Identity{Key: session}, err
	}
	return Identity{Key: session + "/" + agent, Parent: session}, nil
}

// dynamoHeaders: a session has trajectories, of which one may be another's child. A trajectory is a conversation.
func dynamoHeaders(_ *Rules, h http.Header, _ *Body) (Identity, error) {
	var v [4]string
	for i, name := range []string{"x-dynamo-session-id", "x-dynamo-trajectory-id", "x-dynamo-parent-trajectory-id", "x-dynamo-trajectory-final"} {
		var err error
		if v[i], err = Header(h, name); err != nil {
			return Identity{}, err
		}
	}
	return trajectory(v[0], v[1], v[2], strings.EqualFold(v[3], "true") || v[3] == "1"), nil
}

func agentContext(_ *Rules, _ http.Header, b *Body) (Identity, error) {
	c := &b.AgentContext
	for _, v := range []string{c.Session, c.Trajectory, c.ParentTrajectory} {
		if _, err := Check("nvext.agent_context", v); err != nil {
			return Identity{}, err
		}
	}
	return trajectory(c.Session, c.Trajectory, c.ParentTrajectory, c.Final), nil
}

func trajectory(session, own, parent string, final bool) Identity {
	switch {
	case own == "":
		return Identity{Key: session, Final: final && session != ""}
	case parent != "" && parent != own:
		return Identity{Key: own, Parent: parent, Final: final}
	case session != own:
		return Identity{Key: own, Parent: session, Final: final}
	}
	return Identity{Key: own, Final: final}
}

// stripTurn takes the suffixes _tN and _rN (turn, retry) from the request id of a session.
func stripTurn(rid string) string {
	for {
		digits := strings.TrimRight(rid, "0123456789")
		if len(digits) == len(rid) || !strings.HasSuffix(digits, "_t") && !strings.HasSuffix(digits, "_r") || len(digits) == 2 {
			return rid
		}
		rid = digits[:len(digits)-2]
	}
}

// sessionOfUser: some harnesses put the session's id at the end of metadata.user_id, after "_session_".
func sessionOfUser(user string) string {
	if i := strings.LastIndex(user, "_session_"); i >= 0 && i+len("_session_") < len(user) {
		return user[i+len("_session_"):]
	}
	return user
}

func firstBlocks(r *Rules, _ http.Header, b *Body) (Identity, error) {
	spans := b.FirstBlocks()
	if len(spans) == 0 {
		return Identity{}, nil
	}
	mac := hmac.New(sha256.New, r.secret)
	mac.Write([]byte("session"))
	mac.Write([]byte{0})
	mac.Write([]byte(b.Model))
	for _, s := range spans {
		mac.Write([]byte{0})
		mac.Write(s)
	}
	return Identity{Key: "first-blocks-" + hex.EncodeToString(mac.Sum(nil)[:12])}, nil
}

// Header is the one value of the header called name, "" if it has none. The error is a *HeaderError: as an identifier it is
// refused.
func Header(h http.Header, name string) (string, error) {
	values := h[http.CanonicalHeaderKey(name)]
	if len(values) == 0 {
		return "", nil
	}
	first := textproto.TrimString(values[0])
	for _, v := range values[1:] {
		if textproto.TrimString(v) != first {
			return "", &HeaderError{name, fmt.Sprintf("%d different values, expected one", len(values))}
		}
	}
	return Check(name, first)
}

// Check refuses what cannot be an identifier. It does not repeat the value, which may be a secret.
func Check(where, v string) (string, error) {
	if len(v) > MaxKeyBytes {
		return "", &HeaderError{where, fmt.Sprintf("an identifier of %d bytes, at most %d are taken", len(v), MaxKeyBytes)}
	}
	if !utf8.ValidString(v) {
		return "", &HeaderError{where, "an identifier that is not UTF-8"}
	}
	for _, c := range v {
		if unicode.IsControl(c) {
			return "", &HeaderError{where, fmt.Sprintf("an identifier with the control character %U", c)}
		}
	}
	return v, nil
}
