// Package load holds what the gateway is measured and worn out by: many streaming sessions at once in front of engines that
// cost nothing, compared with the same proxy without a policy, and a soak with random faults in front of fake engines.
package load

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-sim/sluice/gateway"
	"github.com/sluice-sim/sluice/gateway/recorder"
	"github.com/sluice-sim/sluice/policies/decisionlog"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSessions has many sessions stream through a gateway at once. Every turn must finish, and nothing may be left.
func TestSessions(t *testing.T) {
	for _, policy := range []string{"{gate: session, router: lmetric}", "{gate: {name: max-requests, max_requests: 60}, router: sticky}"} {
		t.Run(policy, func(t *testing.T) {
			dir := t.TempDir()
			var urls []string
			for range 3 {
				url, stop, err := serve(stub{pace{First: 20 * time.Millisecond, Every: 5 * time.Millisecond, Tokens: 8}}.handler())
				check(t, err)
				defer stop()
				urls = append(urls, url)
			}
			w := workload{sessions: 200, turns: 4, ramp: 100 * time.Millisecond, gap: 20 * time.Millisecond, bytes: 2000, more: 500}
			g := start(t, fmt.Sprintf("policy: %s\ndecision_log: {path: %q}\nrecorder: {dir: %q}\n", policy, filepath.Join(dir, "decisions.jsonl"), filepath.Join(dir, "trace")), urls)
			client := newClient(w.sessions)
			_, err := w.run(t.Context(), client, g.url)
			check(t, err)
			client.CloseIdleConnections()
			a := g.stop()
			if turns := int64(w.sessions * w.turns); a.Arrived != turns || a.Finished != turns || a.Sessions != int64(w.sessions) {
				t.Errorf("accounts %+v, expected %d turns of %d sessions, all finished", a, turns, w.sessions)
			}
			replay(t, filepath.Join(dir, "decisions.jsonl"))
			verifyRecords(t, filepath.Join(dir, "trace"))
		})
	}
}

// running is a gateway that serves.
type running struct {
	t    testing.TB
	g    *gateway.Gateway
	url  string
	stop func() gateway.Audit // drains, and returns the accounts, which must balance
}

// start serves a gateway in front of engines.
func start(t testing.TB, source string, engines []string) *running {
	t.Helper()
	return serveGateway(t, configure(source, engines))
}

// serveGateway serves a gateway.
func serveGateway(t testing.TB, config string) *running {
	t.Helper()
	cfg, err := gateway.ParseConfig("load", []byte(config))
	check(t, err)
	g, err := gateway.New(cfg, gateway.Options{Version: "load"})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- g.Serve(ctx, func(api, _ net.Addr) { ready <- api }) }()
	r := &running{t: t, g: g}
	select {
	case addr := <-ready:
		r.url = "http://" + addr.String()
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	r.stop = func() gateway.Audit {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		a := g.Driver().Audit()
		if a.Imbalance() != 0 || a.Live != 0 || a.Waiting != 0 || a.LogErrors != 0 {
			t.Errorf("accounts at the end: %+v", a)
		}
		return a
	}
	return r
}

// configure adds to a configuration the engines and the address.
func configure(source string, engines []string) string {
	var b strings.Builder
	b.WriteString("listen: 127.0.0.1:0\n" + source + "replicas:\n")
	for i, url := range engines {
		fmt.Fprintf(&b, "  - {name: r%d, url: %q, kv_tokens: 1000000, block_tokens: 16}\n", i, url)
	}
	return b.String()
}

// replay has the core repeat what a decision log says, and returns how many steps that were.
func replay(t testing.TB, path string) int64 {
	t.Helper()
	data, err := os.ReadFile(path)
	check(t, err)
	out, err := decisionlog.Replay(func(yield func([]byte, error) bool) {
		for line := range strings.Lines(string(data)) {
			if !yield([]byte(line), nil) {
				return
			}
		}
	})
	if err != nil {
		t.Errorf("the decision log does not replay: %v", err)
	}
	return out.Steps
}

// verifyRecords reads what the recorder left.
func verifyRecords(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	check(t, err)
	if len(files) == 0 {
		t.Errorf("the recorder left nothing in %s", dir)
	}
	for _, f := range files {
		if err := recorder.Verify(f); err != nil {
			t.Error(err)
		}
	}
}
