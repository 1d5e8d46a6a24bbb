package sse

import (
	"encoding/json"
	"math"
)

// API is the form of the answers.
type API uint8

const (
	Chat        API = iota // /v1/chat/completions
	Completions            // /v1/completions
	Responses              // /v1/responses
	Messages               // /v1/messages
)

// Usage is what an engine says that a request took, in tokens. What it did not say is not zero: see Has.
type Usage struct {
	Has          UsageField
	PromptTokens int32 // cached ones included
	OutputTokens int32
	CachedTokens int32 // of the prompt, found in the prefix cache
}

// UsageField is a set of fields of Usage.
type UsageField uint8

const (
	HasPrompt UsageField = 1 << iota
	HasOutput
	HasCached
)

// answer is what is read of an answer or of an event's data, of all APIs.
type answer struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Choices *[]choice       `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`

	Message  *answer `json:"message"`  // of a message_start
	Response *answer `json:"response"` // of a response.completed
	Status   string  `json:"status"`
}

type choice struct {
	Text         string  `json:"text"`
	Delta        *delta  `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

type delta struct {
	Content          json.RawMessage `json:"content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Refusal          json.RawMessage `json:"refusal"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
	FunctionCall     json.RawMessage `json:"function_call"`
}

// tokens says whether a choice carries any output.
func (c *choice) tokens() bool {
	if c.Text != "" {
		return true
	}
	if c.Delta == nil {
		return false
	}
	for _, v := range []json.RawMessage{c.Delta.Content, c.Delta.Reasoning, c.Delta.ReasoningContent, c.Delta.Refusal, c.Delta.ToolCalls, c.Delta.FunctionCall} {
		if s := string(v); s != "" && s != "null" && s != `""` && s != "[]" {
			return true
		}
	}
	return false
}

// counts is a usage object of any API.
type counts struct {
	PromptTokens     *float64 `json:"prompt_tokens"`
	CompletionTokens *float64 `json:"completion_tokens"`
	InputTokens      *float64 `json:"input_tokens"`
	OutputTokens     *float64 `json:"output_tokens"`
	PromptDetails    *details `json:"prompt_tokens_details"`
	InputDetails     *details `json:"input_tokens_details"`
	CacheRead        *float64 `json:"cache_read_input_tokens"`
	CacheCreation    *float64 `json:"cache_creation_input_tokens"`
}

type details struct {
	CachedTokens *float64 `json:"cached_tokens"`
}

// tokens is a count as an engine reports it; false if it is absent or no count.
func tokens(f *float64) (int32, bool) {
	if f == nil || !(*f >= 0) || *f > math.MaxInt32 || *f != math.Trunc(*f) {
		return 0, false
	}
	return int32(*f), true
}

func (u *Usage) set(field UsageField, to *int32, n int32, ok bool) {
	if ok {
		u.Has |= field
		*to = n
	}
}

// read takes over what a usage object says. The messages API counts cached tokens apart from input tokens.
func (u *Usage) read(api API, raw json.RawMessage) {
	var c counts
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &c) != nil {
		return
	}
	prompt, output := c.PromptTokens, c.CompletionTokens
	if prompt == nil {
		prompt = c.InputTokens
	}
	if output == nil {
		output = c.OutputTokens
	}
	n, ok := tokens(output)
	u.set(HasOutput, &u.OutputTokens, n, ok)
	cached := c.CacheRead
	for _, d := range []*details{c.PromptDetails, c.InputDetails} {
		if d != nil && d.CachedTokens != nil {
			cached = d.CachedTokens
		}
	}
	hit, hasHit := tokens(cached)
	n, ok = tokens(prompt)
	if ok && api == Messages {
		created, _ := tokens(c.CacheCreation)
		read, _ := tokens(c.CacheRead)
		sum := int64(n) + int64(created) + int64(read)
		n, ok = int32(min(sum, math.MaxInt32)), sum <= math.MaxInt32
	}
	u.set(HasPrompt, &u.PromptTokens, n, ok)
	if hasHit && u.Has&HasPrompt != 0 && hit > u.PromptTokens {
		hasHit = false
	}
	u.set(HasCached, &u.CachedTokens, hit, hasHit)
}

// Answer is what a whole answer says, one that is no stream.
type Answer struct {
	Usage Usage
	ID    string // of the response
}

// ReadAnswer reads the body of an answer; ok is false if it is no JSON object.
func ReadAnswer(api API, body []byte) (a Answer, ok bool) {
	var x answer
	if json.Unmarshal(body, &x) != nil {
		return a, false
	}
	a.ID = x.ID
	a.Usage.read(api, x.Usage)
	return a, true
}
