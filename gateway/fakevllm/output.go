package fakevllm

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

// answer is what an API says of a request's answer.
type answer struct {
	id       string
	created  int64
	model    string
	prompt   int32 // tokens
	produced int32
	cached   int32
	details  bool   // say how many were cached
	reason   string // stop, length, abort; empty before the end
}

// dialect is how one API writes an answer.
type dialect interface {
	begin(b *events, a *answer)               // comes with the first token
	delta(b *events, a *answer, text string)  // one token
	finish(b *events, a *answer, text string) // behind the last; text is all of the answer
	whole(a *answer, text string) any         // without streaming
}

// events collects server-sent events.
type events struct{ bytes.Buffer }

// data adds an event without a name.
func (b *events) data(v any) { b.event("", v) }

func (b *events) event(name string, v any) {
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	b.WriteString("data: ")
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // of maps and structs of our own
	}
	b.Write(body)
	b.WriteString("\n\n")
}

// output brings one answer to its client.
type output struct {
	server   *Server
	core     *core
	request  *request
	dialect  dialect
	answer   answer
	dieAfter int32 // cut the connection after so many tokens; 0 does not
}

// next waits until the engine has more than sent tokens or has ended the request; false if the client has gone.
func (o *output) next(ctx context.Context, sent int32) (ended, ok bool) {
	for {
		select {
		case <-o.request.news:
		case <-ctx.Done():
			return false, false
		}
		var reason string
		o.answer.produced, o.answer.cached, ended, reason = o.core.progress(o.request)
		switch {
		case reason == killed:
			panic(http.ErrAbortHandler)
		case ended:
			o.answer.reason = reason
			return true, true
		case o.answer.produced > sent:
			return false, true
		}
	}
}

// stream writes server-sent events: one for each token, those that came together in one piece.
func (o *output) stream(ctx context.Context, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	flusher := http.NewResponseController(w)
	_ = flusher.Flush() // vLLM sends the header at once
	var b events
	sent := int32(0)
	for {
		ended, ok := o.next(ctx, sent)
		if !ok {
			return
		}
		a := &o.answer
		produced := a.produced
		if sent == 0 {
			o.server.pause(ctx, o.server.law.APISeconds())
			a.produced = 0
			o.dialect.begin(&b, a)
		}
		for ; sent < produced; sent++ {
			if o.dieAfter > 0 && sent >= o.dieAfter {
				_, _ = w.Write(b.Bytes())
				_ = flusher.Flush()
				panic(http.ErrAbortHandler)
			}
			a.produced = sent + 1
			if text := o.request.visible(sent, sent+1); text != "" {
				o.dialect.delta(&b, a, text)
			}
		}
		a.produced = produced
		if ended {
			o.dialect.finish(&b, a, o.request.visible(0, produced))
		}
		if _, err := w.Write(b.Bytes()); err != nil || ended {
			return
		}
		_ = flusher.Flush()
		b.Reset()
	}
}

// whole writes the answer when it is complete.
func (o *output) whole(ctx context.Context, w http.ResponseWriter) *problem {
	for {
		ended, ok := o.next(ctx, o.answer.produced)
		if !ok {
			return nil
		}
		if n := o.dieAfter; n > 0 && o.answer.produced >= n {
			panic(http.ErrAbortHandler)
		}
		if ended {
			break
		}
	}
	o.server.pause(ctx, o.server.law.APISeconds())
	writeJSON(w, http.StatusOK, o.dialect.whole(&o.answer, o.request.visible(0, o.answer.produced)))
	return nil
}
