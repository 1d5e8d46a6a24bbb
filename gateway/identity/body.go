package identity

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits bounds what Parse takes. A field that is 0 has its default.
type Limits struct {
	Bytes int64 // of the body; 32 MiB
	Depth int   // of nesting; 128
	Items int   // messages, or items of the input; 100,000
}

func (l Limits) orDefault() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 32 << 20
	}
	if l.Depth <= 0 {
		l.Depth = 128
	}
	if l.Items <= 0 {
		l.Items = 100_000
	}
	return l
}

// Body is what the gateway reads in a request's JSON body. A member that is absent or of another type than expected is
// at its zero; to judge it is the engine's business. Byte slices point into the body that was parsed.
type Body struct {
	Model         string
	Stream        bool
	StreamOptions bool  // there is a member stream_options, whatever it is
	IncludeUsage  bool  // the client asks for usage in the stream
	MaxTokens     int32 // max_completion_tokens, max_output_tokens or max_tokens; 0 when it has none

	RID                string
	PromptCacheKey     string
	PreviousResponseID string
	Conversation       string // of the responses API: an id, or an object with one
	UserID             string // metadata.user_id
	User               string
	AgentContext       AgentContext

	// Tools and System come first in a prompt, then Items: the messages, the input's items, or one prompt.
	Tools  []byte // raw JSON
	System []byte // raw JSON of system or instructions
	Items  [][]byte
	// TokenIDs is the raw JSON array when the prompt is given as token ids, nil otherwise.
	TokenIDs []byte
	// Chat says that Items are messages.
	Chat bool
}

// AgentContext is nvext.agent_context.
type AgentContext struct {
	Session, Trajectory, ParentTrajectory string
	Final                                 bool
}

// BodyError is a body that is refused.
type BodyError struct {
	TooLarge bool // over a limit; otherwise it is not the JSON that is expected
	What     string
	Err      error
}

func (e *BodyError) Error() string {
	if e.Err != nil {
		return "request body: " + e.What + ": " + e.Err.Error()
	}
	return "request body: " + e.What
}

func (e *BodyError) Unwrap() error { return e.Err }

// Parse reads a body. It must be one JSON object without duplicate names, valid UTF-8 and within the limits; the error
// is a *BodyError.
func Parse(raw []byte, limits Limits) (*Body, error) {
	l := limits.orDefault()
	if int64(len(raw)) > l.Bytes {
		return nil, &BodyError{TooLarge: true, What: fmt.Sprintf("%d bytes, at most %d are taken", len(raw), l.Bytes)}
	}
	if d := depth(raw, l.Depth); d > l.Depth {
		return nil, &BodyError{TooLarge: true, What: fmt.Sprintf("nested deeper than %d", l.Depth)}
	}
	p := parser{raw: raw, limits: l, body: &Body{}, dec: jsontext.NewDecoder(bytes.NewReader(raw))}
	if err := p.object(p.member); err != nil {
		return nil, refuse(err)
	}
	if _, err := p.dec.ReadToken(); err == nil {
		return nil, &BodyError{What: "more than one JSON value"}
	} else if p.rest() {
		return nil, &BodyError{What: "bytes after the JSON value"}
	}
	return p.body, nil
}

func refuse(err error) error {
	if b, ok := err.(*BodyError); ok {
		return b
	}
	return &BodyError{What: "no JSON object that can be read", Err: plain(err)}
}

// plain tells where the fault is and leaves out what stands there.
func plain(err error) error {
	if s, ok := err.(*jsontext.SyntacticError); ok {
		return fmt.Errorf("invalid JSON at byte %d", s.ByteOffset)
	}
	return fmt.Errorf("invalid JSON")
}

