package gateway

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the reference of keys into the documentation")

const docsFile = "../docs/gateway.md"

// TestDocsPage: the table of keys is that of the declarations, and every test that the table of failures names exists, and
// the other way round.
func TestDocsPage(t *testing.T) {
	data, err := os.ReadFile(docsFile)
	check(t, err)
	page := string(data)
	const from, to = "<!-- reference -->\n", "<!-- end -->"
	begin, end := strings.Index(page, from)+len(from), strings.Index(page, to)
	if begin < len(from) || end < begin {
		t.Fatal("the page has no place for the reference")
	}
	want := page[:begin] + Reference() + page[end:]
	if *update {
		check(t, os.WriteFile(docsFile, []byte(want), 0o644))
	} else if page != want {
		t.Errorf("%s differs from the declarations; run: go test ./gateway -run TestDocsPage -update", docsFile)
	}
	var tests []byte
	for _, name := range []string{"failures_test.go", "failures_clients_test.go"} {
		data, err := os.ReadFile(name)
		check(t, err)
		tests = append(tests, data...)
	}
	names := func(pattern, text string) map[string]bool {
		all := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all[m[1]] = true
		}
		return all
	}
	told, there := names("`(TestFailure[A-Za-z]+)`", page), names(`(?m)^func (TestFailure[A-Za-z]+)\(`, string(tests))
	for name := range told {
		if !there[name] {
			t.Errorf("the page names %s, which does not exist", name)
		}
	}
	for name := range there {
		if !told[name] {
			t.Errorf("%s is in no row of the page", name)
		}
	}
	for _, path := range []string{"/decide", "/release", "/finish_session", "/debug/state", "/decisions", "/metrics", "/health", "/v1/models"} {
		if !strings.Contains(page, path) {
			t.Errorf("the page does not name %s", path)
		}
	}
}
