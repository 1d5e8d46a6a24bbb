package sim

import "github.com/sluice-sim/sluice/policies"

// probe is a question to a replica: it takes the IPC time to reach the engine, waits for the end of the step in
// progress, and is answered then; an idle engine answers at once (spec: vllm 15).
type probe struct {
	generation uint32
	open       bool
	kind       policies.CommandKind
	replica    int32
	attempt    policies.AttemptID
}

func (r *run) ask(c policies.Command) {
	var q int32
	if n := len(r.spareProbes); n > 0 {
		q = r.spareProbes[n-1]
		r.spareProbes = r.spareProbes[:n-1]
	} else {
		q = int32(len(r.probes))
		r.probes = append(r.probes, probe{})
	}
	x := &r.probes[q]
	*x = probe{generation: x.generation + 1, open: true, kind: c.Kind, replica: int32(c.Replica), attempt: c.Attempt}
	r.agenda.push(r.now+r.cfg.Signals.ProbeIPCPS, probeReaches, q, 0)
	if t := r.cfg.Signals.ProbeTimeoutPS; t > 0 {
		r.agenda.push(r.now+t, probeExpires, q, x.generation)
	}
}

func (r *run) probeReached(q int32) {
	i := r.probes[q].replica
	p := &r.replicas[i]
	if r.cfg.Signals.NoProbes || r.faults.conditions[i].down {
		r.refuseProbe(q)
		return
	}
	r.interrupt(i)
	if p.blocked && p.flight[0].computes && p.flight[0].end > r.now {
		p.probes = append(p.probes, q)
		return
	}
	r.answerProbe(q)
}

// refuseProbe answers for a replica that cannot.
func (r *run) refuseProbe(q int32) {
	if x := &r.probes[q]; x.open {
		x.open = false
		r.sendAnswer(x, policies.ProbeUnsupported)
	}
	r.spareProbes = append(r.spareProbes, q)
}

// dropProbes answers the probes that wait at replica i, which is gone.
func (r *run) dropProbes(i int32) {
	p := &r.replicas[i]
	for _, q := range p.probes {
		r.refuseProbe(q)
	}
	p.probes = p.probes[:0]
}

// answerProbe answers a probe, unless its deadline has passed, and frees it.
func (r *run) answerProbe(q int32) {
	x := &r.probes[q]
	if x.open {
		r.sendAnswer(x, policies.ProbeValue)
	}
	x.open = false
	r.spareProbes = append(r.spareProbes, q)
}

// probeExpired answers for a replica that is too late.
func (r *run) probeExpired(q int32, generation uint32) {
	x := &r.probes[q]
	if x.open && x.generation == generation {
		x.open = false
		r.sendAnswer(x, policies.ProbeTimeout)
	}
}

func (r *run) sendAnswer(x *probe, outcome policies.ProbeOutcome) {
	f := policies.Fact{Kind: policies.UsageProbed, Attempt: x.attempt, Replica: policies.ReplicaID(x.replica), Outcome: outcome}
	p := &r.replicas[x.replica]
	if x.kind == policies.ProbePrefix {
		f.Kind = policies.PrefixProbed
		if a := r.attemptOf(x.attempt); outcome == policies.ProbeValue && r.attempts[a].id == x.attempt {
			f.PromptTokens = r.attempts[a].prompt.Tokens
			f.HitTokens = p.loop.Hit(r.attempts[a].path, f.PromptTokens)
		} else if outcome == policies.ProbeValue {
			return // the attempt is gone
		}
	} else if outcome == policies.ProbeValue {
		f.Usage = p.loop.Usage()
	}
	r.fact(f)
}
