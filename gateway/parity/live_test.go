package parity

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway"
	"github.com/sluice-sim/sluice/gateway/fakevllm"
	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/gateway/recorder"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/traces"
)

// session is what one client does: turns one after another, each with a pause before it.
type session struct {
	name   string
	start  time.Duration // of the engines' time
	prompt []uint32      // of the first turn
	turns  []turn
}

type turn struct {
	pause  time.Duration // of the engines' time, after the turn before
	user   []uint32      // what the client adds
	output int
}

// sessions draws what clients do: a few system prompts that many share, prompts that grow, pauses of tools.
func sessions(seed uint64, n int) []session {
	draw := rand.New(rand.NewPCG(seed, 7))
	words := func(n int) []uint32 {
		ids := make([]uint32, n)
		for i := range ids {
			b := draw.Uint32()
			ids[i] = ' '<<24 | ('a'+b%26)<<16 | ('a'+b>>8%26)<<8 | ('a' + b>>16%26)
		}
		return ids
	}
	systems := [][]uint32{words(512), words(768), words(640)}
	var out []session
	at := time.Duration(0)
	for i := range n {
		at += time.Duration(draw.ExpFloat64() * float64(700*time.Millisecond))
		s := session{name: fmt.Sprintf("session-%d", i), start: at, prompt: append(append([]uint32(nil), systems[draw.IntN(3)]...), words(200+draw.IntN(700))...)}
		for k := range 2 + draw.IntN(4) {
			t := turn{output: 20 + draw.IntN(60)}
			if k > 0 {
				t.pause, t.user = time.Duration(200+draw.IntN(1300))*time.Millisecond, words(30+draw.IntN(200))
			}
			s.turns = append(s.turns, t)
		}
		out = append(out, s)
	}
	return out
}

// world is the engines, live and simulated.
type world struct {
	setup    latency.Setup
	replicas int
	blocks   int32
	speed    float64
	seed     uint64
	sessions int
}

func newWorld(t testing.TB, speed float64, sessions int) *world {
	m, err := latency.FindModel("llama-3.1-8b")
	check(t, err)
	g, err := latency.FindGPU("h100")
	check(t, err)
	return &world{setup: latency.Setup{Model: m, GPU: g, TensorParallel: 1}, replicas: 3, blocks: 20_000, speed: speed, seed: 1, sessions: sessions}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) engine(t testing.TB) fakevllm.Config {
	c, err := fakevllm.DefaultConfig(w.setup, blockTokens)
	check(t, err)
	c.Name, c.Blocks, c.Speed, c.Interval = "m", w.blocks, w.speed, 4
	c.Engine.MaxModelLen = 1 << 15
	c.KVEvents = &kvevents.PublisherConfig{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"}
	return c
}

const (
	blockTokens = 16
	scrapeRealS = 0.025 // between two scrapes of an engine, in real time
)

// live is what the gateway left behind.
type live struct {
	trace  *traces.Trace // as recorded
	log    []byte        // decisions
	config fakevllm.Config
}

// runLive has clients go through a gateway to fake engines.
func (w *world) runLive(t *testing.T, router string) *live {
	t.Helper()
	dir := t.TempDir()
	var config strings.Builder
	fmt.Fprintf(&config, "policy: {gate: none, router: %s}\nprompt: {basis: tokens}\nsignals: {scrape_s: %g, scrape_timeout_s: 0.5}\ndecision_log: {path: %q}\nrecorder: {dir: %q}\nreplicas:\n", router, scrapeRealS, filepath.Join(dir, "decisions.jsonl"), filepath.Join(dir, "trace"))
	out := &live{config: w.engine(t)}
	for i := range w.replicas {
		s, err := fakevllm.New(w.engine(t))
		check(t, err)
		h := httptest.NewServer(s)
		defer s.Close()
		defer h.Close()
		events, replay := s.KVEventAddrs()
		fmt.Fprintf(&config, "  - {name: r%d, url: %q, kv_tokens: %d, block_tokens: %d, kv_events: {endpoint: %q, replay: %q}}\n", i, h.URL, int64(w.blocks)*blockTokens, blockTokens, events, replay)
	}
	cfg, err := gateway.ParseConfig("parity", []byte(config.String()))
	check(t, err)
	g, err := gateway.New(cfg, gateway.Options{Version: "parity"})
	check(t, err)
	g.Start()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	server := &http.Server{Handler: g.Handler()}
	go func() { _ = server.Serve(l) }() // ends with Close
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	var clients sync.WaitGroup
	begun := time.Now()
	for _, s := range sessions(w.seed, w.sessions) {
		clients.Go(func() {
			if err := w.converse(client, "http://"+l.Addr().String(), begun, &s); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		})
	}
	clients.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	g.Stop(ctx)
	client.CloseIdleConnections()
	_ = server.Close()
	check(t, g.Close())
	out.log, err = os.ReadFile(filepath.Join(dir, "decisions.jsonl"))
	check(t, err)
	files, _ := filepath.Glob(filepath.Join(dir, "trace", "*"))
	if len(files) != 1 {
		t.Fatalf("the recorder left %v, expected one file", files)
	}
	check(t, recorder.Verify(files[0]))
	out.trace, err = traces.ReadNative(files[0], traces.Limits{})
	check(t, err)
	return out
}

// converse is one client. Times of the engines are real times, faster.
func (w *world) converse(client *http.Client, url string, begun time.Time, s *session) error {
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / w.speed) }
	time.Sleep(time.Until(begun.Add(scaled(s.start))))
	ids := s.prompt
	for _, t := range s.turns {
		time.Sleep(scaled(t.pause))
		ids = append(ids, t.user...)
		answer, err := complete(client, url, s.name, ids, t.output)
		if err != nil {
			return err
		}
		ids = append(ids, answer...)
	}
	return nil
}

// complete streams one answer and returns its tokens.
func complete(client *http.Client, url, session string, ids []uint32, output int) ([]uint32, error) {
	body, err := json.Marshal(map[string]any{"model": "m", "prompt": ids, "max_tokens": output, "ignore_eos": true, "stream": true})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Session-ID", session)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return nil, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	var text strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct{ Choices []struct{ Text string } }
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return nil, err
		}
		for _, c := range chunk.Choices {
			text.WriteString(c.Text)
		}
	}
	if text.Len() != 4*output {
		return nil, fmt.Errorf("an answer of %d bytes, expected %d tokens of 4", text.Len(), output)
	}
	answer := make([]uint32, output)
	for i := range answer {
		p := text.String()[4*i:]
		answer[i] = uint32(p[0])<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3])
	}
	return answer, nil
}
