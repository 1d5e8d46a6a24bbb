package identity

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var secret = []byte("a secret of this installation")

func rulesOf(t testing.TB, header string, order []string) *Rules {
	t.Helper()
	r, err := NewRules(header, order, secret)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func bodyOf(t testing.TB, text string) *Body {
	t.Helper()
	if text == "" {
		return nil
	}
	b, err := Parse([]byte(text), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// head makes headers of pairs.
func head(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestEveryRule(t *testing.T) {
	rules := rulesOf(t, "X-Tenant-Session", slices.DeleteFunc(DefaultOrder(), func(s string) bool { return s == FirstBlocks }))
	for _, c := range []struct {
		name string
		h    http.Header
		body string
		want Identity
	}{
		{"nothing", nil, "", Identity{}},
		{"only identifiers of the request", head("X-Request-ID", "a", "X-Client-Request-Id", "b", "Traceparent", "c"), `{"model":"m"}`, Identity{}},
		{"configured", head("x-tenant-session", "a", "X-Session-ID", "b"), "", Identity{Key: "a", Source: "header.X-Tenant-Session"}},
		{"X-Session-ID", head("x-session-id", " a "), `{"user":"u"}`, Identity{Key: "a", Source: "X-Session-ID"}},
		{"an empty header is none", head("X-Session-ID", "", "session_id", "b"), "", Identity{Key: "b", Source: "session_id"}},
		{"the same value twice", head("X-Session-ID", "a", "X-Session-ID", "a"), "", Identity{Key: "a", Source: "X-Session-ID"}},
		{"Dynamo, session", head("x-dynamo-session-id", "s"), "", Identity{Key: "s", Source: "x-dynamo"}},
		{"Dynamo, root trajectory", head("x-dynamo-session-id", "s", "x-dynamo-trajectory-id", "s"), "", Identity{Key: "s", Source: "x-dynamo"}},
		{"Dynamo, trajectory of a session", head("x-dynamo-session-id", "s", "x-dynamo-trajectory-id", "t"), "", Identity{Key: "t", Parent: "s", Source: "x-dynamo"}},
		{"Dynamo, child", head("x-dynamo-session-id", "s", "x-dynamo-trajectory-id", "u", "x-dynamo-parent-trajectory-id", "t", "x-dynamo-trajectory-final", "true"), "",
			Identity{Key: "u", Parent: "t", Final: true, Source: "x-dynamo"}},
		{"Dynamo, trajectory alone", head("x-dynamo-trajectory-id", "t", "x-dynamo-trajectory-final", "false"), "", Identity{Key: "t", Source: "x-dynamo"}},
		{"Dynamo, final without a name", head("x-dynamo-trajectory-final", "true"), "", Identity{}},
		{"SMG", head("x-smg-routing-key", "a"), "", Identity{Key: "a", Source: "x-smg-routing-key"}},
		{"LiteLLM", head("x-litellm-session-id", "a"), "", Identity{Key: "a", Source: "x-litellm-session-id"}},
		{"llm-d", head("x-llm-d-inference-fairness-id", "a"), "", Identity{Key: "a", Source: "x-llm-d-inference-fairness-id"}},
		{"Claude Code", head("x-claude-code-session-id", "a"), "", Identity{Key: "a", Source: "x-claude-code-session-id"}},
		{"Claude Code, subagent", head("x-claude-code-session-id", "a", "x-claude-code-agent-id", "b"), "", Identity{Key: "a/b", Parent: "a", Source: "x-claude-code-session-id"}},
		{"Claude Code, subagent of none", head("x-claude-code-agent-id", "b"), "", Identity{}},
		{"OpenCode", head("x-session-affinity", "a"), "", Identity{Key: "a", Source: "x-session-affinity"}},
		{"Codex", head("session-id", "a"), "", Identity{Key: "a", Source: "session-id"}},
		{"Codex, older", head("Session_Id", "a"), "", Identity{Key: "a", Source: "session_id"}},
		{"Amp", head("x-amp-thread-id", "a"), "", Identity{Key: "a", Source: "X-Amp-Thread-Id"}},
		{"rid", nil, `{"rid":"a_t3"}`, Identity{Key: "a", Source: "body.rid"}},
		{"rid of a retry", nil, `{"rid":"a_t3_r12"}`, Identity{Key: "a", Source: "body.rid"}},
		{"rid that is a list", nil, `{"rid":["a","b"],"user":"u"}`, Identity{Key: "u", Source: "body.user"}},
		{"prompt_cache_key", nil, `{"user":"u","prompt_cache_key":"k"}`, Identity{Key: "k", Source: "body.prompt_cache_key"}},
		{"conversation", nil, `{"conversation":"c"}`, Identity{Key: "c", Source: "body.conversation"}},
		{"conversation as an object", nil, `{"conversation":{"id":"c"}}`, Identity{Key: "c", Source: "body.conversation"}},
		{"metadata.user_id", nil, `{"metadata":{"user_id":"u"}}`, Identity{Key: "u", Source: "body.metadata.user_id"}},
		{"metadata.user_id with a session", nil, `{"metadata":{"user_id":"user_5e_account__session_0f1e"}}`, Identity{Key: "0f1e", Source: "body.metadata.user_id"}},
		{"agent context", nil, `{"nvext":{"agent_context":{"session_id":"s","trajectory_id":"t","parent_trajectory_id":"r","trajectory_final":true}}}`,
			Identity{Key: "t", Parent: "r", Final: true, Source: "body.nvext.agent_context"}},
		{"user", nil, `{"user":"u"}`, Identity{Key: "u", Source: "body.user"}},
		{"members of other types", nil, `{"user":7,"rid":null,"metadata":"m","nvext":[],"conversation":5,"prompt_cache_key":{}}`, Identity{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := rules.Of(c.h, bodyOf(t, c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-expected +got):\n%s", diff)
			}
		})
	}
}

func TestStripTurn(t *testing.T) {
	for rid, want := range map[string]string{
		"": "", "a": "a", "a_t1": "a", "a_r1": "a", "a_t1_r2_t3": "a", "a_t": "a_t", "a_tx": "a_tx", "a_x1": "a_x1", "_t1": "_t1", "a1": "a1", "t1": "t1", "a_t1b": "a_t1b", "12": "12",
	} {
		if got := stripTurn(rid); got != want {
			t.Errorf("%q becomes %q, expected %q", rid, got, want)
		}
	}
}

func TestIdentifiersThatAreRefused(t *testing.T) {
	rules := rulesOf(t, "", nil)
	long := strings.Repeat("x", MaxKeyBytes+1)
	for name, c := range map[string]struct {
		h    http.Header
		body string
	}{
		"too long":                    {head("X-Session-ID", long), ""},
		"too long in the body":        {nil, `{"prompt_cache_key":"` + long + `"}`},
		"a control character":         {head("X-Session-ID", "a\x00b"), ""},
		"a line feed in the body":     {nil, `{"user":"a\nb"}`},
		"not UTF-8":                   {head("X-Session-ID", "\xff\xfe"), ""},
		"two different":               {head("X-Session-ID", "a", "X-Session-ID", "b"), ""},
		"a parent that is too long":   {head("x-dynamo-trajectory-id", "t", "x-dynamo-parent-trajectory-id", long), ""},
		"an agent context that is":    {nil, `{"nvext":{"agent_context":{"session_id":"s","trajectory_id":"` + long + `"}}}`},
		"a subagent with a character": {head("x-claude-code-session-id", "a", "x-claude-code-agent-id", "\x7f"), ""},
	} {
		id, err := rules.Of(c.h, bodyOf(t, c.body))
		var refused *HeaderError
		if !errors.As(err, &refused) || id != (Identity{}) {
			t.Errorf("%s: %+v, %v", name, id, err)
		} else if strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: the value stands in the error", name)
		}
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		header string
		order  []string
		secret string
		says   string
	}{
		{"X-Request-ID", nil, "0123456789abcdef", "names a single request"},
		{"x-client-request-id", nil, "0123456789abcdef", "names a single request"},
		{"X Session", nil, "0123456789abcdef", "not the name of a header"},
		{"X-Session\n", nil, "0123456789abcdef", "not the name of a header"},
		{"", []string{"X-Session-Id"}, "0123456789abcdef", "no rule is called"},
		{"", []string{"body.user", "body.user"}, "0123456789abcdef", "stands twice"},
		{"", []string{FirstBlocks}, "short", "at least 16 bytes"},
	} {
		if _, err := NewRules(c.header, c.order, []byte(c.secret)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q %v: %v, expected an error with %q", c.header, c.order, err, c.says)
		}
	}
	if _, err := NewRules("X-Mine", []string{"body.user"}, nil); err != nil {
		t.Errorf("rules without a hash need no secret: %v", err)
	}
}

func TestFirstBlocksRule(t *testing.T) {
	rules := rulesOf(t, "", []string{FirstBlocks})
	id := func(body string) string {
		got, err := rules.Of(nil, bodyOf(t, body))
		if err != nil {
			t.Fatal(err)
		}
		return got.Key
	}
	first := `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}`
	for body, same := range map[string]bool{
		first: true,
		`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"}],"model":"m","stream":true}`: true,
		`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"w"}]}`:                                                                                false,
		`{"model":"m","messages":[{"role":"system","content":"x"},{"role":"user","content":"u"}]}`:                                                                                false,
		`{"model":"n","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}`:                                                                                false,
		`{"model":"m","system":"s","messages":[{"role":"user","content":"u"}]}`:                                                                                                   false,
	} {
		if got := id(body); (got == id(first)) != same || !strings.HasPrefix(got, "first-blocks-") {
			t.Errorf("%s is %q, the first is %q", body, got, id(first))
		}
	}
	for _, body := range []string{`{}`, `{"prompt":[1,2,3]}`, `{"messages":[]}`} {
		if got := id(body); got != "" {
			t.Errorf("%s is %q", body, got)
		}
	}
	other, _ := NewRules("", []string{FirstBlocks}, []byte("a secret of that installation"))
	if got, _ := other.Of(nil, bodyOf(t, first)); got.Key == id(first) {
		t.Error("another installation's key is the same")
	}
}

// Rules are tried in their order, whatever it is, and how a header is spelt does not matter; nothing that names a request
// changes anything.
func TestOrderAndCase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.Permutation(slices.DeleteFunc(DefaultOrder(), func(s string) bool { return s == FirstBlocks })).Draw(t, "order")
		order = order[:rapid.IntRange(1, len(order)).Draw(t, "rules")]
		rules, err := NewRules("", order, nil)
		if err != nil {
			t.Fatal(err)
		}
		given := rapid.SliceOfNDistinct(rapid.SampledFrom(DefaultOrder()[:len(DefaultOrder())-1]), 0, 6, rapid.ID[string]).Draw(t, "given")
		h, b := http.Header{}, &Body{}
		for _, g := range given {
			v := "value of " + g
			switch g {
			case "body.rid":
				b.RID = v
			case "body.prompt_cache_key":
				b.PromptCacheKey = v
			case "body.conversation":
				b.Conversation = v
			case "body.metadata.user_id":
				b.UserID = v
			case "body.nvext.agent_context":
				b.AgentContext.Session = v
			case "body.user":
				b.User = v
			case "x-dynamo":
				h.Set(spell(t, "x-dynamo-session-id"), v)
			default:
				h.Set(spell(t, g), v)
			}
		}
		for _, name := range perRequest {
			h.Set(spell(t, name), fmt.Sprint("request ", rapid.IntRange(0, 1000).Draw(t, "request")))
		}
		want := Identity{}
		for _, o := range order {
			if slices.Contains(given, o) {
				want = Identity{Key: "value of " + o, Source: o}
				break
			}
		}
		got, err := rules.Of(h, b)
		if err != nil || got != want {
			t.Fatalf("%+v, %v of %v; expected %+v", got, err, given, want)
		}
	})
}

