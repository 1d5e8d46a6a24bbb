package admission

import (
	"slices"

	"github.com/sluice-sim/sluice/policies"
)

// Reads the saturation of the pool, from samples or from its own count of leases. Keeps a queue for each band and, for
// program-aware fairness, for each session, and what service each session had. Ties: earlier arrival within a queue, lower
// session under program-aware.
// Source: llm-d/llm-d-router, pkg/epp/flowcontrol and saturationdetector; spec: policies 3.5.
//
// A band is a service class, the smaller first: class 0 is the most important of a scenario. (The original has priorities,
// the larger first.) A cycle lets at most one turn go: if the
// saturation is at the ceiling none; else the first of the first band that has any, whatever waits behind. The original
// runs a cycle every millisecond and whenever a turn is queued. A cycle that finds the pool saturated, or nothing queued,
// does nothing, so this one runs a cycle when a turn is queued, when a sample, an end of a turn or a change of replicas
// may have ended the saturation, and 1 ms after a cycle that let a turn go. Only that a cycle falls on a multiple of 1 ms is lost.
//
// Detectors. utilization: the mean over the replicas that are up of max(waiting/queue_depth, usage/kv_usage); a replica
// whose last sample is older than stale_s, or has not both figures, counts 1; so does an empty pool. concurrency: turns in
// flight over max_requests for each replica that is up, tokens of their prompts over max_tokens, or the larger of both.
//
// program-aware is least attained service: the session with the largest 0.8(1-service) + 0.2 wait goes first, where service
// and the wait of the session's first turn are scaled to 0..1 over the sessions with a turn queued in the band. Service grows by
// prompt + 2 x output tokens with each turn and halves every minute. (The original forgets an idle session after an hour,
// when 60 halvings have left nothing.)
//
// Ordering is within a queue. slo-deadline: the turn whose first token is due earliest goes first; it is due at its arrival
// plus ttft_s plus ttft_per_1k_prompt_s for each 1,000 tokens of its prompt; ties in order of arrival. (In the original the
// client names the budget in a header of the request.)
//
// Not built: other ceilings than a constant, limits in bytes, ordering by time limits (EDF), eviction of what runs or waits.

// LLMDSaturation declares llm-d's flow control.
func LLMDSaturation() policies.Declaration {
	return policies.Declaration{
		Name: "llm-d-saturation",
		Doc: "Queues turns by service class while the pool is saturated and lets them go one by one while it is not, strictly by class; " +
			"within a class in order of arrival, by deadlines of the first token or by least attained service. Turns that wait too long, or find too many waiting, are refused.",
		Source: "llm-d/llm-d-router, pkg/epp/flowcontrol, pkg/epp/framework/plugins/flowcontrol; spec: policies 3.5",
		Needs:  policies.NeedsSamples,
		Missing: "Detector utilization counts a replica without a fresh sample of both figures as saturated, as the original does, so without samples every turn waits for its time limit. " +
			"Detector concurrency reads no signal. " +
			"Of llm-d's flow control these are not built: ceilings other than a constant (each class has the same), limits in bytes, ordering by time limits (EDF), and eviction of turns that run or wait for those of a more important class.",
		Knobs:   saturationKnobs(),
		NewGate: newSaturation,
	}
}

