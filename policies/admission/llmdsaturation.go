package admission

import (
	"slices"

	"github.com/sluice-sim/sluice/policies"
)

// Reads the saturation of the pool, from samples or from its own count of leases, in tokens of what KV events say is not
// cached. Keeps a queue for each band and, for program-aware fairness, for each session, what service each session had, and
// for the reflective ceilings how many cycles found a band too saturated. Ties: earlier arrival within a queue, lower session
// under program-aware.
// Source: llm-d/llm-d-router, pkg/epp/flowcontrol, .../plugins/flowcontrol and .../requestcontrol/admitter; spec: policies 3.5.
//
// A band is a service class, the smaller first: class 0 is the most important of a scenario. (The original has priorities,
// the larger first, and sheds those below 0; class c is taken to be priority -c. The band of class 0 is always there.) A
// cycle lets at most one turn go. It goes through the bands, that of the smallest class first: if the saturation is at a
// band's ceiling it ends, whatever waits in that band or behind; else the first turn of the band goes if there is any. The
// original runs a cycle every millisecond and whenever a turn is queued. A cycle that finds the pool saturated, or nothing
// queued, does nothing, so this one runs a cycle when a turn is queued, when a sample, an end of a turn or a change of
// replicas may have ended the saturation, when a ceiling opens, and 1 ms after a cycle that let a turn go. Only that a cycle
// falls on a multiple of 1 ms is lost, and not with reflective ceilings, which count the cycles.
//
// Detectors. utilization: the mean over the replicas that are up of max(waiting/queue_depth, usage/kv_usage); a replica
// whose last sample is older than stale_s, or has not both figures, counts 1; so does an empty pool. concurrency: turns in
// flight over max_requests for each replica that is up, the uncached tokens of their prompts before the first token over
// max_tokens, or the larger of both.
//
// Ceilings, for band i of N. static: the same for each. priority-holdback: ceiling - i (ceiling - min_ceiling)/(N-1).
// soft-reflective: 1 while the saturation s is below 1 - i s/(N-1), else 1 in every round(s/(1-s))th cycle and 0 in the
// others; 1 for the first band.
//
// program-aware is least attained service: the session with the largest 0.8(1-service) + 0.2 wait goes first, where service
// and the wait of the session's first turn are scaled to 0..1 over the sessions with a turn queued in the band. Service grows by
// prompt + 2 x output tokens with each turn and halves every minute. (The original forgets an idle session after an hour,
// when 60 halvings have left nothing, and its queue after 5 minutes, which is empty then.)
//
// Ordering is within a queue. slo-deadline: the turn whose first token is due earliest goes first; it is due at its arrival
// plus ttft_s plus ttft_per_1k_prompt_s for each 1,000 tokens of its prompt; ties in order of arrival. (In the original the
// client names the budget in a header of the request.)
//
// A turn that waited ttl_s is refused at that moment, but it fills its queue until the next scan for what has left, as does
// one whose client left. A turn that finds a limit reached is refused; nothing that waits gives way to it.

// LLMDSaturation declares llm-d's flow control.
func LLMDSaturation() policies.Declaration {
	return policies.Declaration{
		Name: "llm-d-saturation",
		Doc: "Queues turns by service class while the pool is saturated and lets them go one by one while it is not, strictly by class; " +
			"within a class in order of arrival, by deadlines of the first token or by least attained service. Turns that wait too long, or find too many turns or bytes waiting, are refused; " +
			"with other knobs those of classes above 0 are refused on arrival.",
		Source:    "llm-d/llm-d-router, pkg/epp/flowcontrol, pkg/epp/framework/plugins/flowcontrol and requestcontrol/admitter; spec: policies 3.5",
		Needs:     policies.NeedsSamples | policies.NeedsEverySample | policies.NeedsKVEvents,
		NeedsWith: saturationSignals,
		Missing: "Detector utilization counts a replica without a fresh sample of both figures as saturated, as the original does, so without samples every turn waits for its time limit; " +
			"the probabilistic admitter counts it so too. Detector concurrency reads no samples; its tokens, without KV events, are those that the thread's last turn did not leave where it went. " +
			"The size of a request is not known: it is estimated as bytes_per_token for each token of its prompt.",
		Omits: "class c stands for priority -c. Running turns are not evicted for those of a more important class (off by default in llm-d): a gate has no command that ends a lease. " +
			"There is no ordering by time limits (EDF): turns carry no limit of their own, so it would be fcfs; of the fairness policies, round-robin and token counters (VTC) are left out. " +
			"The latency-slo admitter is not built: it asks llm-d's trained latency predictor, and without one admits all. There is one pool, so saturation is not told apart for prefill and decode.",
		Knobs:   saturationKnobs(),
		NewGate: newSaturation,
	}
}

