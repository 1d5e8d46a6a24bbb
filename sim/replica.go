package sim

import (
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
)

// replica is one engine with its clock. What every step looks at comes first: where thousands take turns, what costs is how
// much memory a turn touches.
type replica struct {
	slots []slotState // by engine slot

	dirty    bool   // has something to do at this instant
	blocked  bool   // waits for the oldest step in flight
	deferred bool   // the first ordinary end of a step is settled with the one after it; see defer.go
	depth    int8   // steps in flight
	runEpoch uint32 // of the time since the replica last began to wait for an end
	inFlight int32
	kvEpoch  uint32 // of the events on the agenda
	flight   [2]span
	freeAt   int64 // when the last step in flight ends
	decoding decodeRun

	evicted int64     // blocks, accounted for
	inbox   []int32   // attempts dispatched and not taken in yet
	outbox  []kvBatch // KV events on their way to the policies
	aborts  []int32   // attempts to abort before the next output is processed
	probes  []int32   // probes that wait for the end of the step in progress
	series  series
	loop    engine.Loop

	gauges  policies.Sample // of the last finished step
	lazy    lazyScrapes
	queries int64 // prefix-cache counters
	hits    int64

	tier tier
	pins []int32 // places in run.retention
}

// slotState is what changes with every step about an attempt in an engine; the rest of it is looked at when it comes and
// goes.
type slotState struct {
	attempt   int32
	prompt    int32 // tokens
	output    int32 // tokens so far
	lastToken int64
	longest   int64 // gap between output tokens
}

// span is the time of one step.
type span struct {
	start, end int64
	computes   bool
}

// kvBatch is the events of one step, to be seen at a moment.
type kvBatch struct {
	at     int64
	events []kv.Event
}

// wake marks a replica for scheduling at the end of this instant.
func (r *run) wake(i int32) {
	if p := &r.replicas[i]; !p.dirty {
		p.dirty = true
		r.dirty = append(r.dirty, i)
	}
}

// pump runs the engine loop until it blocks or is idle. vLLM takes its inputs before each iteration.
func (r *run) pump(i int32) {
	p := &r.replicas[i]
	p.dirty = false
	if p.blocked { // inputs wait for the end of the step
		if len(p.inbox)+len(p.aborts) > 0 {
			r.curtail(i)
			r.endWait(i)
		}
		return
	}
	r.catchUp(i, r.now)
	for {
		r.takeInputs(i)
		r.makeRoom(i)
		outcome, scheduled, _ := p.loop.Advance()
		if scheduled != nil {
			r.scheduled(i, scheduled)
		}
		switch outcome {
		case engine.Idle:
			return
		case engine.Blocked:
			p.blocked = true
			r.begin(i)
			return
		}
	}
}

// takeInputs gives the engine what was dispatched to it.
func (r *run) takeInputs(i int32) {
	p := &r.replicas[i]
	r.applyAborts(i)
	for _, a := range p.inbox {
		x := &r.attempts[a]
		x.slot = p.loop.Add(engine.Request{
			ID: int64(x.id), Prompt: x.prompt, MaxTokens: x.outputTokens, Arrival: int64(x.id), Path: x.path,
		})
		x.stage = inEngine
		for int(x.slot) >= len(p.slots) {
			p.slots = append(p.slots, slotState{})
		}
		p.slots[x.slot] = slotState{attempt: a, prompt: x.prompt.Tokens, lastToken: results.Missing, longest: results.Missing}
		r.totals.EngineAdmissions++
		r.fact(policies.Fact{Kind: policies.Dispatched, Attempt: x.id, Replica: policies.ReplicaID(i)})
	}
	p.inbox = p.inbox[:0]
}

func (r *run) applyAborts(i int32) {
	p := &r.replicas[i]
	for _, a := range p.aborts {
		x := &r.attempts[a]
		p.loop.Abort(x.slot)
		r.leaveReplica(a)
		if !x.failed {
			r.fact(policies.Fact{Kind: policies.Failed, Attempt: x.id, Replica: policies.ReplicaID(i)})
		}
		r.endAttempt(a, r.now)
	}
	p.aborts = p.aborts[:0]
}

