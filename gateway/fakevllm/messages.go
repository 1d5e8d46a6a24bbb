package fakevllm

import (
	"encoding/json"
	"net/http"
)

// messagesBody is a request of the Messages API.
type messagesBody struct {
	Model     string          `json:"model"`
	System    text            `json:"system"`
	Messages  []bodyMessage   `json:"messages"`
	Tools     json.RawMessage `json:"tools"`
	MaxTokens *int64          `json:"max_tokens"`
	Stream    bool            `json:"stream"`
}

func (b *messagesBody) tokens(s *Server) ([]uint32, *problem) {
	if p := s.knows(b.Model); p != nil {
		return nil, p
	}
	chat := chatBody{Messages: b.Messages, Tools: b.Tools}
	if b.System != "" {
		chat.Messages = append([]bodyMessage{{Role: "system", Content: b.System}}, b.Messages...)
	}
	list, p := chat.conversation()
	return chatTokens(list, true), p
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	var b messagesBody
	p := s.read(w, r, &b)
	if p == nil && b.MaxTokens == nil {
		p = badRequest("max_tokens", "max_tokens is missing; this API needs it")
	}
	var prompt []uint32
	if p == nil {
		prompt, p = b.tokens(s)
	}
	if p == nil {
		var todo work
		if todo, p = s.plan(prompt, limits{max: b.MaxTokens, maxName: "max_tokens"}, 0); p == nil {
			p = s.run(w, r, todo, b.Stream, anthropic{})
		}
	}
	if p != nil {
		p.writeAnthropic(w)
	}
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	var b messagesBody
	p := s.read(w, r, &b)
	if p == nil {
		var prompt []uint32
		if prompt, p = b.tokens(s); p == nil {
			writeJSON(w, http.StatusOK, map[string]int{"input_tokens": len(prompt)})
			return
		}
	}
	p.writeAnthropic(w)
}

// anthropic writes the answers of the Messages API.
type anthropic struct{}

type anthropicUsage struct {
	Input    int32  `json:"input_tokens"` // those that were not cached, if that is said
	Output   int32  `json:"output_tokens"`
	Created  *int32 `json:"cache_creation_input_tokens,omitempty"`
	FromRead *int32 `json:"cache_read_input_tokens,omitempty"`
}

func (a *answer) anthropicUsage() anthropicUsage {
	u := anthropicUsage{Input: a.prompt, Output: a.produced}
	if a.details {
		u.Input -= a.cached
		u.Created, u.FromRead = new(int32), &a.cached
	}
	return u
}

// stopReason is the API's word for why an answer ended.
func (a *answer) stopReason() string {
	if a.reason == "length" {
		return "max_tokens"
	}
	return "end_turn"
}

func (anthropic) message(a *answer, content []any, stop any) map[string]any {
	return map[string]any{
		"id": "msg_" + a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": a.anthropicUsage(),
	}
}

func (d anthropic) begin(b *events, a *answer) {
	b.event("message_start", map[string]any{"type": "message_start", "message": d.message(a, []any{}, nil)})
	b.event("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
}

func (anthropic) delta(b *events, _ *answer, text string) {
	b.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": text}})
}

func (anthropic) finish(b *events, a *answer, _ string) {
	b.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": 0})
	b.event("message_delta", map[string]any{
		"type": "message_delta", "delta": map[string]any{"stop_reason": a.stopReason(), "stop_sequence": nil}, "usage": a.anthropicUsage(),
	})
	b.event("message_stop", map[string]any{"type": "message_stop"})
}

func (d anthropic) whole(a *answer, text string) any {
	return d.message(a, []any{map[string]any{"type": "text", "text": text}}, a.stopReason())
}
