package results

import (
	"cmp"
	"fmt"
	"slices"
)

func (t *Turn) finished() bool     { return t.Outcome == Finished }
func (t *Turn) hits() int64        { return int64(t.HitGPU) + int64(t.HitCPU) + int64(t.HitGlobal) }
func (t *Turn) wasScheduled() bool { return t.ScheduledPS != Missing }

// maxSessions bounds the session number that a row may carry, since some metrics take memory by it.
const maxSessions = 1 << 28

// Collector is a Sink that computes the Summary. It keeps 104 bytes an attempt, or, within a Writer, half a million
// attempts in memory and the others in a file; and 20 bytes a session.
type Collector struct {
	info     Info
	attempts attempts
	sessions sessionTimes
	series   *series
	reasons  []reasonSums
	reasonOf map[string]int32
	latest   int32   // reason of the attempt before
	classes  []int32 // service classes in order of appearance
	retried  map[turnKey]*retriedTurn
	sums     runSums
	missed   []bool // by session: a turn of it missed the SLO
	most     int32  // largest session number
}

// runSums are sums over all attempts.
type runSums struct {
	attempts, holds, held, rejected int64
	usageProbes, prefixProbes       int64
	sentLater                       int64                    // not sent when they arrived
	outcomes                        [len(outcomeNames)]int64 // of last attempts
	wait, longest                   int64                    // at the gate, ps; longest Missing when nobody was there
	computed, output                int64
	prompt                          int64 // of attempts that were scheduled
	start, end                      int64 // first arrival, last completion; Missing when there is none
	byTurn                          [len(turnEdges)]bucketSums
	byContext                       [len(contextEdges)]bucketSums
}

// bucketSums are sums over the finished turns of a bucket.
type bucketSums struct{ hit, ceiling, prompt int64 }

// reasonSums are sums over the attempts with an admission reason.
type reasonSums struct {
	reason      string
	waits, held int64
}

// NewCollector returns an empty collector.
func NewCollector(info Info) *Collector {
	return &Collector{info: info, series: newSeries(), reasonOf: map[string]int32{}, retried: map[turnKey]*retriedTurn{},
		attempts: attempts{chunkRows: defaultChunkRows, keep: defaultKeep},
		sums:     runSums{longest: Missing, start: Missing, end: Missing}}
}

// Turn takes an attempt in.
func (c *Collector) Turn(t *Turn) error {
	if t.Session < 0 || t.Session >= maxSessions {
		return fmt.Errorf("attempt of session %d: expected 0 to %d", t.Session, maxSessions-1)
	}
	return c.join(t)
}

// reason is the index of an admission reason.
func (c *Collector) reason(name string) int32 {
	if len(c.reasons) > 0 && c.reasons[c.latest].reason == name {
		return c.latest
	}
	i, ok := c.reasonOf[name]
	if !ok {
		i = int32(len(c.reasons))
		c.reasons = append(c.reasons, reasonSums{reason: name})
		c.reasonOf[name] = i
	}
	c.latest = i
	return i
}

// class is the index of a service class, of which there are few.
func (c *Collector) class(class int32) int {
	i := slices.Index(c.classes, class)
	if i < 0 {
		i = len(c.classes)
		c.classes = append(c.classes, class)
	}
	return i
}

