package gateway

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/gateway/memnet"
)

// TestClassAndGroup: policies get the class and the group that the configured headers say, the same for the same, and the log
// has no text of them.
func TestClassAndGroup(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "policy: {gate: none, router: lmetric}\n", func(c *Config) {
			c.Identity.Class, c.Identity.Absent, c.Identity.Group = "X-Class", 3, "X-Tenant"
		})
		for _, h := range []http.Header{{}, {"X-Class": {"0"}, "X-Tenant": {"alice"}}, {"X-Class": {" 7 "}, "X-Tenant": {"bob"}}, {"X-Tenant": {"alice"}}} {
			r.sendOK(request{session: "s", header: h})
		}
		for _, h := range []http.Header{
			{"X-Class": {"8"}}, {"X-Class": {"-1"}}, {"X-Class": {"1", "2"}}, {"X-Class": {"batch"}}, {"X-Tenant": {strings.Repeat("a", 300)}}, {"X-Tenant": {"a", "b"}},
		} {
			why := "invalid_class"
			if h["X-Class"] == nil {
				why = "invalid_group"
			}
			if x := r.send(request{session: "s", header: h}); x.status != http.StatusBadRequest || x.reason != why {
				t.Errorf("%.40v: status %d, reason %q", h, x.status, x.reason)
			}
		}
		r.sendOK(request{path: "/decide", body: `{"session":"d","prompt":"p"}`, header: http.Header{"X-Class": {"5"}}})
		r.close()
		log, err := os.ReadFile(r.g.cfg.Log.Path)
		check(t, err)
		classes, groups := "", []string{}
		for _, line := range strings.Split(string(log), "\n") {
			if !strings.Contains(line, `"turn_arrived"`) {
				continue
			}
			found := regexp.MustCompile(`"class":(\d+),"group":(-?\d+)`).FindStringSubmatch(line)
			if found == nil {
				t.Fatalf("no class and group in %s", line)
			}
			classes += found[1]
			groups = append(groups, found[2])
		}
		if classes != "30735" {
			t.Errorf("classes %q", classes)
		}
		if len(groups) != 5 || groups[0] != "-1" || groups[1] == "-1" || groups[1] == groups[2] || groups[1] != groups[3] || groups[4] != "-1" {
			t.Errorf("groups %v", groups)
		}
		if strings.Contains(string(log), "alice") {
			t.Error("a tenant's name is in the log")
		}
	})
}

// TestDecideRefusesNames: what cannot name a session in a header cannot in /decide.
func TestDecideRefusesNames(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "policy: {gate: none, router: lmetric}\n", nil)
		for _, body := range []string{`{"session":"a\u0000b","prompt":"p"}`, `{"session":"a","parent":"\n","prompt":"p"}`, `{"session":"` + strings.Repeat("a", 257) + `","prompt":"p"}`} {
			if x := r.post("/decide", body); x.status != http.StatusBadRequest || x.reason != "invalid_session_id" {
				t.Errorf("%.40s: status %d, %s", body, x.status, x.body)
			}
		}
	})
}