// depth is how deep the brackets are nested, without a look at the grammar; it stops above most.
func depth(raw []byte, most int) int {
	now, deepest := 0, 0
	inString := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if now++; now > deepest {
				if deepest = now; deepest > most {
					return deepest
				}
			}
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

type parser struct {
	raw    []byte
	limits Limits
	body   *Body
	dec    *jsontext.Decoder
}

// rest says whether anything but white space follows.
func (p *parser) rest() bool {
	return len(bytes.TrimLeft(p.raw[p.dec.InputOffset():], " \t\r\n")) > 0
}

// object reads an object, or skips a value of another kind.
func (p *parser) object(member func(name string) error) error {
	if p.dec.PeekKind() != '{' {
		if p.dec.StackDepth() == 0 {
			if _, err := p.dec.ReadToken(); err != nil {
				return err
			}
			return &BodyError{What: "a JSON value that is no object"}
		}
		return p.dec.SkipValue()
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return err
	}
	for p.dec.PeekKind() != '}' {
		name, err := p.dec.ReadToken()
		if err != nil {
			return err
		}
		if err := member(name.String()); err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return err
}

func (p *parser) member(name string) error {
	b := p.body
	switch name {
	case "model":
		return p.text(&b.Model)
	case "stream":
		return p.flag(&b.Stream)
	case "stream_options":
		b.StreamOptions = true
		return p.object(func(name string) error {
			if name == "include_usage" {
				return p.flag(&b.IncludeUsage)
			}
			return p.dec.SkipValue()
		})
	case "max_completion_tokens", "max_output_tokens", "max_tokens":
		return p.count(&b.MaxTokens, name == "max_tokens" && b.MaxTokens > 0)
	case "rid":
		return p.text(&b.RID)
	case "prompt_cache_key":
		return p.text(&b.PromptCacheKey)
	case "previous_response_id":
		return p.text(&b.PreviousResponseID)
	case "user":
		return p.text(&b.User)
	case "conversation":
		if p.dec.PeekKind() == '"' {
			return p.text(&b.Conversation)
		}
		return p.object(p.only("id", &b.Conversation))
	case "metadata":
		return p.object(p.only("user_id", &b.UserID))
	case "nvext":
		return p.object(p.nvext)
	case "tools":
		return p.value(&b.Tools)
	case "system", "instructions":
		return p.value(&b.System)
	case "messages":
		b.Chat = true
		return p.items()
	case "input", "prompt":
		return p.items()
	}
	return p.dec.SkipValue()
}

func (p *parser) nvext(name string) error {
	if name != "agent_context" {
		return p.dec.SkipValue()
	}
	c := &p.body.AgentContext
	return p.object(func(name string) error {
		switch name {
		case "session_id":
			return p.text(&c.Session)
		case "trajectory_id":
			return p.text(&c.Trajectory)
		case "parent_trajectory_id":
			return p.text(&c.ParentTrajectory)
		case "trajectory_final":
			return p.flag(&c.Final)
		}
		return p.dec.SkipValue()
	})
}

func (p *parser) only(member string, to *string) func(string) error {
	return func(name string) error {
		if name == member {
			return p.text(to)
		}
		return p.dec.SkipValue()
	}
}

// items reads the elements of an array, or one value. An array that begins with a number is token ids.
func (p *parser) items() error {
	b := p.body
	if p.dec.PeekKind() != '[' {
		var one []byte
		if err := p.value(&one); err != nil {
			return err
		}
		b.Items = append(b.Items, one)
		return nil
	}
	start := p.dec.InputOffset()
	if _, err := p.dec.ReadToken(); err != nil {
		return err
	}
	ids := p.dec.PeekKind() == '0'
	for p.dec.PeekKind() != ']' {
		if ids {
			if err := p.dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		if len(b.Items) == p.limits.Items {
			return &BodyError{TooLarge: true, What: fmt.Sprintf("more than %d messages", p.limits.Items)}
		}
		var one []byte
		if err := p.value(&one); err != nil {
			return err
		}
		b.Items = append(b.Items, one)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return err
	}
	if ids {
		all := p.raw[start:p.dec.InputOffset()]
		b.TokenIDs = all[bytes.IndexByte(all, '['):]
	}
	return nil
}

// value reads any value and keeps where it stands.
func (p *parser) value(to *[]byte) error {
	v, err := p.dec.ReadValue()
	if err != nil {
		return err
	}
	end := p.dec.InputOffset()
	*to = p.raw[end-int64(len(v)) : end]
	return nil
}

func (p *parser) text(to *string) error {
	if p.dec.PeekKind() != '"' {
		return p.dec.SkipValue()
	}
	t, err := p.dec.ReadToken()
	if err == nil {
		*to = t.String()
	}
	return err
}

func (p *parser) flag(to *bool) error {
	if k := p.dec.PeekKind(); k != 't' && k != 'f' {
		return p.dec.SkipValue()
	}
	t, err := p.dec.ReadToken()
	if err == nil {
		*to = t.Bool()
	}
	return err
}

// count reads a whole number above 0; keep leaves what is there.
func (p *parser) count(to *int32, keep bool) error {
	v, err := p.dec.ReadValue()
	if err != nil || keep {
		return err
	}
	if f, err := strconv.ParseFloat(string(v), 64); err == nil && f >= 1 && f == math.Trunc(f) {
		*to = int32(min(f, math.MaxInt32))
	}
	return nil
}

// FirstBlocks is the system prompt and all messages up to the first one of the user: what stays equal when a
// conversation grows. It is empty when there is no message.
func (b *Body) FirstBlocks() [][]byte {
	var spans [][]byte
	if len(b.System) > 0 {
		spans = append(spans, b.System)
	}
	for _, m := range b.Items {
		spans = append(spans, m)
		if !b.Chat || role(m) == "user" {
			return spans
		}
	}
	if len(b.TokenIDs) > 0 || len(b.Items) == 0 {
		return nil
	}
	return spans
}

// role is the role of a message.
func role(message []byte) string {
	var of string
	p := parser{raw: message, dec: jsontext.NewDecoder(bytes.NewReader(message))}
	if p.dec.PeekKind() != '{' || p.object(p.only("role", &of)) != nil {
		return ""
	}
	return of
}

// Spans is the prompt in the order in which an engine's template puts it, as raw JSON: tools, system, items. A prompt that
// is another's beginning gives spans that are the other's beginning.
func (b *Body) Spans(dst [][]byte) [][]byte {
	for _, s := range [][]byte{b.Tools, b.System} {
		if len(s) > 0 {
			dst = append(dst, s)
		}
	}
	return append(dst, b.Items...)
}
