package sse

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// eventsOf is the events of chunks: their raw bytes, "long" for one that is too long.
func eventsOf(chunks ...[]byte) []string {
	var s Splitter
	var out []string
	emit := func(e Event) {
		if e.Long {
			out = append(out, "long")
			return
		}
		out = append(out, string(e.Raw))
	}
	for _, c := range chunks {
		s.Write(c, emit)
	}
	s.Close(emit)
	return out
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"data: a\n\n", []string{"data: a\n\n"}},
		{"data: a\n\ndata: b\n\n", []string{"data: a\n\n", "data: b\n\n"}},
		{"data: a\r\n\r\ndata: b\r\n\r\n", []string{"data: a\r\n\r\n", "data: b\r\n\r\n"}},
		{"data: a\r\rdata: b\r\r", []string{"data: a\r\r", "data: b\r\r"}},
		{"data: a\n\r\ndata: b\r\n\ndata: c\r\n\r", []string{"data: a\n\r\n", "data: b\r\n\n", "data: c\r\n\r"}},
		{"event: x\ndata: a\ndata: b\n\n", []string{"event: x\ndata: a\ndata: b\n\n"}},
		{"\n\n: ping\n\n", []string{"\n", "\n", ": ping\n\n"}},
		{"data: a", []string{"data: a"}},
		{"data: a\n", []string{"data: a\n"}},
	} {
		if diff := cmp.Diff(c.want, eventsOf([]byte(c.in))); diff != "" {
			t.Errorf("%q (-expected +got):\n%s", c.in, diff)
		}
	}
}

func TestFields(t *testing.T) {
	for _, c := range []struct{ in, kind, data string }{
		{"data: a\n\n", "", "a"},
		{"data:a\r\n\r\n", "", "a"},
		{"data:  a\n\n", "", " a"},
		{"event: x\ndata: a\n\n", "x", "a"},
		{"data: a\nevent: x\ndata: b\rdata: c\n\n", "x", "a\nb\nc"},
		{"data\n\n", "", ""},
		{": data: a\nid: 7\nretry: 5\n\n", "", ""},
		{"\xef\xbb\xbfdata: a\n\n", "", "a"},
		{"data: a", "", "a"},
		{"Data: a\ndat: b\n\n", "", ""},
	} {
		kind, data := Event{Raw: []byte(c.in)}.Fields(nil)
		if string(kind) != c.kind || string(data) != c.data {
			t.Errorf("%q: kind %q, data %q, expected %q and %q", c.in, kind, data, c.kind, c.data)
		}
	}
}

// split cuts b at random places.
func split(t *rapid.T, b []byte) [][]byte {
	var chunks [][]byte
	for len(b) > 0 {
		n := min(len(b), rapid.SampledFrom([]int{1, 1, 2, 3, 10, 100, 5000, 1 << 22}).Draw(t, "chunk"))
		chunks, b = append(chunks, b[:n]), b[n:]
	}
	return chunks
}

