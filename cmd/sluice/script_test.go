package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/gateway/recorder"
	"github.com/sluice-sim/sluice/prefix"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sluice": main})
}

// TestScripts runs testdata/script/*.txt: the command line as users have it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			golden, err := filepath.Abs("../../model/golden/testdata")
			env.Setenv("GOLDEN", golden)
			return err
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Getuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"isjson":  isJSON,
			"iscsv":   isCSV,
			"waitfor": waitFor,
			"samedir": sameDir,
			"readme":  readme,
			"record":  record,
		},
	})
}

// exits CODE COMMAND ARGS... runs a command and checks its exit code. Its output is there for stdout and stderr.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// isjson FILE checks that a file (or stdout) is one JSON value; with a number, an array of that length.
func isJSON(ts *testscript.TestScript, neg bool, args []string) {
	text := []byte(ts.ReadFile(args[0]))
	if neg {
		if json.Valid(text) {
			ts.Fatalf("%s is JSON", args[0])
		}
		return
	}
	if len(args) == 1 {
		if !json.Valid(text) {
			ts.Fatalf("%s is not JSON", args[0])
		}
		return
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	var rows []map[string]any
	ts.Check(json.Unmarshal(text, &rows))
	if len(rows) != want {
		ts.Fatalf("%s has %d rows, want %d", args[0], len(rows), want)
	}
}

// iscsv FILE ROWS checks that a file (or stdout) is CSV with that many rows, header included.
func isCSV(ts *testscript.TestScript, neg bool, args []string) {
	rows, err := csv.NewReader(bytes.NewReader([]byte(ts.ReadFile(args[0])))).ReadAll()
	ts.Check(err)
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	if (len(rows) == want) == neg {
		ts.Fatalf("%s has %d rows, want %d", args[0], len(rows), want)
	}
}

// waitfor PATTERN waits until a file of that pattern exists.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	for range 600 {
		if found, _ := filepath.Glob(ts.MkAbs(args[0])); len(found) > 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%s did not appear", args[0])
}

// record DIR lets the gateway's recorder write a turn of a session called alice there.
func record(ts *testscript.TestScript, neg bool, args []string) {
	secret := []byte("a secret of this installation")
	h, err := content.NewHasher(secret, 4)
	ts.Check(err)
	c, err := h.Tokens(content.Chain{}, "m", []int32{1, 2, 3, 4, 5, 6})
	ts.Check(err)
	table := content.New(&prefix.Tree{}, h, content.Options{})
	p, err := table.Place(c)
	ts.Check(err)
	r, err := recorder.New(recorder.Config{Dir: ts.MkAbs(args[0]), Secret: secret, BlockTokens: 4})
	ts.Check(err)
	r.Record(recorder.Turn{Session: "alice", Model: "m", Path: table.Path(p, nil), PromptTokens: 6, OutputTokens: 2, EndedNS: 1e9})
	ts.Check(r.Close())
}

// samedir A B checks that two folders hold the same files with the same bytes.
func sameDir(ts *testscript.TestScript, neg bool, args []string) {
	a, b := folderBytes(ts, args[0]), folderBytes(ts, args[1])
	same := len(a) == len(b) && len(a) > 0
	for name, data := range a {
		if !bytes.Equal(data, b[name]) {
			same = false
			ts.Logf("%s differs", name)
		}
	}
	if same == neg {
		ts.Fatalf("%s and %s: equal is %v", args[0], args[1], same)
	}
}

func folderBytes(ts *testscript.TestScript, dir string) map[string][]byte {
	files := map[string][]byte{}
	root := ts.MkAbs(dir)
	ts.Check(filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		files[rel] = data
		return err
	}))
	return files
}

// readme HEADING runs the commands of the first block of shell below a heading of README.md, but those that read a recorded trace.
func readme(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: readme HEADING")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	ts.Check(err)
	if gap := regexp.MustCompile(`[A-Z]+_(WARM|COLD)|TODO`).Find(text); gap != nil {
		ts.Fatalf("README.md: %s is not filled in", gap)
	}
	_, section, found := strings.Cut(string(text), "## "+args[0]+"\n")
	_, block, fenced := strings.Cut(section, "```sh\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !fenced || !closed {
		ts.Fatalf("README.md: no block of shell below %q", args[0])
	}
	ran := 0
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		command, _, _ := strings.Cut(line, "#")
		if strings.Contains(command, "traces/") {
			continue
		}
		command, file, redirected := strings.Cut(command, ">")
		words := strings.Fields(command)
		ts.Check(ts.Exec(words[0], words[1:]...))
		if redirected {
			ts.Check(os.WriteFile(ts.MkAbs(strings.TrimSpace(file)), []byte(ts.ReadFile("stdout")), 0o644))
		}
		ran++
	}
	if ran < 5 {
		ts.Fatalf("README.md: %d commands below %q, expected five or more", ran, args[0])
	}
}
