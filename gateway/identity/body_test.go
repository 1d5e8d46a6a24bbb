package identity

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     Body
	}{
		{"nothing", ` {} `, Body{}},
		{"chat", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"tools":[{"a":1}],"messages":[{"role":"user","content":"x"}, {"role":"assistant"}],"n":2}`,
			Body{Model: "m", Stream: true, StreamOptions: true, IncludeUsage: true, MaxTokens: 5, Chat: true, Tools: []byte(`[{"a":1}]`),
				Items: [][]byte{[]byte(`{"role":"user","content":"x"}`), []byte(`{"role":"assistant"}`)}}},
		{"completion of a text", `{"prompt":"x","max_tokens":5}`, Body{MaxTokens: 5, Items: [][]byte{[]byte(`"x"`)}}},
		{"completion of tokens", `{"prompt": [1, 2,3] }`, Body{TokenIDs: []byte(`[1, 2,3]`)}},
		{"completion of several texts", `{"prompt":["x","y"]}`, Body{Items: [][]byte{[]byte(`"x"`), []byte(`"y"`)}}},
		{"responses", `{"instructions":"i","input":"x","previous_response_id":"r","max_output_tokens":9}`,
			Body{System: []byte(`"i"`), Items: [][]byte{[]byte(`"x"`)}, PreviousResponseID: "r", MaxTokens: 9}},
		{"messages", `{"system":[{"type":"text"}],"messages":[{"role":"user"}]}`, Body{System: []byte(`[{"type":"text"}]`), Chat: true, Items: [][]byte{[]byte(`{"role":"user"}`)}}},
		{"the newer limit counts", `{"max_tokens":5,"max_completion_tokens":7}`, Body{MaxTokens: 7}},
		{"in any order", `{"max_completion_tokens":7,"max_tokens":5}`, Body{MaxTokens: 7}},
		{"limits that are none", `{"max_tokens":null}`, Body{}},
		{"a limit of nothing", `{"max_tokens":0}`, Body{}},
		{"a negative limit", `{"max_tokens":-1}`, Body{}},
		{"half a token", `{"max_tokens":1.5}`, Body{}},
		{"a float that is whole", `{"max_tokens":1e3}`, Body{MaxTokens: 1000}},
		{"a huge limit", `{"max_tokens":1e300}`, Body{MaxTokens: math.MaxInt32}},
		{"a limit beyond floats", `{"max_tokens":1e999}`, Body{}},
		{"members of other types", `{"model":1,"stream":"yes","stream_options":true,"messages":"x"}`, Body{StreamOptions: true, Chat: true, Items: [][]byte{[]byte(`"x"`)}}},
		{"escapes", `{"model":"\u006d","\u0075ser":"u"}`, Body{Model: "m", User: "u"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse([]byte(c.in), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Errorf("(-expected +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	limits := Limits{Bytes: 1000, Depth: 5, Items: 3}
	for _, c := range []struct {
		name, in, says string
		large          bool
	}{
		{"nothing", "", "no JSON object", false},
		{"a list", "[1]", "no object", false},
		{"text", `"x"`, "no object", false},
		{"cut off", `{"model":"m"`, "byte", false},
		{"two values", `{} {}`, "more than one", false},
		{"a rest", `{} x`, "after the JSON value", false},
		{"the same name twice", `{"model":"m","model":"n"}`, "invalid JSON", false},
		{"the same name twice, deeper", `{"x":{"a":1,"a":2}}`, "invalid JSON", false},
		{"not UTF-8", "{\"model\":\"\xff\"}", "invalid JSON", false},
		{"too long", `{"x":"` + strings.Repeat("y", 1000) + `"}`, "at most 1000", true},
		{"too deep", `{"x":[[[[[1]]]]]}`, "nested deeper than 5", true},
		{"too many messages", `{"messages":[1,2,3,4]}`, "", false}, // numbers are token ids
		{"too many messages, really", `{"messages":["a","b","c","d"]}`, "more than 3", true},
		{"a secret", `{"api_key": sk-secret}`, "byte", false},
	} {
		_, err := Parse([]byte(c.in), limits)
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var refused *BodyError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) || refused.TooLarge != c.large || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, expected an error with %q", c.name, err, c.says)
		}
	}
}

// A body that is only brackets costs a look at it.
func TestDepthIsCheckedFirst(t *testing.T) {
	deep := []byte(`{"x":` + strings.Repeat("[", 10<<20))
	if n := testing.AllocsPerRun(1, func() { _, _ = Parse(deep, Limits{}) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
	if d := depth([]byte(`{"x":"[[[[","y":"\"[["}`), 100); d != 1 {
		t.Errorf("brackets in strings count: %d", d)
	}
}

func TestSpans(t *testing.T) {
	b := bodyOf(t, `{"messages":[{"role":"user"}],"system":"s","tools":[1]}`)
	if got := fmt.Sprintf("%s", b.Spans(nil)); got != `[[1] "s" {"role":"user"}]` {
		t.Errorf("spans %s", got)
	}
}

func BenchmarkParse(b *testing.B) {
	var messages []string
	for i := range 100 {
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":"%s %d"}`, strings.Repeat("some words and ", 60), i))
	}
	raw := []byte(`{"model":"m","stream":true,"messages":[` + strings.Join(messages, ",") + `]}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(raw, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
