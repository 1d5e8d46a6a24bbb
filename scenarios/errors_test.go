package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestMessages runs testdata/errors.txt: `parse` decodes the text alone, `small` decodes it after a valid head that has
// everything but what the text says.
func TestMessages(t *testing.T) {
	datadriven.RunTest(t, "testdata/errors.txt", func(t *testing.T, d *datadriven.TestData) string {
		text := d.Input + "\n"
		if d.Cmd == "small" {
			text += small
		}
		s, err := Parse("test.yaml", []byte(text))
		if err == nil && d.HasArg("set") {
			var sets []string
			for _, arg := range d.CmdArgs {
				if arg.Key == "set" {
					sets = append(sets, arg.Vals...)
				}
			}
			s, err = s.Apply(sets)
		}
		if err == nil {
			return "ok " + s.Policy.Gate.Name + " " + s.Policy.Router.Name + "\n"
		}
		if _, ok := err.(Problems); !ok {
			return fmt.Sprintf("%T: %v\n", err, err)
		}
		return err.Error() + "\n"
	})
}

// TestEveryWrongValueIsReported breaks one key after the other.
func TestEveryWrongValueIsReported(t *testing.T) {
	full := `workload: {generate: {preset: bench}}
cluster: {replicas: 2, model: m, gpu: g}
arrivals: {process: poisson, rate_per_s: 1}
`
	base := mustParse(t, full)
	n := 0
	for _, e := range base.entries() {
		k := e.key
		if k.kind == textKey {
			continue
		}
		bad := []string{"", "x", ".nan", ".inf", "NaN", "-Inf", "1_000", "0x10", "null"}
		if k.kind == intKey {
			bad = append(bad, "1.5", "1e3")
		}
		if k.kind == intKey || k.kind == floatKey {
			if k.min > -huge {
				bad = append(bad, formatNumber(k.min-1))
			}
			if k.max < huge {
				bad = append(bad, formatNumber(k.max*2+1))
			}
		}
		for _, text := range bad {
			if k.optional && (text == "null" || text == "") {
				continue
			}
			n++
			_, err := base.Apply([]string{k.path + "=" + text})
			if err == nil || !strings.Contains(err.Error(), k.path) {
				t.Errorf("%s=%s gives %v", k.path, text, err)
			}
		}
	}
	if n < 300 {
		t.Fatalf("tried %d values only", n)
	}
}

// TestEveryMisspeltKeyIsUnderstood swaps two letters of every key and expects the right one to be suggested.
func TestEveryMisspeltKeyIsUnderstood(t *testing.T) {
	n := 0
	for _, path := range allPaths().leaves {
		name := path[strings.LastIndexByte(path, '.')+1:]
		if len(name) < 5 || name[1] == name[2] {
			continue
		}
		n++
		wrong := strings.TrimSuffix(path, name) + name[:1] + name[2:3] + name[1:2] + name[3:]
		if got := unknownKey(wrong); !strings.Contains(got, "did you mean "+path+"?") {
			t.Errorf("%s: %s", wrong, got)
		}
	}
	if n < 60 {
		t.Fatalf("tried %d keys only", n)
	}
}
