package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// blocks are the fenced blocks of a language in the section of README.md with this heading.
func blocks(t *testing.T, heading, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("README.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var all []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(section, -1) {
		all = append(all, m[1])
	}
	return all
}

// freePorts is the first of n ports in a row that nobody has.
func freePorts(t *testing.T, n int) int {
	t.Helper()
search:
	for port := 20000 + os.Getpid()%10000; port < 60000; port += n {
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
			if err != nil {
				continue search
			}
			_ = l.Close()
		}
		return port
	}
	t.Fatal("no free ports")
	return 0
}

// The commands of the README bring up engines and gateway, curl streams, and the log replays; with the npm clients at hand its
// JavaScript streams too. Only the ports are others.
func TestReadme(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	const heading = "Run it in front of vLLM"
	commands := blocks(t, heading, "sh")
	scripts := blocks(t, heading, "js")
	if len(commands) != 2 || len(scripts) != 1 {
		t.Fatalf("README.md: %d blocks of commands and %d of JavaScript, expected 2 and 1", len(commands), len(scripts))
	}
	start, found := strings.CutPrefix(commands[0], "make build\n")
	if !found || strings.Count(start, "\n") != 2 {
		t.Fatalf("README.md: expected make build and two more commands:\n%s", commands[0])
	}

	clone := t.TempDir()
	port := freePorts(t, 3)
	ports := strings.NewReplacer("8001", fmt.Sprint(port), "8002", fmt.Sprint(port+1), "8080", fmt.Sprint(port+2))
	for _, dir := range []string{"bin", "examples"} {
		if err := os.Mkdir(filepath.Join(clone, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(build(t), filepath.Join(clone, "bin", "sluice")); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("../examples/gateway.yaml")
	if err == nil {
		err = os.WriteFile(filepath.Join(clone, "examples", "gateway.yaml"), []byte(ports.Replace(string(config))), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	js := "true"
	if os.Getenv("SLUICE_E2E") != "" {
		script := filepath.Join(clients(t), "readme.mjs")
		if err := os.WriteFile(script, []byte(ports.Replace(scripts[0])), 0o644); err != nil {
			t.Fatal(err)
		}
		js = "node " + script
	}
	ready := fmt.Sprintf("for i in $(seq 300); do curl -sf http://127.0.0.1:%d/v1/models | grep -q llama && break; sleep 0.1; done\n", port+2)
	script := "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nset -e\n" + ports.Replace(start) + ready + js + "\necho; echo JS ENDS\n" + ports.Replace(commands[1]) + "wait\n"
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = clone
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errOut.Bytes())
	}
	said, rest, _ := strings.Cut(string(out), "JS ENDS")
	if js != "true" && !regexp.MustCompile(`(?m)^( [a-z]{3}){20}$`).MatchString(said) {
		t.Errorf("the JavaScript printed %q", said)
	}
	if n := strings.Count(rest, "data: "); n < 22 || !strings.Contains(rest, "data: [DONE]") {
		t.Errorf("curl got %d events:\n%s", n, rest)
	}
	if !regexp.MustCompile(`session +lmetric .* 0\n`).MatchString(rest) {
		t.Errorf("the log does not replay:\n%s", rest)
	}
	if _, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/health", port)); err == nil {
		t.Error("an engine still runs")
	}
}
