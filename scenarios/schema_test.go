package scenarios

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

// validator is the emitted schema, read back and resolved.
func validator(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// plain is a YAML text as JSON has it.
func plain(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Load([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSchemaAcceptsValidScenarios(t *testing.T) {
	schema := validator(t)
	texts := map[string]string{"small": small}
	for _, name := range Bundled() {
		source, _ := Source(name)
		texts[name] = string(source)
	}
	for name, text := range texts {
		for _, form := range []string{text, string(mustParse(t, text).Resolved())} {
			if err := schema.Validate(plain(t, form)); err != nil {
				t.Errorf("%s: %v\n%s", name, err, form)
			}
		}
	}
}

func TestSchemaRefusesWhatTheDecoderRefuses(t *testing.T) {
	schema := validator(t)
	for _, extra := range []string{"nmae: x", "seed: -1", "seed: 1.5", "replay: clsed", "policy: {router: sticki}", "policy: {gate: {name: none, high_watermark: 0.5}}",
		"signals: {scrape_s: fast}", "faults: [1]", "faults: [{kind: replica_dwon, at_s: 1}]", "faults: [{kind: replica_down}]",
		"faults: [{kind: replica_join, at_s: 1}]", "faults: [{kind: slow_replica, at_s: 1}]", "faults: [{kind: scrape_stall, at_s: 1, share: 0.5}]",
		"faults: [{kind: replica_down, at_s: -1}]", "slo: {ttft_s: 0}", "clients: {retries: null}"} {
		text := small + extra + "\n"
		if _, err := Parse("", []byte(text)); err == nil {
			t.Errorf("the decoder accepts %s", extra)
		}
		if err := schema.Validate(plain(t, text)); err == nil {
			t.Errorf("the schema accepts %s", extra)
		}
	}
}

func TestSchemaOfShares(t *testing.T) {
	schema := validator(t)
	for shares, want := range map[string]bool{`"0.7,0.3"`: true, `"1"`: true, `"0.5 0.5"`: true, `"0.25, 0.25, 5e-1"`: true, "1": false, `"-1,2"`: false, `"0.5;0.5"`: false,
		`""`: false, `"0.5,,0.5"`: false, `"0,0,0,0,0,0,0,0,1"`: false} {
		text := strings.Replace(small, "process: burst", "process: burst, class_shares: "+shares, 1)
		if text == small {
			t.Fatal("the small scenario has no such arrivals")
		}
		if _, err := Parse("", []byte(text)); (err == nil) != want {
			t.Errorf("the decoder on %s: %v", shares, err)
		}
		if err := schema.Validate(plain(t, text)); (err == nil) != want {
			t.Errorf("the schema on %s: %v", shares, err)
		}
	}
}

func TestSharesAreWrittenInOneWay(t *testing.T) {
	base := mustParse(t, small)
	for text, want := range map[string]string{"1": "1", "0.70 0.30": "0.7,0.3", "7e-1, .3": "0.7,0.3", "-0,1": "0,1"} {
		s, err := base.Apply([]string{"arrivals.class_shares=" + text})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := s.Value("arrivals.class_shares"); got != want {
			t.Errorf("%q is written %q, want %q", text, got, want)
		}
		if again := mustParse(t, string(s.Resolved())); again.Digest() != s.Digest() {
			t.Errorf("%q does not read back", text)
		}
	}
	arms, err := Grid(base, []string{"arrivals.class_shares=1,0.7 0.3"})
	if err != nil || len(arms) != 2 || len(arms[1].Scenario.Arrivals.ClassShares) != 2 {
		t.Errorf("varied: %v, %v", armNames(arms), err)
	}
}
