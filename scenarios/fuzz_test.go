package scenarios

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// FuzzScenario: a text is refused with a message, or decodes to a scenario whose canonical form decodes to the same digest.
func FuzzScenario(f *testing.F) {
	for _, name := range Bundled() {
		source, err := Source(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(source), "seed=2")
	}
	f.Add(small, "policy.gate=session")
	f.Add(small+"clients: {timeout_s: 1e-3, retries: 3}\n", "slo.ttft_s=1e5")
	f.Add(strings.Replace(small, "model: m", `model: "a: b\t#\u00e9"`, 1), "cluster.gpu=- x")
	f.Add(small+"faults: [{kind: slow_replica, at_s: 1e-3, factor: 2}, {kind: lost_release, at_s: 0, count: 3}]\n", "faults=[{kind: replica_down, at_s: 5, for_s: 0.5}]")
	f.Add("a: [[[[", "=")
	f.Fuzz(func(t *testing.T, text, set string) {
		s, err := Parse("fuzz.yaml", []byte(text))
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a message")
			}
			return
		}
		roundTrip(t, s)
		if over, err := s.Apply([]string{set}); err == nil {
			roundTrip(t, over)
		}
	})
}

func roundTrip(t *testing.T, s *Scenario) {
	t.Helper()
	resolved := s.Resolved()
	again, err := Parse("resolved.yaml", resolved)
	if err != nil {
		t.Fatalf("the canonical form is refused: %v\n%s", err, resolved)
	}
	if again.Digest() != s.Digest() {
		t.Fatalf("the canonical form changes when read back:\n%s\nbecomes\n%s", resolved, again.Resolved())
	}
}

// TestRandomScenariosRoundTrip draws a value for some keys of every kind and reads the canonical form back.
func TestRandomScenariosRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := Parse("", []byte(small))
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{"arrivals", "policy.gate", "policy.router", "workload.generate"} {
			s = override(t, s, join(section, shortFor(section)))
		}
		for range rapid.IntRange(0, 12).Draw(t, "keys") {
			entries := s.entries()
			s = override(t, s, entries[rapid.IntRange(0, len(entries)-1).Draw(t, "key")].key.path)
		}
		again, err := Parse("", s.Resolved())
		if err != nil {
			t.Fatalf("%v\n%s", err, s.Resolved())
		}
		if again.Digest() != s.Digest() {
			t.Fatalf("%s\nbecomes\n%s", s.Resolved(), again.Resolved())
		}
	})
}

// override sets a key to a drawn value that its declaration allows. Values that other keys rule out leave s as it is.
func override(t *rapid.T, s *Scenario, path string) *Scenario {
	var k key
	for _, e := range s.entries() {
		if e.key.path == path {
			k = e.key
		}
	}
	text := ""
	switch {
	case strings.HasSuffix(path, "name") || strings.HasSuffix(path, "preset") || k.kind == enumKey:
		names := k.enum
		for i := range declaration {
			if d := &declaration[i]; d.choice != nil && path == join(d.path, d.choice.name) {
				for _, o := range d.choice.options() {
					names = append(names, o.name)
				}
			}
		}
		if len(names) == 0 {
			return s
		}
		text = rapid.SampledFrom(names).Draw(t, path)
	case k.kind == intKey:
		text = k.format(value{integer: rapid.Int64Range(int64(k.min), int64(min(k.max, 1<<53))).Draw(t, path)})
	case k.kind == floatKey:
		text = k.format(value{number: rapid.Float64Range(k.min, k.max).Draw(t, path)})
	case k.kind == boolKey:
		text = k.format(value{boolean: rapid.Bool().Draw(t, path)})
	case k.kind == sharesKey:
		text = rapid.SampledFrom([]string{"1", "0.7,0.3", "0.25 0.25 0.5", "0,1e0,0", "0.1,0.2,0.7"}).Draw(t, path)
	case k.kind == textKey:
		text = rapid.StringMatching(`[ -~äß€]{1,20}`).Draw(t, path)
	default:
		return s
	}
	sets := []string{path + "=" + text}
	if path == "arrivals.process" && (text == "poisson" || text == "uniform") {
		sets = append(sets, "arrivals.rate_per_s=1")
	}
	next, err := s.Apply(sets)
	if err != nil && (k.kind == intKey && strings.Contains(err.Error(), "vLLM refuses") || strings.Contains(err.Error(), "keep one of the two") || path == "name" ||
		k.kind == boolKey && strings.Contains(err.Error(), "vLLM refuses")) {
		return s
	}
	if err != nil {
		t.Fatalf("%v: %v", sets, err)
	}
	return next
}