// add sums an attempt up and keeps it. Arrival is that of the turn's first attempt for a last one.
func (c *Collector) add(t *Turn, arrival int64) error {
	s := &c.sums
	s.attempts++
	s.holds += int64(t.GateHolds)
	s.usageProbes += int64(t.UsageProbes)
	s.prefixProbes += int64(t.PrefixProbes)
	s.computed += int64(t.ComputedTokens)
	s.output += int64(t.OutputTokens)
	if t.SentPS != arrival {
		s.sentLater++
	}
	if arrival != Missing && (s.start == Missing || arrival < s.start) {
		s.start = arrival
	}
	reason, wait := c.reason(t.AdmitReason), t.GateWaitPS()
	if wait != Missing {
		s.wait += wait
		s.longest = max(s.longest, wait)
		c.reasons[reason].waits++
	}
	c.most = max(c.most, t.Session)
	flags, tag := int32(0), classField.tag(c.class(t.Class))
	if t.GateHolds > 0 {
		flags |= flagHeld
		s.held++
		c.reasons[reason].held++
	}
	if t.wasScheduled() {
		flags |= flagScheduled
		s.prompt += int64(t.PromptTokens)
	}
	switch t.Outcome {
	case Finished:
		flags |= flagFinished
		s.end = max(s.end, t.DonePS)
		tag |= c.bucketsOf(t)
	case Rejected:
		flags |= flagRejected
		s.rejected++
	}
	if t.Final {
		flags |= flagFinal | c.againstSLO(t, arrival)
		s.outcomes[t.Outcome]++
	}
	ch, err := c.attempts.last()
	if err != nil {
		return err
	}
	ch.add(t, arrival, wait, flags, int32(tag), reason)
	return nil
}

// Session takes a session in.
func (c *Collector) Session(s *Session) error {
	if s.Session < 0 || s.Session >= maxSessions {
		return fmt.Errorf("session %d: expected 0 to %d", s.Session, maxSessions-1)
	}
	c.most = max(c.most, s.Session)
	c.sessions.add(s)
	return nil
}

// Sample takes an interval of a replica in. The samples of one replica come in order of time.
func (c *Collector) Sample(s *Sample) error { return c.series.add(s) }

// Summary computes every metric from the rows taken in and the simulator's totals.
func (c *Collector) Summary(totals *Totals) *Summary {
	s, err := c.summary(totals)
	if err != nil {
		panic(err) // only a Writer's collector has a file that can fail
	}
	return s
}

func (c *Collector) summary(totals *Totals) (*Summary, error) {
	if err := c.joinRest(); err != nil {
		return nil, err
	}
	s := &Summary{SchemaVersion: SchemaVersion, Run: c.info.Run, Arm: c.info.Arm, Seed: c.info.Seed,
		Version: c.info.Version, ScenarioDigest: c.info.ScenarioDigest, TraceDigest: c.info.TraceDigest,
		Mode: c.info.Mode, GatePolicy: c.info.Gate, Varied: notNil(c.info.Varied), SLO: c.info.SLO,
		Cluster: Cluster{Replicas: totals.Replicas, GPUs: totals.GPUs, KVTokens: totals.KVTokens,
			KVBlocks: totals.KVBlocks, BlockTokens: totals.BlockTokens},
		ITL: totals.ITL.dist(),
		Leases: Leases{Admitted: totals.LeasesAdmitted, Finished: totals.LeasesFinished, Failed: totals.LeasesFailed,
			Cancelled: totals.LeasesCancelled, Live: totals.LeasesLive, Lost: totals.LeasesLost, Abandoned: totals.LeasesAbandoned},
		Notes: notNil(totals.Notes)}
	s.Conservation = c.conservation(totals)
	s.Engine = engineOf(totals)
	s.Waste = c.waste(totals)
	s.Gate = c.gate(totals)
	var sort sorter
	sort.reserve(max(int(c.sums.attempts), c.sessions.n))
	s.Milestones = c.sessions.milestones(&sort)
	if err := c.measure(s, totals, &sort); err != nil {
		return nil, err
	}
	s.TableWindow = "whole"
	if c.info.Mode != ModeRollout && s.Steady != nil && (s.Steady.SampledAtAll || s.Whole == nil) {
		s.TableWindow = "steady"
	}
	s.Verdict = verdictOf(s)
	return s, nil
}

// notNil makes an empty list print as [].
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Table is the window that tables show; nil when nothing completed.
func (s *Summary) Table() *Window {
	if s.TableWindow == "steady" {
		return s.Steady
	}
	return s.Whole
}

