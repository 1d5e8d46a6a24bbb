package scenarios

import (
	"encoding/json"
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
