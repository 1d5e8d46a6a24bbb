package sse

import (
	"bytes"
	"encoding/json"
)

// Stream is one answer that passes through. It is used by one goroutine.
type Stream struct {
	api      API
	strip    bool
	splitter Splitter
	out      []byte
	buf      []byte

	usage  Usage
	first  bool
	done   bool
	failed bool
	pieces int64
	id     string
}

// NewStream returns a stream of answers in the form of api. With strip, the event that holds only usage is not forwarded:
// the gateway asked for it and the client did not. Only Chat and Completions have such an event.
func NewStream(api API, strip bool) *Stream {
	return &Stream{api: api, strip: strip && (api == Chat || api == Completions)}
}

// Write takes the next chunk from the engine and returns what goes to the client now. Without stripping that is the chunk
// itself; with it, an event goes out when it has ended. The result is valid until the next call.
func (s *Stream) Write(p []byte) []byte {
	if !s.strip {
		s.splitter.Write(p, func(e Event) { s.read(e) })
		return p
	}
	s.out = s.out[:0]
	for len(p) > 0 {
		n, ended := s.splitter.next(p)
		s.pass(p[:n], ended)
		p = p[n:]
	}
	return s.out
}

// Close returns what is still held back. It is called when the engine's answer has ended, well or not.
func (s *Stream) Close() []byte {
	s.out = s.out[:0]
	if !s.strip {
		s.splitter.Close(func(e Event) { s.read(e) })
		return s.out
	}
	if len(s.splitter.buf) > 0 || s.splitter.dropped {
		s.pass(nil, true)
	}
	return s.out
}

// pass forwards an event when it has ended. An event that is too long to be kept is forwarded as it comes: it is none of
// usage.
func (s *Stream) pass(p []byte, ended bool) {
	sp := &s.splitter
	if sp.dropped {
		s.out = append(append(s.out, sp.buf...), p...)
		sp.buf = sp.buf[:0]
		if ended {
			sp.begin()
		}
		return
	}
	if !ended {
		return
	}
	if usageOnly := s.read(Event{Raw: sp.buf}); !usageOnly {
		s.out = append(s.out, sp.buf...)
	}
	sp.begin()
}

var (
	doneMark  = []byte("[DONE]")
	usageName = []byte(`"usage"`)
	errorName = []byte(`"error"`)
)

// read takes in an event and says whether it holds nothing but usage.
func (s *Stream) read(e Event) (usageOnly bool) {
	if e.Long {
		s.pieces++
		return false
	}
	kind, data := e.Fields(s.buf)
	if len(data) == 0 {
		return false
	}
	if bytes.Equal(bytes.TrimSpace(data), doneMark) {
		s.done = true
		return false
	}
	if s.api == Responses || s.api == Messages {
		s.readTyped(string(kind), data)
		return false
	}
	if s.first && !bytes.Contains(data, usageName) && !bytes.Contains(data, errorName) {
		s.pieces++ // the common case, a piece of the answer
		return false
	}
	var a answer
	if json.Unmarshal(data, &a) != nil {
		return false
	}
	s.usage.read(s.api, a.Usage)
	if a.ID != "" {
		s.id = a.ID
	}
	if text := string(a.Error); text != "" && text != "null" {
		s.failed = true
	}
	if a.Choices == nil {
		return false
	}
	for i := range *a.Choices {
		if (*a.Choices)[i].tokens() {
			s.first = true
			s.pieces++
			break
		}
	}
	return len(*a.Choices) == 0 && len(a.Usage) > 0 && a.Usage[0] == '{'
}

// readTyped takes in an event of an API whose events have a type.
func (s *Stream) readTyped(kind string, data []byte) {
	switch kind {
	case "response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed",
		"message_start", "message_delta", "message_stop", "error", "":
		var a answer
		if json.Unmarshal(data, &a) != nil {
			return
		}
		if kind == "" {
			kind = a.Type
		}
		s.usage.read(s.api, a.Usage)
		for _, inner := range []*answer{a.Message, a.Response} {
			if inner != nil {
				s.usage.read(s.api, inner.Usage)
				if inner.ID != "" {
					s.id = inner.ID
				}
			}
		}
	}
	switch kind {
	case "content_block_delta", "response.output_text.delta", "response.reasoning_text.delta", "response.reasoning_summary_text.delta",
		"response.function_call_arguments.delta", "response.refusal.delta":
		s.first = true
		s.pieces++
	case "response.completed", "response.incomplete", "message_stop":
		s.done = true
	case "response.failed", "error":
		s.failed = true
	}
}

// FirstToken says whether a token has come.
func (s *Stream) FirstToken() bool { return s.first }

// Done says whether the engine said that the answer is complete. A stream that ends before was cut off.
func (s *Stream) Done() bool { return s.done }

// Failed says whether the engine reported an error within the stream.
func (s *Stream) Failed() bool { return s.failed }

// Usage is what the engine reported so far.
func (s *Stream) Usage() Usage { return s.usage }

// Pieces is how many events carried output: where the engine sends one event a token, the tokens so far.
func (s *Stream) Pieces() int64 { return s.pieces }

// ID is the answer's id, "" until it came.
func (s *Stream) ID() string { return s.id }
