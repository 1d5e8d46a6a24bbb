package gateway

import (
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/sluice-sim/sluice/gateway/sse"
)

// maxKeptAnswer bounds how much of an answer that is no stream is kept to read its usage.
const maxKeptAnswer = 4 << 20

// answer is an engine's answer on its way to the client. It reports the first token, the usage and the end, the latter
// before the client can see it: otherwise the session's next turn could overtake the end of this one.
type answer struct {
	f      *flight
	body   io.ReadCloser
	stream *sse.Stream // nil for an answer that is no stream
	strip  bool        // of a stream: not all that comes is passed on
	failed bool        // its status is that of an error
	length int64       // that is still to come; -1 if that is not known
	kept   []byte
	long   bool   // more came than is kept
	out    []byte // to be passed on
	ahead  []byte // of an answer of unknown length: read, but kept back until something follows or it has ended
	buf    []byte
	err    error // after out
}

// observe puts itself between the engine's answer and the client.
func (f *flight) observe(resp *http.Response) {
	a := &answer{f: f, body: resp.Body, failed: resp.StatusCode >= 400, length: resp.ContentLength}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if encoded := resp.Header.Get("Content-Encoding"); kind == "text/event-stream" && (encoded == "" || encoded == "identity") {
		a.stream, a.strip = sse.NewStream(f.api, f.strip), f.strip
		if a.strip {
			resp.Header.Del("Content-Length")
			resp.ContentLength = -1
		}
	}
	switch {
	case a.strip:
		a.buf = make([]byte, 4<<10) // events are small, and streams are many
	case a.length < 0:
		a.buf = make([]byte, 32<<10)
	}
	resp.Body = a
}

// Read implements io.Reader. Between two calls the client has the bytes to read, and the engine may have to wait for it.
func (a *answer) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	attempt := a.f.attempt
	a.f.touch()
	attempt.sending.Store(false)
	n, err := a.read(p)
	attempt.sending.Store(err == nil)
	return n, err
}

func (a *answer) read(p []byte) (int, error) {
	for {
		if len(a.out) > 0 {
			n := copy(p, a.out)
			a.out = a.out[n:]
			return n, nil
		}
		if a.err != nil {
			return 0, a.err
		}
		switch {
		case a.strip:
			n, err := a.body.Read(a.buf)
			a.out = a.stream.Write(a.buf[:n])
			a.noteStream()
			if err != nil {
				a.out = append(a.out[:len(a.out):len(a.out)], a.stream.Close()...)
				a.end(err)
			}
		case a.stream != nil:
			n, err := a.body.Read(p)
			a.stream.Write(p[:n])
			a.noteStream()
			if err != nil {
				a.stream.Close()
				a.end(err)
				err = a.err
			}
			if n > 0 || err != nil {
				return n, err
			}
		case a.length >= 0:
			n, err := a.body.Read(p)
			a.keep(p[:n])
			if a.length -= int64(n); a.length <= 0 && err == nil {
				a.f.end(a.outcome())
			}
			if err != nil {
				a.end(err)
				err = a.err
			}
			if n > 0 || err != nil {
				return n, err
			}
		default:
			n, err := a.body.Read(a.buf)
			a.keep(a.buf[:n])
			if n > 0 || err != nil {
				a.out = append(a.out[:0:0], a.ahead...)
				a.ahead = append(a.ahead[:0], a.buf[:n]...)
			}
			if err != nil {
				a.end(err)
				a.out = append(a.out, a.ahead...)
			}
		}
	}
}

// noteStream reports what the stream has shown so far.
func (a *answer) noteStream() {
	a.f.touch()
	if a.stream.FirstToken() {
		a.f.firstToken(a.stream.Usage())
		a.f.attempt.Progress(int32(min(a.stream.Pieces(), 1<<30)))
	}
	if a.stream.Done() {
		a.f.responseID = a.stream.ID()
		a.f.end(a.outcome())
	}
}

func (a *answer) keep(p []byte) {
	a.f.touch()
	if a.long = a.long || len(a.kept)+len(p) > maxKeptAnswer; !a.long {
		a.kept = append(a.kept, p...)
	}
}

// end is the end of the engine's answer: err is io.EOF if it ended well.
func (a *answer) end(err error) {
	a.err = err
	if errors.Is(err, io.EOF) {
		if a.stream != nil && !a.stream.Done() && !a.failed {
			a.err = errCutOff
			return
		}
		a.f.end(a.outcome())
		return
	}
	a.f.brokeOff()
}

// errCutOff is a stream that ended in the middle. The client must not take it for the end of the answer.
var errCutOff = errors.New("the engine's stream ended before its answer was complete")

// outcome is what became of the request, as the engine says.
func (a *answer) outcome() outcome {
	o := outcome{finished: !a.failed}
	switch {
	case a.stream != nil:
		o.usage, o.finished = a.stream.Usage(), o.finished && !a.stream.Failed()
	case !a.long:
		if x, ok := sse.ReadAnswer(a.f.api, a.kept); ok {
			o.usage, a.f.responseID = x.Usage, x.ID
		}
	}
	return o
}

// Close implements io.Closer.
func (a *answer) Close() error { return a.body.Close() }
