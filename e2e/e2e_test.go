// Package e2e runs the official npm clients against sluice. It needs node and, the first time, a package registry, so that it
// runs only when SLUICE_E2E is set, as `make e2e` does.
package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is a sluice process that serves.
type server struct {
	cmd  *exec.Cmd
	url  string
	tail chan string // what it said after its first line
}

var address = regexp.MustCompile(`http://[0-9.]+:[0-9]+`)

// start runs a sluice command that prints its address in its first line, and stops it at the end of the test: with Ctrl-C, upon
// which it must exit with 0.
func start(t *testing.T, binary string, args ...string) *server {
	t.Helper()
	s := &server{cmd: exec.Command(binary, args...), tail: make(chan string, 1)}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if s.url = address.FindString(first); s.url == "" {
		t.Fatalf("sluice %s: no address in %q (%v)", strings.Join(args, " "), first, err)
	}
	go func() {
		var rest bytes.Buffer
		_, _ = rest.ReadFrom(lines)
		s.tail <- rest.String()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(os.Interrupt)
		rest := <-s.tail
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("sluice %s: %v\n%s", strings.Join(args, " "), err, rest)
		}
	})
	return s
}

// scratch is a folder for all tests.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "sluice-e2e-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

var compiled = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(scratch, "sluice")
	out, err := exec.Command("go", "build", "-o", binary, "../cmd/sluice").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return binary, err
})

// build compiles sluice.
func build(t *testing.T) string {
	t.Helper()
	binary, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// clients is a folder with the tests and the packages they need, installed again when the lock file has changed.
func clients(t *testing.T) string {
	t.Helper()
	if os.Getenv("SLUICE_E2E") == "" {
		t.Skip("the npm clients run with `make e2e` only")
	}
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		t.Fatalf("node: %v; install node 20 or later with npm", err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		t.Skipf("node is %s; the clients need 20 or later", version)
	}
	dir, err := filepath.Abs("../build/e2e")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.mjs")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	installed, _ := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	for _, name := range append(files, "package.json") {
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(lock, installed) {
		return dir
	}
	partial := filepath.Join(dir, "package-lock.json")
	if err := os.WriteFile(partial, lock, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.Remove(partial) // it is not installed
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

// run runs the tests of the clients against a server in front of engines.
func run(t *testing.T, dir, base string, engines ...string) {
	t.Helper()
	cmd := exec.Command("node", "--test", "--test-concurrency=1", "--test-reporter=tap")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SLUICE_E2E_BASE="+base, "SLUICE_E2E_ENGINES="+strings.Join(engines, ","), "SLUICE_E2E_MODEL="+model)
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node --test: %v\n%s", err, out)
	}
	passed := regexp.MustCompile(`(?m)^# pass (\d+)$`).FindSubmatch(out)
	if passed == nil || string(passed[1]) == "0" {
		t.Fatalf("no test ran:\n%s", out)
	}
	t.Logf("%s tests of the clients passed against %s", passed[1], base)
}

const model = "llama-3.1-8b"

// engineArgs is a fake engine on a free port, twice as fast as real, whose answers end at max_tokens.
var engineArgs = []string{"engine", "--port", "0", "--speed", "2", "--kv-blocks", "4000", "--output-tokens", "20000", "--allow-faults"}

func TestClientsAgainstTheEngine(t *testing.T) {
	dir := clients(t)
	engine := start(t, build(t), engineArgs...)
	run(t, dir, engine.url, engine.url)
}

// The lock file names no registry, so that it installs from whichever one the machine uses.
func TestLockNamesNoRegistry(t *testing.T) {
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("://")) || bytes.Contains(data, []byte(`"resolved"`)) {
			t.Errorf("%s has an address in it; write it with npm install --omit-lockfile-registry-resolved=true", name)
		}
	}
}

// The same through the gateway, in front of two engines, with its log replayed afterwards.
func TestClientsThroughTheGateway(t *testing.T) {
	dir := clients(t)
	binary := build(t)
	folder := t.TempDir()
	var engines []string
	config := "listen: 127.0.0.1:0\ndecision_log: {path: decisions.jsonl}\nprompt: {basis: tokens}\nsignals: {scrape_s: 0.1}\n" +
		"policy: {gate: session, router: lmetric}\nreplicas:\n"
	for range 2 {
		url := start(t, binary, engineArgs...).url
		engines = append(engines, url)
		config += fmt.Sprintf("  - {name: engine-%d, url: %q}\n", len(engines), url)
	}
	file := filepath.Join(folder, "gateway.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("served", func(t *testing.T) { // the gateway ends with it
		gateway := start(t, binary, "gateway", "--config", file, "--quiet")
		run(t, dir, gateway.url, engines...)
	})
	out, err := exec.Command(binary, "replay-decisions", filepath.Join(folder, "decisions.jsonl"), "--json").CombinedOutput()
	if err != nil {
		t.Fatalf("replay-decisions: %v\n%s", err, out)
	}
	t.Logf("replayed: %s", bytes.TrimSpace(out))
	if !bytes.Contains(out, []byte(`"differences": 0`)) {
		t.Errorf("replay-decisions: %s", out)
	}
}