// scheduled accounts for a step that was put in flight and gives it its time.
func (r *run) scheduled(i int32, st *engine.Step) {
	p := &r.replicas[i]
	for _, adm := range p.loop.Admitted {
		r.admitted(i, p.slots[adm.Slot].attempt, adm)
	}
	for _, s := range p.loop.Preempted {
		x := &r.attempts[p.slots[s].attempt]
		x.row.Preemptions++
		p.series.cur.Preemptions++
		r.totals.Preemptions++
	}
	for k := range st.Entries {
		e := &st.Entries[k]
		if n := min(e.Past+e.Tokens, p.slots[e.Slot].prompt) - e.Past; n > 0 {
			x := &r.attempts[p.slots[e.Slot].attempt]
			x.row.ComputedTokens += n
			x.reached = max(x.reached, e.Past+n)
			p.series.cur.ComputedTokens += int64(n)
		}
	}
	r.noteContent(i)
	t := span{start: max(r.now, p.freeAt), computes: st.Tokens > 0}
	d := int64(0)
	if t.computes {
		d = r.stepTime(i, st)
		r.totals.Steps++
	}
	longer := int64(0)
	if r.cfg.CPUTier != nil {
		t.start, longer = p.tier.begin(r.cfg.CPUTier, t.start, d)
		r.totals.TransferBusyPS += longer
	}
	t.end = t.start + d + longer
	if r.cfg.CPUTier != nil && p.tier.spins(t.computes) {
		t.end = never
	} else if r.cfg.CPUTier != nil && !t.computes {
		t.end = p.tier.wait(t.start)
	}
	p.freeAt = t.end
	p.flight[p.depth] = t
	p.depth++
}

// stepTime is what the law says, and what of it the decoding requests would take by themselves.
func (r *run) stepTime(i int32, st *engine.Step) int64 {
	d := r.stepPS(i, st.Shape)
	decode := int64(0)
	if len(st.Shape.Prefill) == 0 {
		decode = d
	} else if st.Shape.DecodeRows > 0 {
		decode = r.stepPS(i, &latency.Batch{
			DecodeRows: st.Shape.DecodeRows, DecodeContext: st.Shape.DecodeContext,
			DecodeWindowed: st.Shape.DecodeWindowed, Sampled: st.Shape.DecodeRows,
		})
	}
	decode = min(decode, d)
	r.totals.DecodeBusyPS += decode
	r.totals.PrefillBusyPS += d - decode
	return d
}

// stepEnded processes the output of the oldest step in flight.
func (r *run) stepEnded(i int32) {
	p := &r.replicas[i]
	r.catchUp(i, r.now)
	p.decoding.active, p.deferred = false, false
	p.blocked = false
	p.series.busy(p, r.now)
	p.flight[0] = p.flight[1]
	p.depth--
	r.applyAborts(i)
	if r.cfg.CPUTier != nil {
		p.tier.report(r.now)
	}
	p.loop.Complete()
	r.prefetchOwn()
	gap, run := int64(-1), int64(0) // equal gaps are recorded together
	for _, s := range p.loop.Sampled {
		y := &p.slots[s]
		y.output++
		if y.output == 1 {
			x := &r.attempts[y.attempt]
			x.row.FirstTokenPS = r.now
			r.fact(policies.Fact{Kind: policies.FirstToken, Attempt: x.id, Replica: policies.ReplicaID(i), PromptTokens: x.prompt.Tokens, HitTokens: x.row.HitGPU + x.row.HitCPU})
		} else {
			g := r.now - y.lastToken
			y.longest = max(y.longest, g)
			if g != gap && run > 0 {
				r.totals.ITL.Record(gap, run)
				run = 0
			}
			gap = g
			run++
		}
		y.lastToken = r.now
	}
	p.series.cur.OutputTokens += int64(len(p.loop.Sampled))
	if run > 0 {
		r.totals.ITL.Record(gap, run)
	}
	for _, f := range p.loop.Finished {
		r.engineFinished(i, p.slots[f.Slot].attempt)
	}
	r.noteContent(i)
	r.publishKV(i, r.now)
	if r.samples {
		st := p.loop.TakePrefixStats()
		p.queries += st.Queries
		p.hits += st.Hits
		p.gauges = policies.Sample{
			Has:     policies.HasRunning | policies.HasWaiting | policies.HasUsage | policies.HasPrefixCounters,
			Running: int32(p.loop.Running()), Waiting: int32(p.loop.Waiting() + p.loop.Skipped()), Usage: p.loop.Usage(),
			QueryTokens: p.queries, HitTokens: p.hits,
		}
	}
	for _, q := range p.probes {
		r.answerProbe(q)
	}
	p.probes = p.probes[:0]
}