// saturationSignals is what is read with the knobs p.
func saturationSignals(p policies.Params) policies.Signals {
	needs := policies.Signals(0)
	if p["detector"].Text == detectUtilization || p["probabilistic_admitter"].Bool {
		needs |= policies.NeedsSamples | policies.NeedsEverySample
	}
	if p["detector"].Text == detectConcurrency && p["mode"].Text != countRequests {
		needs |= policies.NeedsKVEvents
	}
	return needs
}

// cycleTime is the time between two cycles of the original.
const cycleTime = policies.Second / 1000

func newSaturation(e policies.Env, p policies.Params) policies.Gate {
	g := &saturation{
		detector: newDetector(p),
		shedding: shedding{flowControl: p["flow_control"].Bool, probabilistic: p["probabilistic_admitter"].Bool, factor: p["shed_factor"].Number, seed: e.Seed},
		ceilings: ceilings{kind: p["ceilings"].Text, max: p["ceiling"].Number, min: p["min_ceiling"].Number},
		limits: queueLimits{
			turns: int64(p["max_queued"].Number), bytes: int64(p["max_queued_bytes"].Number), totalTurns: int64(p["total_queued"].Number),
			totalBytes: int64(p["total_queued_bytes"].Number), bytesPerToken: p["bytes_per_token"].Number, scan: seconds(p["expiry_scan_s"].Number),
		},
		byProgram:  p["fairness"].Text == programAware,
		byDeadline: p["ordering"].Text == sloDeadline, ttft: p["ttft_s"].Number, ttftPer1k: p["ttft_per_1k_prompt_s"].Number,
		ttl: seconds(p["ttl_s"].Number), retryAfter: seconds(p["retry_after_s"].Number),
		turns: make(map[policies.AttemptID]queuedTurn), lastCycle: -cycleTime, reopens: policies.Never,
	}
	g.bandOf(0)
	return g
}

// queuedTurn is a turn that has arrived and has not gone.
type queuedTurn struct {
	band    int32
	flow    int32 // in program-aware the session, else 0
	arrived policies.Time
	tokens  int32 // of its prompt
	granted bool
}

// queuedPlace is a turn's place in a queue.
type queuedPlace struct {
	attempt policies.AttemptID
	due     policies.Time // in slo-deadline when its first token is due, else its arrival
}

func (p queuedPlace) precedes(q queuedPlace) bool {
	return p.due < q.due || p.due == q.due && p.attempt < q.attempt
}

// flow is the turns of a band among which the ordering decides.
type flow struct {
	queue  fifo[queuedPlace] // and some that have left since
	listed bool              // in the band's active list
}

// band is the turns of one class.
type band struct {
	class   int32
	backlog backlog
	flows   []flow
	active  []int32 // flows that may have a turn queued, in no particular order
}

type saturation struct {
	detector   detector
	shedding   shedding
	ceilings   ceilings
	limits     queueLimits
	byProgram  bool
	byDeadline bool
	ttft       float64 // s
	ttftPer1k  float64 // s
	ttl        policies.Time
	retryAfter policies.Time

	bands   []band // by the order in which their classes came
	order   []int32
	turns   map[policies.AttemptID]queuedTurn
	service []service // by session

	all       backlog       // of all bands
	lastCycle policies.Time // that let a turn go
	look      bool          // a cycle may let a turn go
	reopens   policies.Time // when a ceiling that held turns opens
}

func (g *saturation) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	switch f.Kind {
	case policies.Finished:
		g.look = true
		if g.byProgram {
			g.serviceOf(f.Session).add(now, float64(v.History(f.Thread))+float64(f.OutputTokens))
		}
	case policies.SessionFinished:
		if g.byProgram { // its number may be given to another
			*g.serviceOf(f.Session) = service{}
		}
	case policies.FirstToken:
		g.look = g.look || g.detector.tokens > 0
	case policies.Failed, policies.MetricsSampled, policies.ReplicaUp, policies.ReplicaDown, policies.ReplicaDraining:
		g.look = true
	case policies.ClientGone, policies.AttemptSuperseded:
		g.leave(now, f.Attempt)
	case policies.Woke:
		if g.NextWake() <= now {
			g.cycle(now, v, false)
		}
	}
}

// leave forgets a turn that does not go; its place in the queue is skipped later.
func (g *saturation) leave(now policies.Time, a policies.AttemptID) {
	t, ok := g.turns[a]
	if !ok {
		return
	}
	delete(g.turns, a)
	if t.granted {
		g.detector.release(t.tokens)
		g.look = true
		return
	}
	bytes := g.limits.size(t.tokens)
	g.limits.lose(now, &g.bands[t.band].backlog, bytes)
	g.limits.lose(now, &g.all, bytes)
}

