package fakevllm

import (
	"bytes"
	"io"
	"net/http/httptest"
	"sync"
	"testing"
)

// BenchmarkStreams is the cost of a streamed token, client included: 200 streams at once, as fast as they go.
func BenchmarkStreams(b *testing.B) {
	cfg := small(b)
	cfg.Speed, cfg.Blocks = 1e6, 20000
	s, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ts := httptest.NewServer(s)
	defer ts.Close()
	const streams = 200
	n := max(b.N/streams, 1)
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			for left := n; left > 0; left -= 500 {
				resp, err := ts.Client().Post(ts.URL+"/v1/chat/completions", "application/json", bytes.NewBufferString(
					chatOf([]map[string]string{{"role": "user", "content": string(rune('a' + i%26))}}, min(left, 500), map[string]any{"stream": true, "ignore_eos": true})))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	all.Wait()
}
