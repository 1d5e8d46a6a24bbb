package fakevllm

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strings"
)

// text is message content of any API: a string, parts with text, or nothing.
type text string

func (t *text) UnmarshalJSON(raw []byte) (err error) {
	*t, err = textOfContent(raw, 1)
	return err
}

// textOfContent reads content with parts in parts down to a depth; below it parts have no text.
func textOfContent(raw []byte, depth int) (text, error) {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) == nil { // null is the empty string
		return text(s), nil
	}
	var parts []part
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", err
	}
	var all strings.Builder
	for i := range parts {
		all.WriteString(parts[i].words(depth))
	}
	return text(all.String()), nil
}

// part is one part of message content. Reasoning is left out of the prompt, as chat templates do.
type part struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`   // of a tool_use
	Content json.RawMessage `json:"content"` // of a tool_result
}

func (p *part) words(depth int) string {
	switch p.Type {
	case "thinking", "redacted_thinking", "reasoning":
		return ""
	case "tool_use":
		return "<tool " + p.Name + ">" + compact(p.Input)
	case "tool_result":
		if depth == 0 {
			return "<result>"
		}
		inner, err := textOfContent(p.Content, depth-1)
		if err != nil {
			return "<result>" + compact(p.Content)
		}
		return "<result>" + string(inner)
	case "text", "input_text", "output_text", "":
		return p.Text
	}
	return "<" + p.Type + ">"
}

// compact is JSON without space.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

type chatBody struct {
	Model     string          `json:"model"`
	Messages  []bodyMessage   `json:"messages"`
	Tools     json.RawMessage `json:"tools"`
	MaxTokens *int64          `json:"max_tokens"`
	MaxOutput *int64          `json:"max_completion_tokens"`
	sampling
}

type bodyMessage struct {
	Role      string          `json:"role"`
	Content   text            `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// sampling is what chat and completions have in common. What changes no length is not read.