func (g *saturation) Admit(now policies.Time, v *policies.View, t *policies.Turn, _ *policies.Probes) policies.Verdict {
	x, ok := g.turns[t.Attempt]
	if !ok {
		if g.shedding.refuses(now, v, &g.detector, t) {
			return policies.Verdict{Kind: policies.VerdictReject, Reason: policies.Shed, RetryAfter: g.retryAfter}
		}
		if !g.shedding.flowControl {
			return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.Ungated}
		}
		b := g.bandOf(t.Class)
		if g.limits.full(now, &g.bands[b].backlog, &g.all, g.limits.size(t.Prompt.Tokens)) {
			return policies.Verdict{Kind: policies.VerdictReject, Reason: policies.QueueFull, RetryAfter: g.retryAfter}
		}
		g.enqueue(now, b, t)
		g.cycle(now, v, true)
		x = g.turns[t.Attempt]
	}
	deadline := policies.Never
	if g.ttl > 0 {
		deadline = x.arrived + g.ttl
	}
	switch {
	case x.granted:
		g.leave(now, t.Attempt)
		return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.Open}
	case deadline <= now:
		g.leave(now, t.Attempt)
		return policies.Verdict{Kind: policies.VerdictReject, Reason: policies.WaitedTooLong, RetryAfter: g.retryAfter}
	}
	return policies.Verdict{Kind: policies.VerdictHold, Reason: policies.Saturated, Until: deadline, WakeOn: policies.WakeKey(t.Attempt)}
}

func (g *saturation) bandOf(class int32) int32 {
	for i := range g.bands {
		if g.bands[i].class == class {
			return int32(i)
		}
	}
	g.bands = append(g.bands, band{class: class})
	g.order = append(g.order, int32(len(g.bands)-1))
	slices.SortFunc(g.order, func(a, b int32) int { return int(g.bands[a].class) - int(g.bands[b].class) })
	return int32(len(g.bands) - 1)
}

func (g *saturation) enqueue(now policies.Time, b int32, t *policies.Turn) {
	x := queuedTurn{band: b, arrived: now, tokens: t.Prompt.Tokens}
	if g.byProgram {
		x.flow = int32(t.Session)
	}
	d := &g.bands[b]
	for int(x.flow) >= len(d.flows) {
		d.flows = append(d.flows, flow{})
	}
	f := &d.flows[x.flow]
	g.trim(f)
	f.queue.push(queuedPlace{t.Attempt, g.due(now, x.tokens)})
	f.queue.settle(queuedPlace.precedes)
	if !f.listed {
		f.listed = true
		d.active = append(d.active, x.flow)
	}
	g.turns[t.Attempt] = x
	bytes := g.limits.size(x.tokens)
	g.limits.add(&d.backlog, bytes)
	g.limits.add(&g.all, bytes)
}

// due is what orders a turn of so many prompt tokens that arrives now.
func (g *saturation) due(now policies.Time, tokens int32) policies.Time {
	if !g.byDeadline {
		return now
	}
	return now + seconds(g.ttft+float64(g.ttftPer1k*float64(tokens)/1000))
}

// cycle lets at most one turn go; queued says that it is run for a turn that is queued.
func (g *saturation) cycle(now policies.Time, v *policies.View, queued bool) {
	if g.all.turns == 0 || !g.ceilings.due(now, queued) {
		return
	}
	g.look, g.reopens = false, policies.Never
	s := g.detector.saturation(now, v)
	g.ceilings.advance(now, s, len(g.order), queued)
	for rank, i := range g.order {
		if s >= g.ceilings.at(rank, len(g.order)) {
			g.reopens = g.ceilings.opens()
			return
		}
		if b := &g.bands[i]; b.backlog.turns > 0 {
			g.grant(now, v, b)
			return
		}
	}
}

// grant lets the first turn of b go.
func (g *saturation) grant(now policies.Time, v *policies.View, b *band) {
	a := g.first(now, b)
	x := g.turns[a]
	x.granted = true
	g.turns[a] = x
	bytes := g.limits.size(x.tokens)
	g.limits.take(&b.backlog, bytes)
	g.limits.take(&g.all, bytes)
	g.detector.grant(x.tokens)
	g.lastCycle, g.look = now, true
	v.Wake(policies.WakeKey(a), 1)
}

// NextWake is when the next cycle is due, if one may let a turn go.
func (g *saturation) NextWake() policies.Time {
	if g.all.turns == 0 {
		return policies.Never
	}
	next := g.reopens
	if g.look {
		tick := g.lastCycle
		if g.ceilings.kind == ceilingReflective {
			tick = g.ceilings.tick
		}
		next = min(next, tick+cycleTime)
	}
	return next
}
