package gateway

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/gateway/memnet"
	"github.com/sluice-sim/sluice/traces"
)

// TestTheTraceSaysWhatWasHashed: prompts whose tokens no engine gave are counted as such, whatever the configuration hopes for.
func TestTheTraceSaysWhatWasHashed(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		r := newRig(t, 1, "prompt: {basis: tokens}\n"+plainPolicy, func(c *Config) { c.Recorder.Dir = t.TempDir() })
		r.sendOK(request{session: "s"}) // the stub has no /tokenize
		r.sendOK(request{session: "s", path: "/v1/completions", body: `{"model":"m","prompt":[1,2,3],"max_tokens":5}`})
		until(t, "the recorder's counts", func() bool {
			resp, err := r.client.Get(r.url + "/metrics")
			check(t, err)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			check(t, err)
			return strings.Contains(string(text), `sluice_recorder_turns_total{outcome="taken"} 2`) &&
				strings.Contains(string(text), `sluice_recorder_turns_total{outcome="queue_full"} 0`) && strings.Contains(string(text), "sluice_recorder_open_turns 2")
		})
		r.close()
		files, err := filepath.Glob(filepath.Join(r.g.cfg.Recorder.Dir, "*"))
		check(t, err)
		if len(files) != 1 {
			t.Fatalf("files %v", files)
		}
		tr, err := traces.ReadNative(files[0], traces.Limits{})
		check(t, err)
		want := []traces.NoteCount{{Note: "prompts hashed by byte", Count: 1}, {Note: "prompts hashed by token", Count: 1}}
		if diff := cmp.Diff(want, tr.Report.Notes); diff != "" {
			t.Errorf("notes (-expected +got):\n%s", diff)
		}
	})
}
