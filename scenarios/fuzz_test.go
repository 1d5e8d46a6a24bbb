package scenarios

import (
	"strings"
	"testing"
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
