package fakevllm

import (
	"encoding/json"
	"math"
	"net/http"
	"sync"
)

// responsesBody is a request of the Responses API.
type responsesBody struct {
	Model        string          `json:"model"`
	Input        json.RawMessage `json:"input"`
	Instructions string          `json:"instructions"`
	Previous     string          `json:"previous_response_id"`
	Tools        json.RawMessage `json:"tools"`
	MaxOutput    *int64          `json:"max_output_tokens"`
	Store        *bool           `json:"store"`
	Stream       bool            `json:"stream"`
}

// inputItem is one item of the input.
type inputItem struct {
	Type      string `json:"type"`
	Role      string `json:"role"`
	Content   text   `json:"content"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Output    text   `json:"output"`
}

// conversation is the messages that a request and what it continues come to, instructions and tools left out.
func (b *responsesBody) conversation(store *answerStore) ([]chatMessage, *problem) {
	var list []chatMessage
	if b.Previous != "" {
		before, ok := store.get(b.Previous)
		if !ok {
			return nil, &problem{status: http.StatusNotFound, kind: "NotFoundError", message: "there is no response " + b.Previous + " here", param: "previous_response_id"}
		}
		list = append(list, before...)
	}
	var words string
	if json.Unmarshal(b.Input, &words) == nil {
		return append(list, chatMessage{"user", words}), nil
	}
	var items []inputItem
	if err := json.Unmarshal(b.Input, &items); err != nil || len(items) == 0 {
		return nil, badRequest("input", "input must be a string or a list of items")
	}
	for _, it := range items {
		switch it.Type {
		case "message", "":
			if it.Role == "" {
				return nil, badRequest("input", "an item of the input has no role")
			}
			list = append(list, chatMessage{it.Role, string(it.Content)})
		case "function_call":
			list = append(list, chatMessage{"assistant", "<tool " + it.Name + ">" + it.Arguments})
		case "function_call_output":
			list = append(list, chatMessage{"tool", string(it.Output)})
		}
	}
	return list, nil
}

func (s *Server) responses(w http.ResponseWriter, r *http.Request) {
	var b responsesBody
	p := s.read(w, r, &b)
	if p == nil {
		p = s.knows(b.Model)
	}
	var list []chatMessage
	if p == nil {
		list, p = b.conversation(&s.answers)
	}
	if p == nil {
		prompt := list
		if b.Instructions != "" {
			prompt = append([]chatMessage{{"system", b.Instructions}}, prompt...)
		}
		if tools := compact(b.Tools); tools != "" && tools != "null" && tools != "[]" {
			prompt = append([]chatMessage{{"tools", tools}}, prompt...)
		}
		var todo work
		if todo, p = s.plan(chatTokens(prompt, true), limits{max: b.MaxOutput, maxName: "max_output_tokens"}, math.MaxInt32); p == nil {
			d := &responsesAPI{body: &b, list: list}
			if b.Store == nil || *b.Store {
				d.store = &s.answers
			}
			p = s.run(w, r, todo, b.Stream, d)
		}
	}
	if p != nil {
		p.write(w)
	}
}

// answerStore keeps the conversations of the last answers for requests that continue them.
type answerStore struct {
	mu    sync.Mutex
	lists map[string][]chatMessage
	order []string // oldest first
}

const storedAnswers = 1000

func (s *answerStore) get(id string) ([]chatMessage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, ok := s.lists[id]
	return list, ok
}

func (s *answerStore) put(id string, list []chatMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists = map[string][]chatMessage{}
	}
	if _, again := s.lists[id]; !again {
		s.order = append(s.order, id)
	}
	s.lists[id] = list
	if len(s.order) > storedAnswers {
		delete(s.lists, s.order[0])
		s.order = s.order[1:]
	}
}

func (s *answerStore) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists, s.order = nil, nil
}

// responsesAPI writes the answers of the Responses API.
type responsesAPI struct {
	body  *responsesBody
	list  []chatMessage
	store *answerStore // nil: do not keep the answer
	seq   int
}

func (d *responsesAPI) send(b *events, kind string, more map[string]any) {
	more["type"], more["sequence_number"] = kind, d.seq
	d.seq++
	b.event(kind, more)
}

// at is where a delta belongs.
func (d *responsesAPI) at(a *answer, more map[string]any) map[string]any {
	more["item_id"], more["output_index"], more["content_index"] = "msg_"+a.id, 0, 0
	return more
}

func outputText(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

func (d *responsesAPI) item(a *answer, status string, content ...any) map[string]any {
	if content == nil {
		content = []any{}
	}
	return map[string]any{"id": "msg_" + a.id, "type": "message", "role": "assistant", "status": status, "content": content}
}

// response is the response object; text is nil before the end.
func (d *responsesAPI) response(a *answer, text *string) map[string]any {
	x := map[string]any{
		"id": "resp_" + a.id, "object": "response", "created_at": a.created, "model": a.model, "status": "in_progress", "output": []any{}, "usage": nil,
		"error": nil, "incomplete_details": nil, "instructions": nil, "metadata": map[string]any{}, "parallel_tool_calls": true, "tool_choice": "auto",
		"tools": []any{}, "temperature": 1, "top_p": 1, "max_output_tokens": d.body.MaxOutput, "previous_response_id": nil,
	}
	if d.body.Previous != "" {
		x["previous_response_id"] = d.body.Previous
	}
	if d.body.Instructions != "" {
		x["instructions"] = d.body.Instructions
	}
	if text == nil {
		return x
	}
	x["status"] = "completed"
	if a.reason == "length" {
		x["status"], x["incomplete_details"] = "incomplete", map[string]any{"reason": "max_output_tokens"}
	}
	x["output"] = []any{d.item(a, x["status"].(string), outputText(*text))}
	u := map[string]any{
		"input_tokens": a.prompt, "output_tokens": a.produced, "total_tokens": a.prompt + a.produced, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
		"input_tokens_details": map[string]any{"cached_tokens": 0},
	}
	if a.details {
		u["input_tokens_details"] = map[string]any{"cached_tokens": a.cached}
	}
	x["usage"] = u
	return x
}

func (d *responsesAPI) begin(b *events, a *answer) {
	d.send(b, "response.created", map[string]any{"response": d.response(a, nil)})
	d.send(b, "response.in_progress", map[string]any{"response": d.response(a, nil)})
	d.send(b, "response.output_item.added", map[string]any{"output_index": 0, "item": d.item(a, "in_progress")})
	d.send(b, "response.content_part.added", d.at(a, map[string]any{"part": outputText("")}))
}

func (d *responsesAPI) delta(b *events, a *answer, text string) {
	d.send(b, "response.output_text.delta", d.at(a, map[string]any{"delta": text, "logprobs": []any{}}))
}

func (d *responsesAPI) finish(b *events, a *answer, text string) {
	d.keep(a, text)
	d.send(b, "response.output_text.done", d.at(a, map[string]any{"text": text, "logprobs": []any{}}))
	d.send(b, "response.content_part.done", d.at(a, map[string]any{"part": outputText(text)}))
	whole := d.response(a, &text)
	d.send(b, "response.output_item.done", map[string]any{"output_index": 0, "item": d.item(a, whole["status"].(string), outputText(text))})
	kind := "response.completed"
	if whole["status"] == "incomplete" {
		kind = "response.incomplete"
	}
	d.send(b, kind, map[string]any{"response": whole})
}

func (d *responsesAPI) whole(a *answer, text string) any {
	d.keep(a, text)
	return d.response(a, &text)
}

func (d *responsesAPI) keep(a *answer, text string) {
	if d.store != nil {
		list := append(make([]chatMessage, 0, len(d.list)+1), d.list...)
		d.store.put("resp_"+a.id, append(list, chatMessage{"assistant", text}))
	}
}
