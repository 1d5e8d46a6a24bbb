package gateway

import (
	"cmp"
	"slices"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Batch is what became true at one moment. It is valid inside Do only.
type Batch struct{ d *Driver }

// Now is the moment.
func (b *Batch) Now() policies.Time { return b.d.now }

// View is the core's view, for reading.
func (b *Batch) View() *policies.View { return b.d.core.View() }

// Arrive brings a turn. Its verdict comes when the core has come to one.
func (b *Batch) Arrive(x Arrival) (*Attempt, error) {
	d := b.d
	if d.failed != nil {
		return nil, ErrCoreFailed
	}
	if d.cfg.MaxWaiting > 0 && len(d.attempts)-d.leases.Len() >= d.cfg.MaxWaiting {
		return nil, ErrQueueFull
	}
	s := d.registry.find(x.Session)
	if s == nil {
		if err := d.makeRoom(x.Session); err != nil {
			return nil, err
		}
		s = d.registry.open(x.Session)
	}
	if len(s.threads) >= maxConversations && s.threads[x.Thread] == nil {
		return nil, ErrTooManySessions
	}
	s.ended = x.Session == ""
	d.last++
	a := &Attempt{
		id: d.last, prompt: x.Prompt, arrived: d.now, replica: policies.NoReplica, cancel: x.Cancel, owner: x.Owner, verdict: make(chan Verdict, 1),
	}
	var former *thread
	if x.Former != nil {
		former = x.Former.thread
		a.retry = x.Former.retry + 1
		if x.Former.stage == waiting {
			d.facts = append(d.facts, policies.Fact{Kind: policies.AttemptSuperseded, Attempt: x.Former.id, Replica: policies.NoReplica})
		}
	}
	c := d.registry.conversation(s, x.Thread)
	c.ended = false
	a.thread = d.registry.thread(c, former)
	a.number = a.thread.turns + 1
	if a.thread == former {
		a.number = x.Former.number
	}
	d.registry.begin(a.thread)
	d.attempts[a.id] = a
	d.audit.Arrived++
	d.facts = append(d.facts, policies.Fact{Kind: policies.TurnArrived, Replica: policies.NoReplica, Turn: policies.Turn{
		Attempt: a.id, Session: s.number, Thread: a.thread.number, Number: a.number, Retry: a.retry,
		Prompt: x.Prompt, MaxTokens: x.MaxTokens, Class: x.Class, Group: x.Group, Key: x.Key,
	}})
	return a, nil
}

// Gone says that the client of a gave up. One that waits ends with it; a lease lives until Finished or Failed.
func (b *Batch) Gone(a *Attempt) {
	if a.stage == over || a.gone {
		return
	}
	a.gone = true
	b.d.facts = append(b.d.facts, policies.Fact{Kind: policies.ClientGone, Attempt: a.id, Replica: policies.NoReplica})
	if a.stage == waiting {
		b.d.audit.GaveUp++
		b.d.drop(a)
	}
}

// Dispatched says that the engine has taken the request of a in.
func (b *Batch) Dispatched(a *Attempt) {
	b.about(a, policies.Fact{Kind: policies.Dispatched})
}

// FirstToken says that the first token of a has come. Numbers that are not known are 0.
func (b *Batch) FirstToken(a *Attempt, u Usage) {
	b.about(a, policies.Fact{Kind: policies.FirstToken, PromptTokens: u.Prompt, HitTokens: u.Cached})
}

// Usage is what a request took, in tokens.
type Usage struct{ Prompt, Output, Cached, Preemptions int32 }

// Finished says that a ended with a result.
func (b *Batch) Finished(a *Attempt, u Usage) {
	b.end(a, policies.Fact{Kind: policies.Finished, PromptTokens: u.Prompt, OutputTokens: u.Output, HitTokens: u.Cached, Preemptions: u.Preemptions})
}

// Failed says that a ended without a result.
func (b *Batch) Failed(a *Attempt) { b.end(a, policies.Fact{Kind: policies.Failed}) }

// about reports a fact of a lease; of anything else there is nothing to report.
func (b *Batch) about(a *Attempt, f policies.Fact) bool {
	if a.stage != leased {
		return false
	}
	f.Attempt, f.Replica = a.id, a.replica
	b.d.facts = append(b.d.facts, f)
	return true
}

// end releases a lease. Whoever comes second finds it over.
func (b *Batch) end(a *Attempt, f policies.Fact) {
	if b.about(a, f) {
		b.d.drop(a)
	}
}

// Probed brings the answer to a probe.
func (b *Batch) Probed(p Probe, answer Answer) { b.d.facts = append(b.d.facts, p.fact(answer)) }

func (p Probe) fact(x Answer) policies.Fact {
	f := policies.Fact{Kind: policies.UsageProbed, Attempt: p.Attempt.id, Replica: p.Replica, Outcome: x.Outcome, Usage: x.Usage}
	if p.Prefix {
		f.Kind, f.Usage, f.HitTokens, f.PromptTokens = policies.PrefixProbed, 0, x.HitTokens, x.PromptTokens
	}
	return f
}

// Lease is the lease with the given number, nil if it has ended or never was.
func (b *Batch) Lease(id policies.AttemptID) *Attempt {
	if a := b.d.attempts[id]; a != nil && a.stage == leased {
		return a
	}
	return nil
}

// takeBack ends every lease.
func (b *Batch) takeBack() {
	for e := b.d.leases.Front(); e != nil; e = b.d.leases.Front() {
		b.d.revoke(e.Value.(*Attempt))
	}
}

// Leases visits the leases of replica r.
func (b *Batch) Leases(r policies.ReplicaID, visit func(*Attempt)) {
	for e := b.d.leases.Front(); e != nil; e = e.Next() {
		if a := e.Value.(*Attempt); a.replica == r {
			visit(a)
		}
	}
}

// Waiting visits the attempts that wait, in no particular order.
func (b *Batch) Waiting(visit func(*Attempt)) {
	for _, a := range b.d.attempts {
		if a.stage == waiting {
			visit(a)
		}
	}
}

// addFacts adds facts of KV events.
func (b *Batch) addFacts(facts []policies.Fact) { b.d.facts = append(b.d.facts, facts...) }

// Replica is where a was sent.
func (a *Attempt) Replica() policies.ReplicaID { return a.replica }

// Sampled brings a scrape of replica r.
func (b *Batch) Sampled(r policies.ReplicaID, s policies.Sample) {
	b.d.facts = append(b.d.facts, policies.Fact{Kind: policies.MetricsSampled, Replica: r, Sample: s})
}

// Progressed tells the core how many output tokens the leases of replica r have, as far as that has changed.
func (b *Batch) Progressed(r policies.ReplicaID) {
	for e := b.d.leases.Front(); e != nil; e = e.Next() {
		a := e.Value.(*Attempt)
		if n := a.tokens.Load(); a.replica == r && n > a.reported {
			a.reported = n
			b.about(a, policies.Fact{Kind: policies.TokensProgressed, OutputTokens: n})
		}
	}
}

// ProgressedTo tells the core how many output tokens a has.
func (b *Batch) ProgressedTo(a *Attempt, tokens int32) {
	a.reported = tokens
	b.about(a, policies.Fact{Kind: policies.TokensProgressed, OutputTokens: tokens})
}

// Stored says that replica r holds blocks lo <= i < hi of a stream.
func (b *Batch) Stored(r policies.ReplicaID, s prefix.StreamID, lo, hi, blockTokens int32) {
	b.blocks(policies.BlocksStored, r, s, lo, hi, blockTokens)
}

// Evicted says that replica r dropped one copy of each of these blocks.
func (b *Batch) Evicted(r policies.ReplicaID, s prefix.StreamID, lo, hi, blockTokens int32) {
	b.blocks(policies.BlocksEvicted, r, s, lo, hi, blockTokens)
}

func (b *Batch) blocks(kind policies.FactKind, r policies.ReplicaID, s prefix.StreamID, lo, hi, blockTokens int32) {
	b.d.facts = append(b.d.facts, policies.Fact{Kind: kind, Replica: r, Stream: s, Lo: lo, Hi: hi, BlockTokens: blockTokens})
}

// Cleared says that replica r dropped everything that it held.
func (b *Batch) Cleared(r policies.ReplicaID) { b.replica(policies.BlocksCleared, r) }

// Up says that replica r takes turns.
func (b *Batch) Up(r policies.ReplicaID) { b.replica(policies.ReplicaUp, r) }

// Down says that replica r takes no turns and has lost what it held.
func (b *Batch) Down(r policies.ReplicaID) { b.replica(policies.ReplicaDown, r) }

// Draining says that replica r takes nothing new.
func (b *Batch) Draining(r policies.ReplicaID) { b.replica(policies.ReplicaDraining, r) }

// Restarted says that the process of replica r is a new one. Its leases end.
func (b *Batch) Restarted(r policies.ReplicaID) {
	b.replica(policies.ReplicaRestarted, r)
	var lost []*Attempt
	for e := b.d.leases.Front(); e != nil; e = e.Next() {
		if a := e.Value.(*Attempt); a.replica == r {
			lost = append(lost, a)
		}
	}
	slices.SortFunc(lost, func(x, y *Attempt) int { return cmp.Compare(x.id, y.id) })
	for _, a := range lost { // the core ends them by itself
		b.d.drop(a)
		if a.cancel != nil {
			a.cancel()
		}
	}
}

func (b *Batch) replica(kind policies.FactKind, r policies.ReplicaID) {
	b.d.facts = append(b.d.facts, policies.Fact{Kind: kind, Replica: r})
}

// EndSession says that the session or the conversation called key sends no more turns; false if there is none. One with
// turns that wait or run ends with the last of them, unless another turn of it comes first.
func (b *Batch) EndSession(key string) bool {
	s := b.d.registry.find(key)
	if s == nil {
		return false
	}
	if s.key == key {
		s.ended = true
		b.d.forgetEnded(nil, s)
		return true
	}
	c := s.threads[key]
	c.ended = true
	b.d.forgetEnded(c, s)
	return true
}

// Retry takes one retry from the budget of the session called key: most in a window of time. A session that is not known
// has all of it.
func (b *Batch) Retry(key string, most int, window policies.Time) (ok bool, wait policies.Time) {
	s := b.d.registry.find(key)
	if s == nil {
		return true, 0
	}
	return s.retries.spend(b.d.now, most, window)
}