func (c *Collector) conservation(totals *Totals) Conservation {
	k := Conservation{Read: totals.Turns, Attempts: c.sums.attempts, Sessions: totals.Sessions,
		Complete: int64(c.sessions.completed), ByReason: notNil(totals.Dropped)}
	for o, n := range c.sums.outcomes {
		k.Outcomes = append(k.Outcomes, Count{Outcome(o).String(), n})
		if Outcome(o) == Finished {
			k.Finished += n
		} else {
			k.Failed += n
		}
	}
	for _, d := range totals.Dropped {
		k.Dropped += d.N
	}
	k.Holds = k.Read == k.Finished+k.Failed+k.Dropped
	return k
}

func engineOf(totals *Totals) Engine {
	busy := 0.0
	for _, ps := range totals.BusyPS {
		busy += Seconds(ps)
	}
	e := Engine{Admissions: totals.EngineAdmissions, Preemptions: totals.Preemptions, Steps: totals.Steps,
		PrefillBusy: ratio(Seconds(totals.PrefillBusyPS), busy), DecodeBusy: ratio(Seconds(totals.DecodeBusyPS), busy)}
	e.Pins, e.PinsExpired, e.PinsForRoom, e.PinnedTokenS = totals.Pins, totals.PinsExpired, totals.PinsForRoom, totals.PinnedTokenS
	if t := totals.CPUTier; t != nil {
		e.CPUTier = &CPUTier{CapacityTokens: t.CapacityTokens, LoadedTokens: t.LoadedTokens, StoredTokens: t.StoredTokens,
			EvictedTokens: t.EvictedTokens, Loads: t.Loads, Stores: t.Stores, RefusedStores: t.RefusedStores, Flushes: t.Flushes,
			LoadBusyS: Seconds(t.LoadBusyPS), StoreBusyS: Seconds(t.StoreBusyPS), StallShare: ratio(Seconds(totals.TransferBusyPS), busy)}
	}
	return e
}

func (c *Collector) waste(totals *Totals) Waste {
	var w Waste
	for cause := CausePreempted; cause < NumCauses; cause++ {
		w.ByCause = append(w.ByCause, Count{cause.String(), totals.WasteTokens[cause]})
		w.Tokens += totals.WasteTokens[cause]
	}
	w.Thrash = ratio(float64(w.Tokens), float64(c.sums.computed))
	return w
}

// gate is what the gate did, without the distributions of the waits.
func (c *Collector) gate(totals *Totals) Gate {
	k := &c.sums
	g := Gate{Holds: k.holds, HeldAttempts: k.held, UsageProbes: k.usageProbes, PrefixProbes: k.prefixProbes, Rejected: k.rejected,
		AttemptsPreempted: totals.AttemptsPreempted, WaitS: Seconds(k.wait), ByReason: []GateReason{}}
	if k.longest != Missing {
		g.MaxWait = some(Seconds(k.longest))
	}
	for _, r := range c.reasons {
		g.ByReason = append(g.ByReason, GateReason{Reason: r.reason, Attempts: r.waits, Held: r.held})
	}
	return g
}

// orderReasons leaves out the reason of turns that never arrived.
func (g *Gate) orderReasons() {
	g.ByReason = slices.DeleteFunc(g.ByReason, func(r GateReason) bool { return r.Reason == "" && r.Attempts == 0 })
	slices.SortFunc(g.ByReason, func(a, b GateReason) int { return cmp.Compare(a.Reason, b.Reason) })
}

// tpot is the turn's TPOT in seconds; absent for fewer than two output tokens.
func (t *Turn) tpot() (float64, bool) {
	if t.OutputTokens < 2 || t.FirstTokenPS == Missing || t.DonePS == Missing {
		return 0, false
	}
	return perToken(t.DonePS-t.FirstTokenPS, t.OutputTokens), true
}

// perToken is the time in seconds of each output token after the first.
func perToken(ps int64, output int32) float64 { return Seconds(ps) / float64(output-1) }
