package sim

import (
	"slices"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// FaultKind is what goes wrong, or changes, in the cluster (spec: gateway 4.5).
type FaultKind uint8

const (
	ReplicaDown      FaultKind = iota + 1 // cut off: its requests fail, it refuses new ones, and keeps its cache
	ReplicaRestart                        // its process ends: its requests fail; it is back with an empty cache and counters of zero
	ReplicaJoin                           // it does not exist before
	ReplicaDrain                          // it finishes what it has and takes nothing new
	SlowReplica                           // its steps take Factor times as long
	ErrorBurst                            // it fails a share of the requests on arrival
	ScrapeStall                           // no samples of its metrics come
	StaleCounters                         // its samples repeat the values of the beginning, with new times
	LostRelease                           // the end of a share of the leases is not reported to the policies
	ClientDisconnect                      // a share of the clients goes away
	numFaultKinds
)

// AllReplicas in Fault.Replica means each of them.
const AllReplicas int32 = -1

// ReleaseKind says which releases LostRelease loses.
type ReleaseKind uint8

const (
	AnyRelease       ReleaseKind = iota
	CancelledRelease             // of attempts whose client had gone
)

// Fault is one entry of the faults of a run.
type Fault struct {
	Kind     FaultKind
	AtPS     int64 // when it begins
	ForPS    int64 // how long it lasts; 0: to the end of the run, but ReplicaRestart is back at once
	Replica  int32 // of the kinds about a replica: its number, or AllReplicas
	DetectPS int64 // ReplicaDown, ReplicaRestart: the policies hear of it so long after
	Factor   float64
	Share    float64 // ErrorBurst, LostRelease, ClientDisconnect: probability, drawn for each attempt
	Count    int64   // LostRelease: at most so many; 0: no limit
	Releases ReleaseKind
	AfterPS  int64 // ClientDisconnect: clients that come while it lasts go so long after they came
}

// Purposes of the draws of faults and signals; those of the workload are small numbers.
const (
	purposeFault uint64 = iota + 1000
	purposeScrapeJitter
	purposeScrapeLoss
)

// condition is what is the matter with a replica now.
type condition struct {
	down, draining, absent bool
	known                  bool // the policies know that it is down
	failing                bool // an ErrorBurst is on
	stalled, stale         bool
	slow                   float64 // factor of its step times; 0 for 1
	frozen                 policies.Sample
	told                   policies.ReplicaState // what the policies were told last
}

// faultState is where the faults of a run stand.
type faultState struct {
	active     []bool // by fault
	lost       []int64
	losing     []int32 // LostRelease faults that are on
	leaving    []int32 // ClientDisconnect faults that are on
	conditions []condition
}

// checkFaults refuses faults that name no replica of the cluster or leave none for good.
func (c *Config) checkFaults() error {
	gone := make([]bool, c.Replicas)
	for k := range c.Faults {
		f := &c.Faults[k]
		switch {
		case f.Kind == 0 || f.Kind >= numFaultKinds || f.AtPS < 0 || f.ForPS < 0 || f.DetectPS < 0 || f.AfterPS < 0 || f.Count < 0:
			return inputErrorf("faults[%d] is not a fault: %+v", k, *f)
		case f.ofReplica() && (f.Replica < AllReplicas || int(f.Replica) >= c.Replicas):
			return inputErrorf("faults[%d] is about replica %d; the cluster has replicas 0 to %d", k, f.Replica, c.Replicas-1)
		case f.Kind == SlowReplica && !(f.Factor > 0):
			return inputErrorf("faults[%d] has factor %v; expected more than 0", k, f.Factor)
		case f.Kind >= ErrorBurst && f.Kind != ScrapeStall && f.Kind != StaleCounters && !(f.Share >= 0 && f.Share <= 1):
			return inputErrorf("faults[%d] has share %v; expected 0 to 1", k, f.Share)
		}
		if f.ForPS == 0 && (f.Kind == ReplicaDown || f.Kind == ReplicaDrain) {
			for i := range gone {
				gone[i] = gone[i] || f.hits(int32(i))
			}
		}
	}
	if len(c.Faults) > 0 && !slices.Contains(gone, false) {
		return inputErrorf("faults take every replica away for good, so turns would wait for ever; give one of them for_s, or add a replica")
	}
	return nil
}

func (f *Fault) ofReplica() bool { return f.Kind != LostRelease && f.Kind != ClientDisconnect }

func (f *Fault) hits(i int32) bool {
	return f.ofReplica() && (f.Replica == i || f.Replica == AllReplicas)
}

// planFaults puts the faults on the agenda and tells the policies which replicas are up.
func (r *run) planFaults() {
	s := &r.faults
	s.active, s.lost = make([]bool, len(r.cfg.Faults)), make([]int64, len(r.cfg.Faults))
	for k := range r.cfg.Faults {
		f := &r.cfg.Faults[k]
		r.agenda.push(f.AtPS, faultBegins, int32(k), 0)
		for i := range s.conditions {
			if f.Kind == ReplicaJoin && f.hits(int32(i)) && f.AtPS > 0 {
				s.conditions[i].absent = true
			}
		}
	}
	for i := range s.conditions {
		r.tell(int32(i))
	}
}

// faultBegins starts fault k. A step that ends at this very moment ends first.
func (r *run) faultBegins(k int32) {
	if !r.lookAll() {
		r.agenda.push(r.now, faultBegins, k, 0)
		return
	}
	f := &r.cfg.Faults[k]
	r.faults.active[k] = true
	switch f.Kind {
	case LostRelease:
		r.faults.losing = append(r.faults.losing, k)
	case ClientDisconnect:
		r.disconnect(k)
		r.faults.leaving = append(r.faults.leaving, k)
	}
	for i := range r.faults.conditions {
		if f.hits(int32(i)) {
			r.strike(int32(i), f)
		}
	}
	switch {
	case f.ForPS > 0:
		r.agenda.push(r.now+f.ForPS, faultEnds, k, 0)
	case f.Kind == ReplicaRestart:
		r.faultEnds(k)
	case f.Kind == ClientDisconnect:
		r.faultEnds(k)
	}
	if r.faults.active[k] && f.DetectPS > 0 {
		r.agenda.push(r.now+f.DetectPS, faultDetected, k, 0)
	}
}

// strike does to replica i what the fault that has just begun does.
func (r *run) strike(i int32, f *Fault) {
	c := &r.faults.conditions[i]
	switch f.Kind {
	case ReplicaJoin:
		c.absent = false
	case StaleCounters:
		if !c.stale {
			c.frozen = r.sampleOf(i, r.now)
		}
	}
	r.reassess(i)
	switch f.Kind {
	case ReplicaDown:
		r.cutOff(i)
	case ReplicaRestart:
		r.restart(i)
	case SlowReplica:
		r.interrupt(i)
	}
	r.tell(i)
}

// faultDetected is when the policies find out that a replica is down.
func (r *run) faultDetected(k int32) {
	if !r.faults.active[k] {
		return
	}
	for i := range r.faults.conditions {
		if r.cfg.Faults[k].hits(int32(i)) {
			r.reassess(int32(i))
			r.tell(int32(i))
		}
	}
}

// faultEnds ends fault k.
func (r *run) faultEnds(k int32) {
	if !r.lookAll() {
		r.agenda.push(r.now, faultEnds, k, 0)
		return
	}
	f := &r.cfg.Faults[k]
	r.faults.active[k] = false
	is := func(j int32) bool { return j == k }
	r.faults.losing = slices.DeleteFunc(r.faults.losing, is)
	r.faults.leaving = slices.DeleteFunc(r.faults.leaving, is)
	for i := range r.faults.conditions {
		if !f.hits(int32(i)) {
			continue
		}
		r.reassess(int32(i))
		if f.Kind == ReplicaRestart {
			r.fact(policies.Fact{Kind: policies.ReplicaRestarted, Replica: policies.ReplicaID(i)})
		}
		if f.Kind == SlowReplica {
			r.interrupt(int32(i))
		}
		r.tell(int32(i))
	}
}

// reassess works out the condition of replica i from the faults that are on.
func (r *run) reassess(i int32) {
	c := &r.faults.conditions[i]
	*c = condition{absent: c.absent, frozen: c.frozen, told: c.told}
	slow := 1.0
	for k := range r.cfg.Faults {
		f := &r.cfg.Faults[k]
		if !r.faults.active[k] || !f.hits(i) {
			continue
		}
		switch f.Kind {
		case ReplicaDown, ReplicaRestart:
			c.down = true
			c.known = c.known || r.now-f.AtPS >= f.DetectPS
		case ReplicaDrain:
			c.draining = true
		case SlowReplica:
			slow *= f.Factor
		case ErrorBurst:
			c.failing = true
		case ScrapeStall:
			c.stalled = true
		case StaleCounters:
			c.stale = true
		}
	}
	if slow != 1 {
		c.slow = slow
	}
}

// tell tells the policies the state of replica i if it is another than they were told last.
func (r *run) tell(i int32) {
	c := &r.faults.conditions[i]
	state := policies.Up
	switch {
	case c.absent || c.known:
		state = policies.Down
	case c.draining:
		state = policies.Draining
	}
	if state == c.told {
		return
	}
	id := policies.ReplicaID(i)
	switch {
	case state == policies.Down:
		r.fact(policies.Fact{Kind: policies.ReplicaDown, Replica: id})
	case state == policies.Up || c.told == policies.Down: // only what is up can drain
		r.fact(policies.Fact{Kind: policies.ReplicaUp, Replica: id})
	}
	if state == policies.Draining {
		r.fact(policies.Fact{Kind: policies.ReplicaDraining, Replica: id})
	}
	c.told = state
}

// drawn tells whether fault k strikes an attempt.
func (r *run) drawn(k int32, a policies.AttemptID) bool {
	share := r.cfg.Faults[k].Share
	return share >= 1 || exact.Uniform(exact.Hash3(r.cfg.Seed, purposeFault, uint64(k), uint64(a))) < share
}