type sampling struct {
	MinTokens     *int64 `json:"min_tokens"`
	IgnoreEOS     bool   `json:"ignore_eos"`
	Seed          *int64 `json:"seed"`
	N             *int64 `json:"n"`
	Salt          string `json:"cache_salt"`
	Priority      int64  `json:"priority"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage    bool `json:"include_usage"`
		ContinuousUsage bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
}

func (s *sampling) check() *problem {
	if s.N != nil && *s.N != 1 {
		return badRequest("n", "n is %d; this server gives one answer for a request", *s.N)
	}
	return nil
}

func (s *sampling) limits() limits {
	return limits{min: s.MinTokens, ignoreEOS: s.IgnoreEOS, seed: s.Seed, salt: s.Salt, priority: s.Priority}
}

// conversation is the messages as the template sees them.
func (b *chatBody) conversation() ([]chatMessage, *problem) {
	if len(b.Messages) == 0 {
		return nil, badRequest("messages", "messages is empty; a conversation needs at least one")
	}
	var list []chatMessage
	if tools := compact(b.Tools); tools != "" && tools != "null" && tools != "[]" {
		list = append(list, chatMessage{"tools", tools})
	}
	for _, m := range b.Messages {
		if m.Role == "" {
			return nil, badRequest("messages", "a message has no role")
		}
		words := string(m.Content)
		if calls := compact(m.ToolCalls); calls != "" && calls != "null" && calls != "[]" {
			words += "<calls>" + calls
		}
		list = append(list, chatMessage{m.Role, words})
	}
	return list, nil
}

// plan is what a chat request asks of the engine.
func (b *chatBody) plan(s *Server) (work, *problem) {
	if p := s.knows(b.Model); p != nil {
		return work{}, p
	}
	if p := b.check(); p != nil {
		return work{}, p
	}
	list, p := b.conversation()
	if p != nil {
		return work{}, p
	}
	l := b.limits()
	if l.max, l.maxName = b.MaxTokens, "max_tokens"; b.MaxOutput != nil {
		l.max, l.maxName = b.MaxOutput, "max_completion_tokens"
	}
	return s.plan(chatTokens(list, true), l, math.MaxInt32)
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	var b chatBody
	p := s.read(w, r, &b)
	if p == nil {
		var todo work
		if todo, p = b.plan(s); p == nil {
			p = s.run(w, r, todo, b.Stream, &openAI{chat: true, sampling: &b.sampling})
		}
	}
	if p != nil {
		p.write(w)
	}
}

type completionBody struct {
	Model     string       `json:"model"`
	Prompt    promptTokens `json:"prompt"`
	MaxTokens *int64       `json:"max_tokens"`
	sampling
}

// promptTokens is a prompt of completions: a string, token ids, or a list with one of these.
type promptTokens []uint32

func (t *promptTokens) UnmarshalJSON(raw []byte) error { return t.read(raw, 1) }

// read takes lists in lists down to a depth.
func (t *promptTokens) read(raw []byte, depth int) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = encode(s, []uint32{tokenBegin})
		return nil
	}
	var ids []uint32
	if json.Unmarshal(raw, &ids) == nil {
		*t = ids
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || len(list) != 1 || depth == 0 {
		return errPrompt
	}
	return t.read(list[0], depth-1)
}

func (b *completionBody) plan(s *Server) (work, *problem) {
	if p := s.knows(b.Model); p != nil {
		return work{}, p
	}
	if p := b.check(); p != nil {
		return work{}, p
	}
	l := b.limits()
	l.max, l.maxName = b.MaxTokens, "max_tokens"
	return s.plan(b.Prompt, l, 16)
}

func (s *Server) completion(w http.ResponseWriter, r *http.Request) {
	var b completionBody
	p := s.read(w, r, &b)
	if p == nil {
		var todo work
		if todo, p = b.plan(s); p == nil {
			p = s.run(w, r, todo, b.Stream, &openAI{sampling: &b.sampling})
		}
	}
	if p != nil {
		p.write(w)
	}
}

// openAI writes the answers of chat and completions.
type openAI struct {
	chat bool
	*sampling
}

type usage struct {
	PromptTokens     int32          `json:"prompt_tokens"`
	TotalTokens      int32          `json:"total_tokens"`
	CompletionTokens int32          `json:"completion_tokens"`
	Details          *promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int32 `json:"cached_tokens"`
}

func (a *answer) usage() *usage {
	u := &usage{PromptTokens: a.prompt, CompletionTokens: a.produced, TotalTokens: a.prompt + a.produced}
	if a.details {
		u.Details = &promptDetails{a.cached}
	}
	return u
}

// chunk is one event of a stream.
type chunk struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index    int     `json:"index"`
	Delta    *delta  `json:"delta,omitempty"`
	Message  *delta  `json:"message,omitempty"`
	Text     *string `json:"text,omitempty"`
	Logprobs any     `json:"logprobs"`
	Finish   *string `json:"finish_reason"`
	Stop     any     `json:"stop_reason"`
}

type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

func (d *openAI) chunk(a *answer) *chunk {
	if d.chat {
		return &chunk{ID: "chatcmpl-" + a.id, Object: "chat.completion.chunk", Created: a.created, Model: a.model}
	}
	return &chunk{ID: "cmpl-" + a.id, Object: "text_completion", Created: a.created, Model: a.model}
}

// send adds an event with a piece of text.
func (d *openAI) send(b *events, a *answer, role, words string, finish *string) {
	c := d.chunk(a)
	x := choice{Finish: finish}
	if d.chat {
		x.Delta = &delta{Role: role, Content: &words}
	} else {
		x.Text = &words
	}
	c.Choices = []choice{x}
	if d.StreamOptions.ContinuousUsage {
		c.Usage = a.usage()
	}
	b.data(c)
}

func (d *openAI) begin(b *events, a *answer) {
	if d.chat {
		d.send(b, a, "assistant", "", nil)
	}
}

func (d *openAI) delta(b *events, a *answer, text string) { d.send(b, a, "", text, nil) }

func (d *openAI) finish(b *events, a *answer, _ string) {
	d.send(b, a, "", "", &a.reason)
	if d.StreamOptions.IncludeUsage {
		c := d.chunk(a)
		c.Choices, c.Usage = []choice{}, a.usage()
		b.data(c)
	}
	b.WriteString("data: [DONE]\n\n")
}

func (d *openAI) whole(a *answer, text string) any {
	c := d.chunk(a)
	x := choice{Finish: &a.reason}
	if d.chat {
		c.Object = "chat.completion"
		x.Message = &delta{Role: "assistant", Content: &text}
	} else {
		x.Text = &text
	}
	c.Choices, c.Usage = []choice{x}, a.usage()
	return c
}
