package catalog_test

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
)

func all() []policies.Declaration {
	return append(append(catalog.Gates(), catalog.Routers()...), catalog.Retentions()...)
}

// built is how many kinds of policy d builds.
func built(d policies.Declaration) (n int) {
	for _, is := range []bool{d.NewGate != nil, d.NewRouter != nil, d.NewRetention != nil} {
		if is {
			n++
		}
	}
	return n
}

func TestDeclarationsAreComplete(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	knob := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, d := range all() {
		kind := d.Name
		if d.NewRetention != nil {
			kind += " (retention)" // there is a gate none and a retention none
		}
		if !name.MatchString(d.Name) || seen[kind] || d.Doc == "" || d.Source == "" || d.Missing == "" || built(d) != 1 {
			t.Errorf("%q is not complete, not unique or badly named", d.Name)
		}
		seen[kind] = true
		knobs := map[string]bool{}
		for _, k := range d.Knobs {
			if !knob.MatchString(k.Name) || knobs[k.Name] || k.Doc == "" {
				t.Errorf("%s: knob %q is not complete, not unique or badly named", d.Name, k.Name)
			}
			knobs[k.Name] = true
			if err := d.Check(policies.Params{k.Name: k.Default}); err != nil {
				t.Errorf("its own default is refused: %v", err)
			}
			if k.Unit == "s" && !strings.HasSuffix(k.Name, "_s") {
				t.Errorf("%s: knob %s is in seconds and does not say so", d.Name, k.Name)
			}
		}
	}
}

func TestSignalsFollowTheKnobs(t *testing.T) {
	for _, d := range all() {
		if extra := d.Signals(nil) &^ d.Needs; extra != 0 {
			t.Errorf("%s: by default it needs %b beyond what it declares", d.Name, extra)
		}
	}
	for _, c := range []struct {
		router, knob string
		value        policies.Value
		want         bool
	}{
		{"smg-cache-aware", "index", policies.Value{Text: "tree"}, false},
		{"smg-cache-aware", "index", policies.Value{Text: "events"}, true},
		{"llm-d", "preset", policies.Value{Text: "default"}, false},
		{"llm-d", "preset", policies.Value{Text: "precise-prefix"}, true},
		{"llm-d", "prefix", policies.Value{Text: "events"}, true},
		{"dynamo", "kv_events", policies.Value{Bool: true}, true},
		{"dynamo", "kv_events", policies.Value{Bool: false}, false},
		{"lmetric", "include_queue", policies.Value{Bool: false}, true},
	} {
		d, err := catalog.FindRouter(c.router)
		if err != nil {
			t.Fatal(err)
		}
		s := d.Signals(policies.Params{c.knob: c.value})
		if got := s&policies.NeedsKVEvents != 0; got != c.want || s&^d.Needs != 0 {
			t.Errorf("%s with %s %v: needs %b", c.router, c.knob, c.value, s)
		}
	}
}

func TestEveryPolicyIsBuilt(t *testing.T) {
	for _, d := range catalog.Gates() {
		if g, err := catalog.BuildGate(d.Name, policies.Env{}, nil); err != nil || g == nil {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
	for _, d := range catalog.Routers() {
		if r, err := catalog.BuildRouter(d.Name, policies.Env{}, policies.Params{}); err != nil || r == nil {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
}

func TestErrors(t *testing.T) {
	gate := func(name string, p policies.Params) error {
		_, err := catalog.BuildGate(name, policies.Env{}, p)
		return err
	}
	router := func(name string, p policies.Params) error {
		_, err := catalog.BuildRouter(name, policies.Env{}, p)
		return err
	}
	num := func(x float64) policies.Value { return policies.Value{Number: x} }
	var names []string
	for _, d := range catalog.Routers() {
		names = append(names, d.Name)
	}
	routers := strings.Join(names, ", ")
	for _, c := range []struct {
		err  error
		want string
	}{
		{gate("sesion", nil), `no gate "sesion"; did you mean "session"?`},
		{router("rr", nil), `no router "rr"; there are ` + routers},
		{router("smetrics", nil), `no router "smetrics"; did you mean "smetric"?`},
		{router("session", nil), `no router "session"; there are ` + routers},
		{gate("session", policies.Params{"high_watermrk": num(.9)}), `session: no knob "high_watermrk"; did you mean "high_watermark"?`},
		{gate("none", policies.Params{"x": num(.9)}), `none: no knob "x"; it has none`},
		{gate("session", policies.Params{"preset": {Text: "shipped"}}), `session: preset is "shipped"; did you mean "as-shipped"?`},
		{gate("session", policies.Params{"usage": {Text: "p99"}}), `session: usage is "p99"; there are owner, mean, max`},
		{gate("session", policies.Params{"idle_grace_s": num(-1)}), `session: idle_grace_s is -1, must be from 0 to 1e+06 s`},
		{gate("session", policies.Params{"idle_grace_s": num(math.NaN())}), `session: idle_grace_s is NaN, must be from 0 to 1e+06 s`},
		{gate("max-sessions", policies.Params{"max_sessions": num(0)}), `max-sessions: max_sessions is 0, must be from 1 to 1e+06 sessions`},
		{gate("max-sessions", policies.Params{"max_sessions": num(1.5)}), `max-sessions: max_sessions is 1.5, must be a whole number`},
		{router("bailian", policies.Params{"zz": num(1), "yyyy": num(1)}), `bailian: no knob "yyyy"; there are form, lambda, a, b, top_k, batch`},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}

// root is the repository's root.
func root(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		t.Fatal("no go.mod above the test")
	}
}