// drawStream is a stream that looks like an engine's, or like nothing.
func drawStream(t *rapid.T) []byte {
	pieces := rapid.SampledFrom([]string{
		"data: ", "data:", "event: message_delta", "event: response.completed", "id: 1", ": ping", "\n", "\n\n", "\r\n\r\n", "\r", "\r\n", "x",
		`{"id":"c","choices":[{"delta":{"content":"a"}}]}`, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}`, "[DONE]", "\xef\xbb\xbf",
		`{"choices":[{"delta":{"content":"\"usage\""}}],"usage":null}`, strings.Repeat("y", 70),
		"\n\ndata: " + `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}` + "\n\n",
	})
	b := []byte(strings.Join(rapid.SliceOfN(pieces, 0, 40).Draw(t, "pieces"), ""))
	if rapid.IntRange(0, 30).Draw(t, "long") == 0 {
		at := rapid.IntRange(0, len(b)).Draw(t, "at")
		b = slices.Insert(b, at, bytes.Repeat([]byte("z"), MaxEventBytes+rapid.IntRange(-10, 10).Draw(t, "over"))...)
	}
	return b
}

// Where chunks end changes nothing: not the events, not what passes through, not what is read.
func TestChunksDoNotMatter(t *testing.T) {
	stripped := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawStream(t)
		chunks := split(t, in)
		whole := eventsOf(in)
		if diff := cmp.Diff(whole, eventsOf(chunks...)); diff != "" {
			t.Fatalf("%q in chunks %q (-whole +chunks):\n%.2000s", in, chunks, diff)
		}
		if joined := strings.Join(whole, ""); !slices.Contains(whole, "long") && joined != string(in) {
			t.Fatalf("the events are %q, the stream %q", joined, in)
		}
		for _, strip := range []bool{false, true} {
			api := rapid.SampledFrom([]API{Chat, Completions, Responses, Messages}).Draw(t, "api")
			one, many := NewStream(api, strip), NewStream(api, strip)
			var a, b []byte
			a = append(append(a, one.Write(slices.Clone(in))...), one.Close()...)
			for _, c := range chunks {
				c = slices.Clone(c)
				b = append(b, many.Write(c)...)
				clear(c) // nothing of a chunk is kept
			}
			b = append(b, many.Close()...)
			if !bytes.Equal(a, b) {
				t.Fatalf("strip %v: %q went out, in chunks %q", strip, a, b)
			}
			if one.FirstToken() != many.FirstToken() || one.Done() != many.Done() || one.Failed() != many.Failed() || one.Usage() != many.Usage() ||
				one.Pieces() != many.Pieces() || one.ID() != many.ID() {
				t.Fatalf("strip %v: read %+v, in chunks %+v", strip, one, many)
			}
			if !strip && !bytes.Equal(a, in) {
				t.Fatalf("%q went out of %q", a, in)
			}
			if strip && !bytes.Equal(a, in) {
				stripped++
				if want := withoutUsage(whole); !slices.Contains(whole, "long") && (api != Chat && api != Completions || string(a) != want) {
					t.Fatalf("%q went out of %q, expected %q", a, in, want)
				}
			}
		}
	})
	if stripped == 0 {
		t.Error("nothing was ever stripped")
	}
}

// withoutUsage leaves out the events that hold the one usage object of drawStream and nothing else.
func withoutUsage(events []string) string {
	var out strings.Builder
	for _, e := range events {
		if _, data := (Event{Raw: []byte(e)}).Fields(nil); string(bytes.TrimSpace(data)) != `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}` {
			out.WriteString(e)
		}
	}
	return out.String()
}

const (
	chatStream = `data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Hel"}}]}

data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}

data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":12,"total_tokens":14,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}

data: [DONE]

`
	completionStream = `data: {"id":"cmpl-1","choices":[{"index":0,"text":"Hel","finish_reason":null}],"usage":null}

data: {"id":"cmpl-1","choices":[{"index":0,"text":"lo","finish_reason":"stop"}],"usage":null}

data: {"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":12,"total_tokens":14,"completion_tokens":2}}

data: [DONE]

`
	responsesStream = `event: response.created
data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","item":{}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"Hel"}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"lo"}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_1","usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":8},"output_tokens":2}}}

`
	messagesStream = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":3,"cache_creation_input_tokens":1,"cache_read_input_tokens":8,"output_tokens":0}}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

`
)

func TestStreams(t *testing.T) {
	all := Usage{HasPrompt | HasOutput | HasCached, 12, 2, 8}
	for _, c := range []struct {
		name   string
		api    API
		in     string
		first  string // the event with the first token begins so
		usage  Usage
		id     string
		pieces int64
	}{
		{"chat", Chat, chatStream, `data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Hel"`, all, "chatcmpl-1", 2},
		{"completions", Completions, completionStream, `data: {"id":"cmpl-1"`, Usage{HasPrompt | HasOutput, 12, 2, 0}, "cmpl-1", 2},
		{"responses", Responses, responsesStream, "event: response.output_text.delta", all, "resp_1", 2},
		{"messages", Messages, messagesStream, "event: content_block_delta", all, "msg_1", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewStream(c.api, false)
			for _, e := range eventsOf([]byte(c.in)) {
				before := s.FirstToken()
				if string(s.Write([]byte(e))) != e {
					t.Error("the stream was changed")
				}
				if !before && s.FirstToken() && !strings.HasPrefix(e, c.first) {
					t.Errorf("the first token came with %q", e)
				}
			}
			if s.Usage() != c.usage || !s.Done() || s.Failed() || s.ID() != c.id || s.Pieces() != c.pieces || !s.FirstToken() {
				t.Errorf("usage %+v, done %v, failed %v, id %q, pieces %d", s.Usage(), s.Done(), s.Failed(), s.ID(), s.Pieces())
			}
			cut := NewStream(c.api, false)
			cut.Write([]byte(c.in[:len(c.in)/2]))
			cut.Close()
			if cut.Done() {
				t.Error("half a stream is done")
			}
		})
	}
}