// noteContent takes the pool's events: what was ever computed where, and evicted tokens.
func (r *run) noteContent(i int32) {
	p := &r.replicas[i]
	pool := p.loop.Pool()
	if n := pool.Evicted(); n > p.evicted {
		p.series.cur.EvictedTokens += (n - p.evicted) * int64(r.cfg.Engine.BlockTokens)
		p.evicted = n
	}
	events := pool.Events()
	if len(events) == 0 {
		return
	}
	for k := range events {
		e := &events[k]
		if e.Kind == kv.Stored {
			r.history.computed(i, e.Stream, e.Hi)
		}
		switch {
		case !r.sendKV:
		case e.Late: // the step after which it is published has ended
			r.told(i, e)
		default:
			p.outboxAdd(*e)
		}
	}
	pool.ClearEvents()
}

// outboxAdd collects events until the end of the step publishes them.
func (p *replica) outboxAdd(e kv.Event) {
	if n := len(p.outbox); !p.unpublished() {
		if n < cap(p.outbox) {
			p.outbox = p.outbox[:n+1]
			p.outbox[n].at, p.outbox[n].events = -1, p.outbox[n].events[:0]
		} else {
			p.outbox = append(p.outbox, kvBatch{at: -1})
		}
	}
	b := &p.outbox[len(p.outbox)-1]
	b.events = append(b.events, e)
}

// unpublished tells whether there are KV events that wait for the end of a step.
func (p *replica) unpublished() bool {
	n := len(p.outbox)
	return n > 0 && p.outbox[n-1].at < 0
}

// publishKV sends the collected events on their way at the end of a step.
func (r *run) publishKV(i int32, ended int64) {
	p := &r.replicas[i]
	if !p.unpublished() {
		return
	}
	n := len(p.outbox)
	p.outbox[n-1].at = ended + r.cfg.Signals.KVEventDelayPS
	if p.outbox[n-1].at <= r.event {
		r.deliverKV(i)
	} else {
		r.agenda.push(p.outbox[n-1].at, kvEventsReach, i, p.kvEpoch)
	}
}

// deliverKV turns the oldest published events into facts.
func (r *run) deliverKV(i int32) {
	p := &r.replicas[i]
	first := p.outbox[0]
	for k := range first.events {
		r.told(i, &first.events[k])
	}
	last := len(p.outbox) - 1
	copy(p.outbox, p.outbox[1:])
	p.outbox[last] = kvBatch{events: first.events[:0]}
	p.outbox = p.outbox[:last]
}

// told turns an event of replica i into a fact.
func (r *run) told(i int32, e *kv.Event) {
	r.news.spoken[i] = true
	f := policies.Fact{
		Kind: policies.BlocksStored, Replica: policies.ReplicaID(i), Stream: e.Stream, Lo: e.Lo, Hi: e.Hi,
		BlockTokens: r.cfg.Engine.BlockTokens,
	}
	switch e.Kind {
	case kv.Evicted:
		f.Kind = policies.BlocksEvicted
	case kv.Cleared:
		f.Kind = policies.BlocksCleared
	}
	r.fact(f)
}