func saturationKnobs() []policies.Knob {
	return []policies.Knob{
		{Name: "detector", Kind: policies.EnumKnob, Default: policies.Value{Text: "utilization"}, Enum: []string{"utilization", "concurrency"},
			Doc: "how saturation is measured"},
		{Name: "queue_depth", Kind: policies.FloatKnob, Default: policies.Value{Number: 5}, Min: .001, Max: 1e6, Unit: "turns",
			Doc: "utilization: waiting turns of a saturated replica"},
		{Name: "kv_usage", Kind: policies.FloatKnob, Default: policies.Value{Number: .8}, Min: .001, Max: 10, Unit: "fraction",
			Doc: "utilization: KV usage of a saturated replica"},
		{Name: "stale_s", Kind: policies.FloatKnob, Default: policies.Value{Number: .2}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "utilization: an older sample counts as saturated"},
		{Name: "mode", Kind: policies.EnumKnob, Default: policies.Value{Text: "requests"}, Enum: []string{"requests", "tokens", "hybrid"},
			Doc: "concurrency: what is counted"},
		{Name: "max_requests", Kind: policies.IntKnob, Default: policies.Value{Number: 100}, Min: 1, Max: 1e6, Unit: "turns",
			Doc: "concurrency: turns in flight of a saturated replica"},
		{Name: "max_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 1e6}, Min: 1, Max: 1e12, Unit: "tokens",
			Doc: "concurrency: prompt tokens in flight of a saturated replica"},
		{Name: "ceiling", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1e6, Unit: "fraction",
			Doc: "saturation from which no turn goes, inclusive"},
		{Name: "fairness", Kind: policies.EnumKnob, Default: policies.Value{Text: globalStrict}, Enum: []string{globalStrict, programAware},
			Doc: "whose turn is next within a class: anyone's, or that of the session with the least attained service"},
		{Name: "ordering", Kind: policies.EnumKnob, Default: policies.Value{Text: fcfs}, Enum: []string{fcfs, sloDeadline},
			Doc: "which of these turns is next: the first to arrive, or the one whose first token is due first"},
		{Name: "ttft_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "slo-deadline: from arrival to when the first token is due"},
		{Name: "ttft_per_1k_prompt_s", Kind: policies.FloatKnob, Default: policies.Value{Number: .0625}, Min: 0, Max: 1000, Unit: "s",
			Doc: "slo-deadline: added to it for every 1,000 prompt tokens"},
		{Name: "ttl_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 60}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "a turn that has waited so long is refused; 0 for never"},
		{Name: "max_queued", Kind: policies.IntKnob, Default: policies.Value{Number: 5000}, Min: 1, Max: 1e6, Unit: "turns",
			Doc: "turns that may wait in a class; more are refused"},
		{Name: "retry_after_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1e6, Unit: "s",
			Doc: "when a refused turn may come again"},
	}
}

const (
	globalStrict = "global-strict"
	programAware = "program-aware"

	fcfs        = "fcfs"
	sloDeadline = "slo-deadline"

	// cycleTime is the time between two cycles of the original.
	cycleTime = policies.Second / 1000
)

func newSaturation(_ policies.Env, p policies.Params) policies.Gate {
	g := &saturation{
		detector: detector{
			utilization: p["detector"].Text == "utilization", queueDepth: p["queue_depth"].Number, kvUsage: p["kv_usage"].Number,
			stale: seconds(p["stale_s"].Number), requests: p["max_requests"].Number, tokens: p["max_tokens"].Number,
		},
		ceiling: p["ceiling"].Number, byProgram: p["fairness"].Text == programAware,
		byDeadline: p["ordering"].Text == sloDeadline, ttft: p["ttft_s"].Number, ttftPer1k: p["ttft_per_1k_prompt_s"].Number,
		ttl: seconds(p["ttl_s"].Number), limit: int(p["max_queued"].Number), retryAfter: seconds(p["retry_after_s"].Number),
		turns: make(map[policies.AttemptID]queuedTurn), lastCycle: -cycleTime,
	}
	switch p["mode"].Text {
	case "requests":
		g.detector.tokens = 0
	case "tokens":
		g.detector.requests = 0
	}
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
	class  int32
	count  int
	flows  []flow
	active []int32 // flows that may have a turn queued, in no particular order
}

type saturation struct {
	detector   detector
	ceiling    float64
	byProgram  bool
	byDeadline bool
	ttft       float64 // s
	ttftPer1k  float64 // s
	ttl        policies.Time
	limit      int
	retryAfter policies.Time

	bands   []band // by the order in which their classes came
	order   []int32
	turns   map[policies.AttemptID]queuedTurn
	service []service // by session

	count     int           // turns queued in all bands
	lastCycle policies.Time // that let a turn go
	look      bool          // a cycle may let a turn go
}

func (g *saturation) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	switch f.Kind {
	case policies.Finished:
		g.look = true
		if g.byProgram {
			g.serviceOf(f.Session).add(now, float64(v.History(f.Thread))+float64(f.OutputTokens))
		}
	case policies.Failed, policies.MetricsSampled, policies.ReplicaUp, policies.ReplicaDown, policies.ReplicaDraining:
		g.look = true
	case policies.ClientGone, policies.AttemptSuperseded:
		g.leave(f.Attempt)
	case policies.Woke:
		if g.NextWake() <= now {
			g.cycle(now, v)
		}
	}
}

// leave forgets a turn; its place in the queue is skipped later.
func (g *saturation) leave(a policies.AttemptID) {
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
	g.bands[t.band].count--
	g.count--
}

func (g *saturation) Admit(now policies.Time, v *policies.View, t *policies.Turn, _ *policies.Probes) policies.Verdict {
	x, ok := g.turns[t.Attempt]
	if !ok {
		b := g.bandOf(t.Class)
		if g.bands[b].count >= g.limit {
			return policies.Verdict{Kind: policies.VerdictReject, Reason: policies.QueueFull, RetryAfter: g.retryAfter}
		}
		g.enqueue(now, b, t)
		g.cycle(now, v)
		x = g.turns[t.Attempt]
	}
	deadline := policies.Never
	if g.ttl > 0 {
		deadline = x.arrived + g.ttl
	}
	switch {
	case x.granted:
		g.leave(t.Attempt)
		return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.Open}
	case deadline <= now:
		g.leave(t.Attempt)
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
	d.count++
	g.count++
}

// due is what orders a turn of so many prompt tokens that arrives now.
func (g *saturation) due(now policies.Time, tokens int32) policies.Time {
	if !g.byDeadline {
		return now
	}
	return now + seconds(g.ttft+float64(g.ttftPer1k*float64(tokens)/1000))
}

// cycle lets at most one turn go.
func (g *saturation) cycle(now policies.Time, v *policies.View) {
	g.look = false
	if g.count == 0 || g.detector.saturation(now, v) >= g.ceiling {
		return
	}
	for _, i := range g.order {
		if g.bands[i].count == 0 {
			continue
		}
		a := g.first(now, &g.bands[i])
		x := g.turns[a]
		x.granted = true
		g.turns[a] = x
		g.bands[i].count--
		g.count--
		g.detector.grant(x.tokens)
		g.lastCycle, g.look = now, true
		v.Wake(policies.WakeKey(a), 1)
		return
	}
}

// NextWake is when the next cycle is due, if one may let a turn go.
func (g *saturation) NextWake() policies.Time {
	if !g.look || g.count == 0 {
		return policies.Never
	}
	return g.lastCycle + cycleTime
}
