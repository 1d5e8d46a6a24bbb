package sim

import (
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/results"
)

// TestLeaseLeakRushesToTheRestarted is acceptance case AC09, from vllm-project/router issue 215: 2 % of
// the requests are cancelled, and each cancel leaks one count of the router's ledger. Every replica leaks alike, so
// nothing shows, until one restarts and counts from zero again: then at least 90 % of new prefixes go there until it has
// as many in flight as the others have leaked. Without the leak it gets at most 1.5 times its fair share. The audit
// reports the leak.
func TestLeaseLeakRushesToTheRestarted(t *testing.T) {
	const restart, back, until = 700, 705, 740 // s
	arm := func(leak bool) (share float64, cancelled int, totals *results.Totals) {
		c := world(t, independent(16*until, 500, 200), "none", "least-requests")
		c.Replicas, c.Check = 4, false
		c.Arrivals = Arrivals{Process: Poisson, RatePerS: 16}
		c.Clients.CancelUpstream = true
		c.Faults = []Fault{
			{Kind: ClientDisconnect, ForPS: seconds(1e6), Share: 0.02, AfterPS: seconds(0.5)},
			{Kind: ReplicaRestart, AtPS: seconds(restart), ForPS: seconds(back - restart), Replica: 0},
		}
		if leak {
			c.Faults = append(c.Faults, Fault{Kind: LostRelease, Share: 1, Releases: CancelledRelease})
		}
		out, totals := simulate(t, c)
		for i := range out.turns {
			if out.turns[i].Outcome == results.TimedOut {
				cancelled++
			}
		}
		to, all := 0, 0
		for i := int32(0); i < 4; i++ {
			n := out.sentTo(i, back, until)
			if all += n; i == 0 {
				to = n
			}
		}
		return float64(to) / float64(all), cancelled, totals
	}
	with, cancelled, totals := arm(true)
	without, _, clean := arm(false)
	t.Logf("share of the restarted replica: %.3f with the leak, %.3f without; %d leases lost, %d of them ended by the restart", with, without, totals.LeasesLost, totals.LeasesAbandoned)
	if with < 0.9 {
		t.Errorf("with the leak %.3f of new prefixes go to the restarted replica, expected at least 0.9", with)
	}
	if without > 1.5*0.25 {
		t.Errorf("without it %.3f do, expected at most 1.5 times a quarter", without)
	}
	if totals.LeasesLost != int64(cancelled) || cancelled < 100 || totals.LeasesAbandoned < 10 || totals.LeasesLive != totals.LeasesLost-totals.LeasesAbandoned {
		t.Errorf("%d clients cancelled; leases lost %d, ended by the restart %d, live %d", cancelled, totals.LeasesLost, totals.LeasesAbandoned, totals.LeasesLive)
	}
	reported := false
	for _, n := range totals.Notes {
		reported = reported || strings.Contains(n.Label, "leaked") && n.N == totals.LeasesLive
	}
	if !reported {
		t.Errorf("the audit does not report the leak: %v", totals.Notes)
	}
	if clean.LeasesLost != 0 || clean.LeasesLive != 0 || clean.LeasesCancelled < 100 {
		t.Errorf("without the leak: %d lost, %d live, %d cancelled", clean.LeasesLost, clean.LeasesLive, clean.LeasesCancelled)
	}
}
