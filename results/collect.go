package results

import (
	"cmp"
	"slices"
)

// attempt is what the metrics need of a Turn, kept for every attempt until the run ends.
type attempt struct {
	session, thread, number, class              int32
	prompt, output, computed, ceiling, wasted   int32
	hitGPU, hitCPU, hitGlobal, holds            int32
	arrival, sent, scheduled, first, done, wait int64 // arrival of a last attempt is that of the turn's first attempt
	ownArrival, toolGap, idleTTFT, idleTPOT     int64
	reason                                      int32 // index into Collector.reasons
	outcome                                     Outcome
	final, retried                              bool
}

func (a *attempt) finished() bool     { return a.outcome == Finished }
func (a *attempt) hits() int64        { return int64(a.hitGPU) + int64(a.hitCPU) + int64(a.hitGlobal) }
func (a *attempt) wasScheduled() bool { return a.scheduled != Missing }

// Collector is a Sink that computes the Summary and keeps about 150 bytes an attempt.
type Collector struct {
	info     Info
	attempts []attempt
	sessions []Session
	series   *series
	reasons  []string
	reasonOf map[string]int32
	probes   [2]int64 // usage, prefix
}

// NewCollector returns an empty collector.
func NewCollector(info Info) *Collector {
	return &Collector{info: info, series: newSeries(), reasonOf: map[string]int32{}}
}

// Turn takes an attempt in.
func (c *Collector) Turn(t *Turn) error {
	reason, ok := c.reasonOf[t.AdmitReason]
	if !ok {
		reason = int32(len(c.reasons))
		c.reasons = append(c.reasons, t.AdmitReason)
		c.reasonOf[t.AdmitReason] = reason
	}
	c.probes[0] += int64(t.UsageProbes)
	c.probes[1] += int64(t.PrefixProbes)
	c.attempts = append(c.attempts, attempt{session: t.Session, thread: t.Thread, number: t.Number, class: t.Class,
		prompt: t.PromptTokens, output: t.OutputTokens, computed: t.ComputedTokens, ceiling: t.CeilingTokens,
		wasted: t.WastedTokens, hitGPU: t.HitGPU, hitCPU: t.HitCPU, hitGlobal: t.HitGlobal, holds: t.GateHolds,
		arrival: t.ArrivalPS, ownArrival: t.ArrivalPS, sent: t.SentPS, scheduled: t.ScheduledPS,
		first: t.FirstTokenPS, done: t.DonePS, wait: t.GateWaitPS(), toolGap: t.ToolGapPS, idleTTFT: t.IdleTTFTPS,
		idleTPOT: t.IdleTPOTPS, reason: reason, outcome: t.Outcome, final: t.Final, retried: t.Attempt > 1})
	return nil
}

// Session takes a session in.
func (c *Collector) Session(s *Session) error {
	c.sessions = append(c.sessions, *s)
	return nil
}

// Sample takes an interval of a replica in. The samples of one replica come in order of time.
func (c *Collector) Sample(s *Sample) error { return c.series.add(s) }

// turnKey identifies a turn over its attempts.
type turnKey struct{ session, thread, number int32 }

// joinAttempts gives every retried last attempt the arrival of its turn's first attempt: the client waits from there.
func (c *Collector) joinAttempts() {
	first := map[turnKey]int64{}
	for i := range c.attempts {
		a := &c.attempts[i]
		if a.final || a.ownArrival == Missing {
			continue
		}
		key := turnKey{a.session, a.thread, a.number}
		if t, ok := first[key]; !ok || a.ownArrival < t {
			first[key] = a.ownArrival
		}
	}
	for i := range c.attempts {
		a := &c.attempts[i]
		a.arrival = a.ownArrival
		if !a.final || !a.retried {
			continue
		}
		if t, ok := first[turnKey{a.session, a.thread, a.number}]; ok && (a.arrival == Missing || t < a.arrival) {
			a.arrival = t
		}
	}
}