func TestStrip(t *testing.T) {
	for _, c := range []struct {
		name string
		api  API
		in   string
		gone int // index of the event that is gone, -1 for none
	}{
		{"chat", Chat, chatStream, 3},
		{"completions", Completions, completionStream, 2},
		{"responses have no such event", Responses, responsesStream, -1},
		{"messages have no such event", Messages, messagesStream, -1},
		{"usage beside a choice stays", Chat, strings.Replace(chatStream, `"choices":[],`, `"choices":[{"index":0,"delta":{}}],`, 1), -1},
		{"carriage returns", Chat, strings.ReplaceAll(chatStream, "\n", "\r\n"), 3},
		{"bare carriage returns", Chat, strings.ReplaceAll(chatStream, "\n", "\r"), 3},
		{"the last event without its end", Chat, strings.TrimRight(chatStream[:strings.Index(chatStream, "data: [DONE]")], "\n"), 3},
	} {
		events := eventsOf([]byte(c.in))
		if c.gone >= 0 {
			events = slices.Delete(events, c.gone, c.gone+1)
		}
		want := strings.Join(events, "")
		s := NewStream(c.api, true)
		got := string(s.Write([]byte(c.in)))
		got += string(s.Close())
		if got != want {
			t.Errorf("%s: got\n%q\nexpected\n%q", c.name, got, want)
		}
		if s.Usage().Has&HasOutput == 0 {
			t.Errorf("%s: the usage was not read", c.name)
		}
	}
}