func spell(t *rapid.T, name string) string {
	b := []byte(name)
	for i, c := range b {
		if c >= 'a' && c <= 'z' && rapid.Bool().Draw(t, "upper") {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// Whatever a client sends: a clear refusal, or an identifier that can be kept and shown.
func FuzzOf(f *testing.F) {
	f.Add("X-Session-ID", "a", `{"model":"m","messages":[{"role":"user","content":"u"}]}`)
	f.Add("x-dynamo-trajectory-id", "t", `{"rid":"a_t1","nvext":{"agent_context":{"session_id":"s"}}}`)
	f.Add("session_id", "\x00", `{"prompt":[1,2],"user":"u","max_tokens":5,"stream_options":{"include_usage":true}}`)
	f.Add("X-Request-ID", "r", `{"input":[{"role":"user"}],"metadata":{"user_id":"a_session_b"},"conversation":{"id":"c"}}`)
	rules, err := NewRules("X-Mine", nil, secret)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, value, body string) {
		b, err := Parse([]byte(body), Limits{Bytes: 1 << 16, Depth: 20, Items: 10})
		if err != nil {
			var refused *BodyError
			if !errors.As(err, &refused) || len(err.Error()) > 300 {
				t.Fatalf("an unclear refusal: %v", err)
			}
			b = nil
		} else if b.MaxTokens < 0 || len(b.Items) > 10 {
			t.Fatalf("%+v", b)
		}
		h := http.Header{http.CanonicalHeaderKey(name): {value}}
		id, err := rules.Of(h, b)
		var refused *HeaderError
		if err != nil && !errors.As(err, &refused) {
			t.Fatalf("an unclear refusal: %v", err)
		}
		if len(id.Key) > 2*MaxKeyBytes+1 || len(id.Parent) > MaxKeyBytes || (id.Key == "") != (id.Source == "") || strings.ContainsAny(id.Key, "\x00\n\r") {
			t.Fatalf("%+v", id)
		}
		again, _ := rules.Of(h, b)
		if id != again {
			t.Fatal("the second look gives another identity")
		}
		h.Set("X-Request-Id", "of this request")
		if other, _ := rules.Of(h, b); http.CanonicalHeaderKey(name) != "X-Request-Id" && other != id {
			t.Fatal("the identifier of the request changed the session")
		}
	})
}
