package fakevllm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/model/latency"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit)) }

// rig is a server with a client.
type rig struct {
	t      *testing.T
	server *Server
	client *http.Client
	close  func()
}

// small is a server of an 8B model on an H100 with a small cache, in real time.
func small(t testing.TB) Config {
	t.Helper()
	m, err := latency.FindModel("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	g, err := latency.FindGPU("h100")
	if err != nil {
		t.Fatal(err)
	}
	c, err := DefaultConfig(latency.Setup{Model: m, GPU: g}, 16)
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.Blocks, c.AllowFaults = "test", 1000, true
	return c
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var network memnet.Network
	listener := network.Listen("engine:80")
	srv := &http.Server{Handler: s, ErrorLog: nil}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(listener) }()
	transport := &http.Transport{DialContext: network.Dial}
	return &rig{t: t, server: s, client: &http.Client{Transport: transport}, close: func() {
		transport.CloseIdleConnections()
		s.Close()
		_ = srv.Close()
		<-served
	}}
}

// send makes a request; the caller closes the body.
func (r *rig) send(ctx context.Context, path, body string) *http.Response {
	r.t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	return resp
}

// do makes a request and returns status and body.
func (r *rig) do(path, body string) (int, []byte) {
	r.t.Helper()
	resp := r.send(context.Background(), path, body)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, data
}

// get decodes the answer of a request that must succeed.
func get[T any](r *rig, path, body string) T {
	r.t.Helper()
	status, data := r.do(path, body)
	if status != http.StatusOK {
		r.t.Fatalf("%s: status %d: %s", path, status, data)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		r.t.Fatalf("%s: %v in %s", path, err, data)
	}
	return v
}

// event is one server-sent event with when it came.
type event struct {
	name string
	data string
	at   time.Time
}

// eventsOf reads a stream to its end.
func eventsOf(body io.Reader) (list []event, err error) {
	lines := bufio.NewReader(body)
	name := ""
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return list, nil
		} else if err != nil {
			return list, err
		}
		line = strings.TrimSuffix(line, "\n")
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			list = append(list, event{name, d, time.Now()})
			name = ""
		}
	}
}

// stream makes a streaming request and reads it to its end.
func (r *rig) stream(path, body string) []event {
	r.t.Helper()
	resp := r.send(context.Background(), path, body)
	defer resp.Body.Close()
	list, err := eventsOf(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: status %d, %v", path, resp.StatusCode, err)
	}
	return list
}

// jsonOf is a value as JSON.
func jsonOf(v any) string {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(v)
	return b.String()
}
