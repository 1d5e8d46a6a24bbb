package scenarios

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestFaults reads one fault of every kind, with the keys that it needs and no other.
func TestFaults(t *testing.T) {
	s := mustParse(t, small+`
faults:
  - {kind: replica_down, at_s: 10, for_s: 5, replica: 1, detect_s: 2}
  - {kind: replica_restart, at_s: 20}
  - {kind: replica_join, at_s: 1, replica: 0}
  - {kind: replica_drain, at_s: 2}
  - {kind: slow_replica, at_s: 3, factor: 2.5}
  - {kind: error_burst, at_s: 4, share: 0.25}
  - {kind: scrape_stall, at_s: 5}
  - {kind: stale_counters, at_s: 6}
  - kind: lost_release
    at_s: 0
    releases: cancelled
    count: 3
  - {kind: client_disconnect, at_s: 7, for_s: 1, share: 0.02}
`)
	if len(s.Faults) != len(faultKinds) {
		t.Fatalf("%d faults, expected %d", len(s.Faults), len(faultKinds))
	}
	if got, want := s.Faults[0], (Fault{Kind: "replica_down", AtS: 10, ForS: 5, Replica: 1, DetectS: 2}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	if got, want := s.Faults[8], (Fault{Kind: "lost_release", Share: 1, Count: 3, Releases: "cancelled"}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	if f := s.Faults[1]; f.Replica != -1 || f.ForS != 0 {
		t.Errorf("%+v, expected every replica and no duration", f)
	}
	roundTrip(t, s)
	over, err := s.Apply([]string{"faults=[{kind: replica_drain, at_s: 1.5, replica: 1}]"})
	if err != nil || len(over.Faults) != 1 || over.Faults[0].AtS != 1.5 || over.Digest() == s.Digest() {
		t.Errorf("the override gives %+v, %v", over, err)
	}
}

// TestRandomFaultsRoundTrip draws faults of every kind and reads their canonical form back.
func TestRandomFaultsRoundTrip(t *testing.T) {
	base := mustParse(t, small)
	rapid.Check(t, func(rt *rapid.T) {
		var list []Fault
		for range rapid.IntRange(0, 5).Draw(rt, "faults") {
			kind := rapid.SampledFrom(faultKinds).Draw(rt, "kind")
			f := Fault{Kind: kind.name}
			for _, field := range kind.fields() {
				v := value{}
				switch k := &field.key; k.kind {
				case enumKey:
					v.text = rapid.SampledFrom(k.enum).Draw(rt, k.path)
				case intKey:
					v.integer = rapid.Int64Range(int64(k.min), min(int64(k.max), 1)).Draw(rt, k.path)
				default:
					v.number = rapid.Float64Range(k.min, k.max).Draw(rt, k.path)
				}
				field.set(&f, v)
			}
			list = append(list, f)
		}
		s, err := base.Apply([]string{"faults=" + formatFaults(list)})
		if err != nil {
			rt.Fatal(err)
		}
		for i := range list {
			if s.Faults[i] != list[i] {
				rt.Fatalf("%+v, expected %+v", s.Faults[i], list[i])
			}
		}
		if again, err := Parse("", s.Resolved()); err != nil || again.Digest() != s.Digest() {
			rt.Fatalf("%v\n%s", err, s.Resolved())
		}
	})
}

func TestFaultOfNoReplica(t *testing.T) {
	_, err := Parse("x.yaml", []byte(small+"faults: [{kind: replica_down, at_s: 1, replica: 99}]\n"))
	if err == nil || !strings.Contains(err.Error(), "replica 99") {
		t.Errorf("error %v", err)
	}
}
