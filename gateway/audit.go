package gateway

import (
	"github.com/sluice-sim/sluice/policies"
)

// Audit counts attempts and leases, as the core counts them and as the driver does.
type Audit struct {
	policies.Audit       // of the core
	Arrived        int64 // attempts that the core was told of
	GaveUp         int64 // attempts whose client left while they waited
	Leases         int64 // that the driver holds
	Expired        int64 // leases that were taken back because they were too old
	LogErrors      int64 // Steps that are missing in the decision log
	Steps          int64
	Sessions       int64 // that live
	SessionNumbers int64 // numbers in use by the core, for sessions and for threads: what its memory follows
	ThreadNumbers  int64
}

// Imbalance is how many attempts or leases are unaccounted for: 0, or something was lost or released twice.
func (a *Audit) Imbalance() int64 {
	return abs(a.Admitted-a.Finished-a.Failed-a.Cancelled-a.Live) + abs(a.Live-a.Leases) +
		abs(a.Arrived-a.Admitted-a.Rejected-a.Superseded-a.GaveUp-a.Waiting)
}

func abs(x int64) int64 { return max(x, -x) }

// Audit is the accounts at this moment.
func (d *Driver) Audit() Audit {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.audit
	a.Audit = d.core.Audit()
	a.Steps = d.steps
	a.Sessions = int64(len(d.registry.byKey))
	a.SessionNumbers, a.ThreadNumbers = int64(d.registry.sessions.next), int64(d.registry.threads.next)
	return a
}
