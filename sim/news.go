package sim

import (
	"slices"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// news is which replicas have KV events to tell of that nobody has looked for, because they are jumping over decode
// steps. A step of a run stores content of the streams that its requests write, and evicts content of streams that are
// known when the run begins. Policies ask for nothing but how much of the prompt of the turn that they decide on is
// resident, so before a decision it is enough to bring up to now the replicas whose runs touch a stream of such a prompt.
// An end of a step that is settled late is like a run of one step. What requests have stored of the streams that they write,
// and register late, concerns turns that have such a stream on their path; before a decision about one everybody is heard.
type news struct {
	all     bool              // the policies are told everything before each decision: somebody keeps what they are told
	each    bool              // KV events are published one by one, each at its own moment, during a run too
	gated   bool              // turns may wait, so that a decision may be about any of them
	due     agenda            // with all or gated: the next event of each run; a is the replica, b its epoch
	silent  []int32           // replicas that fell behind and have not spoken
	listed  []bool            // by replica: it was in silent
	spoken  []bool            // by replica: it has published a KV event; before, how much it holds is unknown, not nothing
	told    []int32           // scratch
	changed []prefix.StreamID // scratch
}

// evictor is a replica whose run of some epoch evicts content of a stream.
type evictor struct {
	replica int32
	epoch   uint32
}

func (r *run) planNews() {
	n := &r.news
	n.all = r.cfg.Decisions != nil
	n.each = r.sendKV && (n.all || r.looks || r.cfg.Signals.KVEventDelayPS > 0)
	n.gated = r.cfg.Gate.Name != "none"
	n.spoken = make([]bool, len(r.replicas))
	n.listed = make([]bool, len(r.replicas))
}

// expectNews notes what the run that replica i begins, or the end that it defers, will change in what it holds, and what
// was changed by the steps in flight, which is published when they end.
func (r *run) expectNews(i int32) {
	n := &r.news
	p := &r.replicas[i]
	if n.all || n.gated {
		r.expectDue(i)
	}
	if n.all {
		return
	}
	if !n.spoken[i] && !n.listed[i] {
		n.listed[i] = true
		n.silent = append(n.silent, i)
	}
	if p.deferred {
		m := int32(0)
		if p.decoding.active {
			m = p.decoding.left
		}
		n.changed = p.loop.MayEvict(m, n.changed[:0])
	} else {
		n.changed = p.loop.Evicts(p.decoding.left, n.changed[:0])
	}
	if p.unpublished() {
		for _, e := range p.outbox[len(p.outbox)-1].events {
			n.changed = append(n.changed, e.Stream)
		}
	}
	for _, s := range n.changed {
		x := r.history.enter(s)
		if x == nil { // no turn will ask for it
			continue
		}
		k := slices.IndexFunc(x.evictors, func(e evictor) bool { return e.replica == i })
		if k < 0 {
			k = len(x.evictors)
			x.evictors = append(x.evictors, evictor{replica: i})
		}
		x.evictors[k].epoch = p.runEpoch
	}
}

// expectDue notes when replica i next publishes KV events during its run. The m-th step changes the pool for the step
// after it, at whose end that is published.
func (r *run) expectDue(i int32) {
	p := &r.replicas[i]
	m, steps := int32(0), int32(0)
	if p.decoding.active {
		steps = p.decoding.left
		if !p.unpublished() {
			m = p.loop.NextEvent(steps)
		}
	}
	if p.deferred {
		m = min(m, steps)
		steps++
	}
	if m < steps {
		r.news.due.push(p.endOf(m)+r.cfg.Signals.KVEventDelayPS, kvEventsReach, i, p.runEpoch)
	}
}

// look brings up to now what the policies are about to see. Where a step ends at this very moment its end has to come
// first: look then reports false, and is called again when the moment's events have been handled.
func (r *run) look() bool {
	switch n := &r.news; {
	case r.looks:
		return r.lookAll()
	case !r.sendKV:
		return true
	case n.all:
		return r.lookAtDue()
	default:
		return r.lookForTurns()
	}
}

// lookForTurns is look for the turns that may be decided on now: those that arrive, unless others wait.
func (r *run) lookForTurns() bool {
	n := &r.news
	n.told = n.told[:0]
	arrivals := 0
	for k := range r.facts {
		if r.facts[k].Kind != policies.TurnArrived {
			continue
		}
		arrivals++
		x := &r.attempts[r.attemptOf(r.facts[k].Turn.Attempt)]
		for _, s := range x.path {
			if k := r.history.of(s.Stream); k != nil && k.writers > 0 {
				return r.lookWide()
			}
			n.addEvictors(r, s.Stream)
		}
	}
	if r.atGate > arrivals {
		return r.lookWide()
	}
	if arrivals == 0 {
		return true
	}
	n.silent = slices.DeleteFunc(n.silent, func(i int32) bool { return n.spoken[i] })
	n.told = append(n.told, n.silent...)
	return r.lookAt(n.told)
}

// addEvictors lists the replicas that are in a run which evicts content of stream s.
func (n *news) addEvictors(r *run, s prefix.StreamID) {
	x := r.history.of(s)
	if x == nil {
		return
	}
	x.evictors = slices.DeleteFunc(x.evictors, func(e evictor) bool { return !r.inRun(e.replica, e.epoch) })
	for _, e := range x.evictors {
		n.told = append(n.told, e.replica)
	}
}

func (r *run) inRun(i int32, epoch uint32) bool {
	p := &r.replicas[i]
	return p.behind() && p.runEpoch == epoch
}

// lookWide is look where any replica's news may matter.
func (r *run) lookWide() bool {
	if r.news.gated {
		return r.lookAtDue()
	}
	return r.lookAll()
}

// lookAtDue looks at every replica that has KV events to tell of by now.
func (r *run) lookAtDue() bool {
	n := &r.news
	n.told = n.told[:0]
	for len(n.due.heap) > 0 && n.due.heap[0].at <= r.now {
		if e := n.due.pop(); r.inRun(e.a, e.b) {
			n.told = append(n.told, e.a)
		}
	}
	quiet := r.lookAt(n.told)
	for _, i := range n.told {
		if r.replicas[i].behind() {
			r.expectDue(i)
		}
	}
	return quiet
}

// lookAt brings replicas up to now, each once and in order; for false see look.
func (r *run) lookAt(replicas []int32) bool {
	slices.Sort(replicas)
	quiet := true
	for k, i := range replicas {
		if k == 0 || i != replicas[k-1] {
			quiet = r.upTo(i) && quiet
		}
	}
	return quiet
}

// hear is upTo, and tells the policies all that they have not been told of.
func (r *run) hear(i int32) bool {
	quiet := r.upTo(i)
	if r.sendKV {
		r.replicas[i].loop.FlushDue()
		r.noteContent(i)
	}
	return quiet
}
