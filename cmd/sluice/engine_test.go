package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// served runs a command that prints its address in its first line, until stop; code is its exit code.
func served(t *testing.T, args ...string) (url string, stop func() (code int, out, errOut string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var errOut bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- execute(ctx, args, strings.NewReader(""), w, &errOut)
		_ = w.Close()
	}()
	lines := bufio.NewReader(r)
	first, _ := lines.ReadString('\n')
	if url = regexp.MustCompile(`http://[0-9.]+:[0-9]+`).FindString(first); url == "" {
		cancel()
		_, _ = io.Copy(io.Discard, lines)
		t.Fatalf("sluice %s: exit code %d, no address in %q; %s", strings.Join(args, " "), <-done, first, errOut.String())
	}
	rest := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(lines)
		rest <- first + string(text)
	}()
	return url, func() (int, string, string) {
		cancel()
		out := <-rest
		return <-done, out, errOut.String()
	}
}

// Ctrl-C lets a request under way finish; what comes then finds nobody.
func TestEngineDrains(t *testing.T) {
	url, stop := served(t, "engine", "--port", "0", "--speed", "10", "--kv-events", "tcp://*:0", "--kv-events-replay", "tcp://*:0")
	// With its headers it is under way.
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"x","max_tokens":500,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if n := bytes.Count(text, []byte("data: ")); n != 502 {
			t.Errorf("%d events, want 502", n)
		}
		answered <- err
	}()
	code, out, errOut := stop()
	if err := <-answered; err != nil {
		t.Errorf("the request under way failed: %v", err)
	}
	if code != 0 || errOut != "" || !strings.Contains(out, "KV events on tcp://") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if _, err := http.Get(url + "/health"); err == nil {
		t.Error("it still answers")
	}
}

// --replicas runs several servers, each with its own cache, and all end together.
func TestEngineReplicas(t *testing.T) {
	_, stop := served(t, "engine", "--port", "0", "--replicas", "3", "--speed", "100")
	code, out, errOut := stop()
	if urls := regexp.MustCompile(`http://[0-9.]+:[0-9]+`).FindAllString(out, -1); code != 0 || len(urls) != 3 || urls[0] == urls[1] || urls[1] == urls[2] {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	_, stop = served(t, "engine", "--scenario", "demo", "--port", "0", "--speed", "100")
	code, out, errOut = stop()
	if n := strings.Count(out, "qwen3-30b-a3b on http"); code != 0 || n != 4 {
		t.Errorf("the engines of the scenario: exit code %d, %q, %q", code, out, errOut)
	}
	if got := nthEndpoint("tcp://*:5557", 2); got != "tcp://*:5559" {
		t.Errorf("the third endpoint is %s", got)
	}
}