// Summary computes every metric from the rows taken in and the simulator's totals.
func (c *Collector) Summary(totals *Totals) *Summary {
	c.joinAttempts()
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
	s.Milestones = c.milestones()
	s.ByTurn = c.buckets(turnEdges, func(a *attempt) int64 { return int64(a.number) })
	s.ByContext = c.buckets(contextEdges, func(a *attempt) int64 { return int64(a.prompt) })
	if start, end, ok := c.wholeSpan(totals); ok {
		s.Whole = c.window(span{start, end, true}, totals)
	}
	if start, end, ok := c.steadySpan(); ok {
		s.Steady = c.window(span{start, end, false}, totals)
	}
	s.TableWindow = "whole"
	if c.info.Mode != ModeRollout && s.Steady != nil && (s.Steady.SampledAtAll || s.Whole == nil) {
		s.TableWindow = "steady"
	}
	s.Verdict = verdictOf(s)
	return s
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
	k := Conservation{Read: totals.Turns, Attempts: int64(len(c.attempts)), Sessions: totals.Sessions,
		ByReason: notNil(totals.Dropped)}
	var outcomes [len(outcomeNames)]int64
	for i := range c.attempts {
		a := &c.attempts[i]
		if !a.final {
			continue
		}
		outcomes[a.outcome]++
		if a.finished() {
			k.Finished++
		} else {
			k.Failed++
		}
	}
	for o, n := range outcomes {
		k.Outcomes = append(k.Outcomes, Count{Outcome(o).String(), n})
	}
	for _, d := range totals.Dropped {
		k.Dropped += d.N
	}
	for i := range c.sessions {
		if c.sessions[i].Complete {
			k.Complete++
		}
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
	var computed int64
	for i := range c.attempts {
		computed += int64(c.attempts[i].computed)
	}
	w.Thrash = ratio(float64(w.Tokens), float64(computed))
	return w
}

func (c *Collector) gate(totals *Totals) Gate {
	g := Gate{UsageProbes: c.probes[0], PrefixProbes: c.probes[1], AttemptsPreempted: totals.AttemptsPreempted,
		ByReason: []GateReason{}}
	waits := make([][]float64, len(c.reasons))
	held := make([]int64, len(c.reasons))
	var sum, longest int64 = 0, Missing
	for i := range c.attempts {
		a := &c.attempts[i]
		g.Holds += int64(a.holds)
		if a.holds > 0 {
			g.HeldAttempts++
			held[a.reason]++
		}
		if a.outcome == Rejected {
			g.Rejected++
		}
		if a.wait != Missing {
			sum += a.wait
			longest = max(longest, a.wait)
			waits[a.reason] = append(waits[a.reason], Seconds(a.wait))
		}
	}
	g.WaitS = Seconds(sum)
	if longest != Missing {
		g.MaxWait = some(Seconds(longest))
	}
	for i, reason := range c.reasons {
		if reason == "" && len(waits[i]) == 0 { // turns that never arrived
			continue
		}
		g.ByReason = append(g.ByReason, GateReason{reason, int64(len(waits[i])), held[i], distOf(waits[i])})
	}
	slices.SortFunc(g.ByReason, func(a, b GateReason) int { return cmp.Compare(a.Reason, b.Reason) })
	return g
}

// milestones counts all sessions with a row, so a share that never completes has no time.
func (c *Collector) milestones() Milestones {
	start := Missing
	var ends []int64
	for i := range c.sessions {
		s := &c.sessions[i]
		if s.StartPS != Missing && (start == Missing || s.StartPS < start) {
			start = s.StartPS
		}
		if s.Complete && s.EndPS != Missing {
			ends = append(ends, s.EndPS)
		}
	}
	slices.Sort(ends)
	at := func(percent int) *float64 {
		k := (len(c.sessions)*percent + 99) / 100
		if k == 0 || k > len(ends) || start == Missing {
			return nil
		}
		return some(Seconds(ends[k-1] - start))
	}
	return Milestones{at(50), at(90), at(100)}
}

var (
	turnEdges    = []int64{1, 2, 3, 4, 5, 6, 8, 11, 16, 21, 31, 51, 76, 101, 151, 201}
	contextEdges = []int64{0, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18}
)

// buckets groups finished turns by key; edges are the first values of the ranges, the last range is open.
func (c *Collector) buckets(edges []int64, key func(*attempt) int64) []Bucket {
	type sums struct {
		ttft, e2el, tpot     []float64
		hit, ceiling, prompt float64
	}
	groups := make([]sums, len(edges))
	for i := range c.attempts {
		a := &c.attempts[i]
		if !a.final || !a.finished() {
			continue
		}
		at, found := slices.BinarySearch(edges, key(a))
		if !found {
			at = max(at-1, 0)
		}
		g := &groups[at]
		g.ttft = appendSince(g.ttft, a.arrival, a.first)
		g.e2el = appendSince(g.e2el, a.arrival, a.done)
		g.tpot = a.appendTPOT(g.tpot)
		g.hit += float64(a.hits())
		g.ceiling += float64(a.ceiling)
		g.prompt += float64(a.prompt)
	}
	out := []Bucket{}
	for i := range groups {
		g := &groups[i]
		if len(g.e2el) == 0 {
			continue
		}
		b := Bucket{From: edges[i], Turns: int64(len(g.e2el)), TTFT: distOf(g.ttft), E2EL: distOf(g.e2el),
			TPOT: distOf(g.tpot), HitRate: ratio(g.hit, g.prompt), Ceiling: ratio(g.ceiling, g.prompt)}
		if i+1 < len(edges) {
			b.To = edges[i+1] - 1
		}
		out = append(out, b)
	}
	return out
}

func appendSince(values []float64, start, end int64) []float64 {
	if d := since(start, end); d != Missing {
		return append(values, Seconds(d))
	}
	return values
}

// tpot is the turn's TPOT in seconds; absent for fewer than two output tokens.
func (a *attempt) tpot() (float64, bool) {
	if a.output < 2 || a.first == Missing || a.done == Missing {
		return 0, false
	}
	return Seconds(a.done-a.first) / float64(a.output-1), true
}

func (a *attempt) appendTPOT(values []float64) []float64 {
	if v, ok := a.tpot(); ok {
		return append(values, v)
	}
	return values
}
