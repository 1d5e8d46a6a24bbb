package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// workload is sessions whose turns stream, each after the answer to the one before and the run of a tool.
type workload struct {
	sessions, turns int
	ramp            time.Duration // the sessions start spread over it
	gap             time.Duration // mean run of a tool; between half and one and a half of it
	bytes, more     int           // of the first prompt of a session, half of it shared by all; and of each further turn
}

// turn is when things happened to a turn, in nanoseconds of the machine's clock: the client began to send it and the engine
// had it; the engine sent its first and its last token and the client got them.
type turn struct{ began, here, sent, got, sentLast, gotLast int64 }

// firstToken is what the way adds to the time to the first token.
func (t turn) firstToken() time.Duration { return time.Duration(t.here - t.began + t.got - t.sent) }

// whole is what the way adds to the time of the turn.
func (t turn) whole() time.Duration { return time.Duration(t.here - t.began + t.gotLast - t.sentLast) }

// newClient has a connection for every session.
func newClient(sessions int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: sessions, MaxIdleConns: sessions, DisableCompression: true, IdleConnTimeout: time.Minute,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
	}}
}

// run has every session go through its turns and returns what was seen of them, or the first error.
func (w *workload) run(ctx context.Context, client *http.Client, url string) ([]turn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := make([]turn, w.sessions*w.turns)
	var sessions sync.WaitGroup
	for i := range w.sessions {
		sessions.Go(func() {
			if err := w.session(ctx, client, url, i, all[i*w.turns:(i+1)*w.turns]); err != nil {
				cancel(fmt.Errorf("session %d: %w", i, err))
			}
		})
	}
	sessions.Wait()
	return all, context.Cause(ctx)
}

// session is one client.
func (w *workload) session(ctx context.Context, client *http.Client, url string, number int, seen []turn) error {
	draw := rand.New(rand.NewPCG(1, uint64(number)))
	if !pause(ctx, time.Duration(draw.Int64N(int64(w.ramp)+1))) {
		return ctx.Err()
	}
	name := "session-" + strconv.Itoa(number)
	body := w.opening(number)
	for i := range seen {
		if i > 0 {
			if !pause(ctx, w.gap/2+time.Duration(draw.Int64N(int64(w.gap)+1))) {
				return ctx.Err()
			}
			body = append(body, fmt.Sprintf(`,{"role":"assistant","content":"words"},{"role":"tool","content":"%s"}`, text(number*1000+i, w.more))...)
		}
		var err error
		if seen[i], err = ask(ctx, client, url, name, append(slices.Clip(body), "]}"...)); err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
	}
	return nil
}

// opening is a request up to the end of its first message. What all sessions share comes first.
func (w *workload) opening(number int) []byte {
	return fmt.Appendf(nil, `{"model":"m","stream":true,"max_tokens":100,"messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s"}`,
		text(0, w.bytes/2), text(number+1, w.bytes/2))
}

// text is n bytes that follow from a seed.
func text(seed, n int) string {
	draw := rand.New(rand.NewPCG(2, uint64(seed)))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%08x ", draw.Uint32())
	}
	return b.String()[:n]
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask streams one answer.
func ask(ctx context.Context, client *http.Client, url, session string, body []byte) (t turn, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return t, err
	}
	req.Header.Set("X-Session-ID", session)
	t.began = time.Now().UnixNano()
	resp, err := client.Do(req)
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return t, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if t.here, err = strconv.ParseInt(resp.Header.Get(hereHeader), 10, 64); err != nil {
		return t, err
	}
	lines := bufio.NewReader(resp.Body)
	for tokens := 0; ; {
		line, err := lines.ReadSlice('\n')
		now := time.Now().UnixNano()
		if err != nil {
			return t, fmt.Errorf("after %d tokens: %w", tokens, err)
		}
		if bytes.HasPrefix(line, []byte("data: [DONE]")) {
			_, err = io.Copy(io.Discard, lines)
			return t, err
		}
		_, after, ok := bytes.Cut(line, []byte(sentField))
		if !ok {
			continue
		}
		t.gotLast = now
		if t.sentLast, err = strconv.ParseInt(string(after[:bytes.IndexByte(after, '}')]), 10, 64); err != nil {
			return t, err
		}
		if tokens == 0 {
			t.sent, t.got = t.sentLast, t.gotLast
		}
		tokens++
	}
}

// quantile is that of a figure of the turns, in milliseconds.
func quantile(turns []turn, q float64, figure func(turn) time.Duration) float64 {
	all := make([]time.Duration, len(turns))
	for i, t := range turns {
		all[i] = figure(t)
	}
	slices.Sort(all)
	return float64(all[int(q*float64(len(all)-1))]) / 1e6
}