// An event goes out as soon as it has ended, and one that is too long as it comes.
func TestStripDoesNotHoldBack(t *testing.T) {
	s := NewStream(Chat, true)
	event := `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	if got := string(s.Write([]byte(event))); got != event {
		t.Errorf("%q went out at once, expected all", got)
	}
	if got := string(s.Write([]byte(event[:10]))); got != "" {
		t.Errorf("%q went out before the end", got)
	}
	if got := string(s.Write([]byte(event[10:] + "data"))); got != event {
		t.Errorf("%q went out, expected the whole event", got)
	}
	long := bytes.Repeat([]byte("x"), MaxEventBytes)
	if got := s.Write(long); len(got) != len(long)+4 {
		t.Errorf("%d bytes of a long event went out, expected %d", len(got), len(long)+4)
	}
	if got := string(s.Write([]byte("y\n\n" + event))); got != "y\n\n"+event {
		t.Errorf("%q after it", got)
	}
	if cap(s.splitter.buf) > 2*MaxEventBytes {
		t.Errorf("%d bytes are kept", cap(s.splitter.buf))
	}
}

func TestFailuresInTheStream(t *testing.T) {
	for api, in := range map[API]string{
		Chat:      `data: {"error":{"message":"out of memory","code":500}}` + "\n\n",
		Responses: "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\"}}\n\n",
		Messages:  "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
	} {
		s := NewStream(api, false)
		s.Write([]byte(in))
		if !s.Failed() || s.Done() || s.FirstToken() {
			t.Errorf("API %d: failed %v, done %v, first token %v", api, s.Failed(), s.Done(), s.FirstToken())
		}
	}
}

func TestFirstTokens(t *testing.T) {
	for delta, first := range map[string]bool{
		`{"role":"assistant"}`: false, `{"content":""}`: false, `{"content":null}`: false, `{}`: false, `{"tool_calls":[]}`: false,
		`{"content":"a"}`: true, `{"reasoning_content":"a"}`: true, `{"reasoning":"a"}`: true, `{"refusal":"a"}`: true,
		`{"tool_calls":[{"index":0}]}`: true, `{"function_call":{"name":"f"}}`: true,
	} {
		s := NewStream(Chat, false)
		s.Write([]byte(`data: {"choices":[{"delta":` + delta + "}]}\n\n"))
		if s.FirstToken() != first {
			t.Errorf("delta %s: first token %v", delta, s.FirstToken())
		}
	}
}

func TestReadAnswer(t *testing.T) {
	for _, c := range []struct {
		api  API
		body string
		want Usage
		id   string
		ok   bool
	}{
		{Chat, `{"id":"c","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":12,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}`, Usage{7, 12, 2, 8}, "c", true},
		{Chat, `{"id":"c","usage":{"prompt_tokens":12,"completion_tokens":2,"prompt_tokens_details":null}}`, Usage{3, 12, 2, 0}, "c", true},
		{Responses, `{"id":"r","usage":{"input_tokens":12,"output_tokens":2,"input_tokens_details":{"cached_tokens":0}}}`, Usage{7, 12, 2, 0}, "r", true},
		{Messages, `{"id":"m","usage":{"input_tokens":4,"output_tokens":2,"cache_read_input_tokens":8}}`, Usage{7, 12, 2, 8}, "m", true},
		{Messages, `{"id":"m","usage":{"input_tokens":12,"output_tokens":2}}`, Usage{3, 12, 2, 0}, "m", true},
		{Chat, `{"usage":{"prompt_tokens":-1,"completion_tokens":2.5,"prompt_tokens_details":{"cached_tokens":1e300}}}`, Usage{}, "", true},
		{Chat, `{"usage":{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":5}}}`, Usage{HasPrompt, 4, 0, 0}, "", true},
		{Messages, fmt.Sprintf(`{"usage":{"input_tokens":%d,"cache_read_input_tokens":%d}}`, math.MaxInt32, math.MaxInt32), Usage{HasCached, 0, 0, math.MaxInt32}, "", true},
		{Chat, `{"usage":[]}`, Usage{}, "", true},
		{Chat, `{"usage":"none"}`, Usage{}, "", true},
		{Chat, `[]`, Usage{}, "", false},
		{Chat, ``, Usage{}, "", false},
	} {
		got, ok := ReadAnswer(c.api, []byte(c.body))
		if got.Usage != c.want || got.ID != c.id || ok != c.ok {
			t.Errorf("%s: %+v, %v, expected %+v, %q, %v", c.body, got, ok, c.want, c.id, c.ok)
		}
	}
}

// Whatever an engine sends, in whatever chunks: it passes through, memory is bounded, and counts are counts.
func FuzzStream(f *testing.F) {
	for i, s := range []string{chatStream, completionStream, responsesStream, messagesStream} {
		f.Add([]byte(s), uint8(i), uint16(7))
		f.Add([]byte(strings.ReplaceAll(s, "\n", "\r")), uint8(i), uint16(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, api uint8, chunk uint16) {
		plain, strip := NewStream(API(api%4), false), NewStream(API(api%4), true)
		var a, b []byte
		for rest := in; len(rest) > 0; {
			n := min(len(rest), int(chunk)+1)
			a = append(a, plain.Write(rest[:n])...)
			b = append(b, strip.Write(rest[:n])...)
			rest = rest[n:]
		}
		a, b = append(a, plain.Close()...), append(b, strip.Close()...)
		if !bytes.Equal(a, in) {
			t.Fatalf("%q went out of %q", a, in)
		}
		if len(b) > len(in) || plain.Usage() != strip.Usage() || plain.Pieces() != strip.Pieces() || plain.Done() != strip.Done() {
			t.Fatalf("stripped, %q went out of %q; read %+v and %+v", b, in, plain, strip)
		}
		u := plain.Usage()
		if u.PromptTokens < 0 || u.OutputTokens < 0 || u.CachedTokens < 0 || u.Has&HasPrompt == 0 && u.PromptTokens != 0 {
			t.Fatalf("usage %+v", u)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	event := []byte(`data: {"id":"chatcmpl-0123456789","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	for _, strip := range []bool{false, true} {
		b.Run(fmt.Sprintf("strip=%v", strip), func(b *testing.B) {
			s := NewStream(Chat, strip)
			s.Write(event)
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				s.Write(event)
			}
		})
	}
}
