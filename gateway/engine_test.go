package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway/fakevllm"
	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/gateway/recorder"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/traces"
)

// fakeEngine is a fake vLLM on a socket, a thousand times as fast as a real one.
func fakeEngine(t testing.TB, change func(*fakevllm.Config)) (*fakevllm.Server, *httptest.Server) {
	t.Helper()
	m, err := latency.FindModel("llama-3.1-8b")
	check(t, err)
	g, err := latency.FindGPU("h100")
	check(t, err)
	c, err := fakevllm.DefaultConfig(latency.Setup{Model: m, GPU: g}, 16)
	check(t, err)
	c.Name, c.Blocks, c.AllowFaults, c.Speed = "test", 2000, true, 1000
	c.KVEvents = &kvevents.PublisherConfig{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"}
	if change != nil {
		change(&c)
	}
	e, err := fakevllm.New(c)
	check(t, err)
	s := httptest.NewServer(e)
	t.Cleanup(func() { s.CloseClientConnections(); e.Close(); s.Close() })
	return e, s
}

// talk is the messages of a session that grows.
type talk struct{ messages []map[string]string }

func (c *talk) ask(text string) string {
	c.messages = append(c.messages, map[string]string{"role": "user", "content": text})
	return c.body()
}

func (c *talk) body() string {
	b, err := json.Marshal(map[string]any{"model": "test", "messages": c.messages, "max_tokens": 40, "stream": true, "ignore_eos": true})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// heard takes the answer's text out of a stream.
func (c *talk) heard(stream string) {
	text := ""
	for line := range strings.Lines(stream) {
		var x struct {
			Choices []struct {
				Delta struct{ Content string }
			}
		}
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && json.Unmarshal([]byte(data), &x) == nil && len(x.Choices) > 0 {
			text += x.Choices[0].Delta.Content
		}
	}
	c.messages = append(c.messages, map[string]string{"role": "assistant", "content": text})
}

// TestInFrontOfEngines runs sessions through the gateway against two fake engines with token hashes, KV events, probes and the
// recorder: what the KV events say is what the engines' own answers say, sessions stay where their prefix is, a restart is
// noticed, the log replays and the trace can be read.
func TestInFrontOfEngines(t *testing.T) {
	source, dir := "replicas:\n", t.TempDir()
	var engines []*fakevllm.Server
	for i := range 2 {
		e, s := fakeEngine(t, nil)
		engines = append(engines, e)
		events, replay := e.KVEventAddrs()
		source += fmt.Sprintf("  - {name: r%d, url: %q, kv_events: {endpoint: %q, replay: %q}}\n", i, s.URL, events, replay)
	}
	source += `health: {period_s: 0.05}
signals: {scrape_s: 0.05, probe: {path: /sluice/resident, timeout_s: 2}}
prompt: {basis: tokens, source: render, timeout_s: 5}
policy: {gate: session, router: smetric}
`
	c, err := ParseConfig("test", []byte(source))
	check(t, err)
	c.Log.Path, c.Recorder.Dir = filepath.Join(dir, "d.jsonl"), filepath.Join(dir, "recorded")
	logged := &lockedBuffer{}
	g, err := New(c, Options{Version: "test", Log: slog.New(slog.NewTextHandler(logged, nil))})
	check(t, err)
	if k := g.driver.cfg.Core.Capabilities[0]; k.BlockTokens != 16 || k.KVTokens < 16*1900 {
		t.Errorf("capacities as /metrics say: %+v", k)
	}
	g.Start()
	s := httptest.NewServer(g.Handler())
	defer s.Close()
	r := &rig{t: t, g: g, url: s.URL, client: &http.Client{Timeout: 10 * time.Second, Transport: s.Client().Transport}, log: logged}
	var homes [4]string
	var held [4]int64 // tokens of each session whose KV its engine has computed
	talks := make([]talk, 4)
	watermark := func(w float64) {
		p := c.Policy
		p.Gate.Params = maps.Clone(p.Gate.Params)
		p.Gate.Params["high_watermark"] = number(w)
		check(t, g.driver.Reknob(p))
	}
	for turn := range 4 {
		if turn == 1 {
			watermark(0) // from now on only what is resident goes
		}
		for i := range talks {
			x := r.sendOK(request{session: fmt.Sprint("s", i), body: talks[i].ask(strings.Repeat(fmt.Sprintf("question %d of %d. ", turn, i), 60/(1+10*turn)))})
			talks[i].heard(x.body)
			if turn > 0 && x.replica != homes[i] {
				t.Errorf("turn %d of session %d went to %s, its prefix is on %s", turn, i, x.replica, homes[i])
			}
			homes[i] = x.replica
			r.settled()
			held[i] = r.lastTokens() - 1
			// Events come after the answer; the next turn is to find all that this one has stored.
			blocks := int64(0)
			for _, n := range held {
				blocks += n / 16
			}
			until(t, "KV events of all that is held", func() bool { return g.contentCounts()["resident_blocks"] >= blocks })
		}
	}
	if homes == [4]string{homes[0], homes[0], homes[0], homes[0]} {
		t.Errorf("all sessions are on one replica: %v", homes)
	}
	r.sawCaches()
	if n := g.contentCounts(); n["unplaced"] != 0 || n["resident_blocks"] == 0 || n["held"] != 0 {
		t.Errorf("content %v", n)
	}

	watermark(1)
	until(t, "a scrape with counters", func() bool { n, _ := r.state("r0").Sample["prefix_query_tokens"].(int64); return n > 0 })
	check(t, engines[0].SetFaults(fakevllm.Faults{Restart: true}))
	until(t, "the restart noticed", func() bool { return strings.Contains(logged.String(), "replica restarted") })
	until(t, "both up", func() bool { return r.state("r0").State == "up" && r.state("r1").State == "up" })
	for i := range talks {
		talks[i].heard(r.sendOK(request{session: fmt.Sprint("s", i), body: talks[i].ask("and now?")}).body)
	}

	resp, err := http.Post(c.Replicas[1].URL+"/sleep", "", nil)
	check(t, err)
	resp.Body.Close()
	until(t, "asleep", func() bool { return r.state("r1").State == "draining" })
	until(t, "what it held is void", func() bool { return g.contentCounts()["resident_blocks"] < 200 })

	a := g.driver.Audit()
	if a.Imbalance() != 0 || a.Live != 0 || a.Finished != 20 {
		t.Errorf("accounts %+v", a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	g.Stop(ctx)
	s.CloseClientConnections()
	check(t, g.Close())
	r.replay()
	readRecorded(t, c.Recorder.Dir)
}

// lastTokens is the prompt and output tokens of the turn that ended last.
func (r *rig) lastTokens() int64 {
	r.t.Helper()
	tokens := int64(-1)
	for line := range strings.Lines(string(r.g.file.Last(50))) {
		var step struct {
			Facts []struct {
				Fact   string
				Prompt int64 `json:"prompt_tokens"`
				Output int64 `json:"output_tokens"`
			}
		}
		if json.Unmarshal([]byte(line), &step) != nil {
			continue
		}
		for _, f := range step.Facts {
			if f.Fact == "finished" {
				tokens = f.Prompt + f.Output
			}
		}
	}
	if tokens < 0 {
		r.t.Fatal("no turn has ended")
	}
	return tokens
}

// sawCaches requires that the core heard of what engines hold, and that turns found it there.
func (r *rig) sawCaches() {
	t := r.t
	t.Helper()
	log := string(r.g.file.Last(500))
	for _, want := range []string{`"fact":"blocks_stored"`, `"fact":"prefix_probed"`, `"reason":"resident_prefix"`, `"fact":"first_token"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the core never heard or said %s", want)
		}
	}
	hits := 0
	for line := range strings.Lines(log) {
		var step struct {
			Facts []struct {
				Fact string
				Hit  int32 `json:"hit_tokens"`
			}
			Commands []struct {
				Command string
				Scores  []struct {
					Replica int32
					Hit     float64 `json:"hit_tokens"`
				}
			}
		}
		if json.Unmarshal([]byte(line), &step) != nil {
			continue
		}
		for _, f := range step.Facts {
			if f.Fact == "finished" && f.Hit > 0 {
				hits++
			}
		}
	}
	if hits < 12 {
		t.Errorf("%d turns found some of their prompt in the cache, expected 12", hits)
	}
}

// readRecorded reads the trace of the only file of a folder.
func readRecorded(t *testing.T, dir string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if len(files) != 1 {
		t.Fatalf("recorded files: %v", files)
	}
	check(t, recorder.Verify(files[0]))
	tr, err := traces.ReadNative(files[0], traces.Limits{})
	check(t, err)
	turns := 0
	for i := range tr.Sessions {
		for _, x := range tr.Sessions[i].Turns {
			turns++
			if x.OutputTokens != 40 || x.Prompt.Tokens < 100 {
				t.Errorf("a recorded turn: %+v", x)
			}
		}
	}
	if turns != 20 || len(tr.Sessions) != 4 {
		t.Errorf("%d turns of %d sessions were recorded", turns, len(tr.Sessions))
	}
}
