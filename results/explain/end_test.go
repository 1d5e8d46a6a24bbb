package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/results"
)

// An attempt that never reached an engine has no end; that it was rejected the gate's story has said.
func TestEndWithoutAnEngine(t *testing.T) {
	for outcome, want := range map[results.Outcome][]string{
		results.Rejected: nil,
		results.TimedOut: {"When it ended is not in the results: timed_out."},
	} {
		a := row(0, 1, 1, 0)
		a.SentPS, a.ScheduledPS, a.FirstTokenPS, a.DonePS, a.Outcome = results.Missing, results.Missing, results.Missing, results.Missing, outcome
		x := &story{}
		x.end(&a)
		if d := cmp.Diff(want, x.text); d != "" {
			t.Errorf("%s (-want +got):\n%s", outcome, d)
		}
	}
}
