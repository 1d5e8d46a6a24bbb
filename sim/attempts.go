package sim

import (
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// stage is how far an attempt has come.
type stage uint8

const (
	vacant   stage = iota
	atGate         // waits for a verdict
	sent           // dispatched, not taken in by the engine
	inEngine       // waits or runs there
	answered       // finished there; the client sees it after the API's own time
)

// attemptBits of an AttemptID hold the attempt's place in the slab, the rest counts attempts.
const attemptBits = 20

// attempt is one live attempt of a turn.
type attempt struct {
	id           policies.AttemptID
	generation   uint32 // of the slot; tells stale timers apart
	turn         turnRef
	stage        stage
	gone         bool // the client no longer waits for it
	aborting     bool // the engine has been told to abort it
	failed       bool // its failure has been reported
	outputTokens int32
	prompt       prefix.Prefix
	path         []prefix.Segment
	slot         engine.Slot
	reached      int32 // prompt tokens computed or found at some time
	before       int32 // prompt tokens that former attempts had computed
	waste        [results.NumCauses]int32
	row          results.Turn
}

func (r *run) attemptOf(id policies.AttemptID) int32 { return int32(id & (1<<attemptBits - 1)) }

// arrive sends a turn's next attempt to the gate.
func (r *run) arrive(turn turnRef, now int64) {
	t := r.turn(turn)
	if t.ended {
		return
	}
	ss := &r.sessions[turn.session]
	rec := r.traceTurn(turn)
	t.attempts++
	stream := r.stream(ss, rec.Prompt.Stream)
	before := int32(0)
	if t.attempts > 1 {
		before = r.supersede(turn)
		f := r.tree.Fork(prefix.Prefix{Stream: stream, Tokens: rec.Prompt.Tokens})
		ss.forks = append(ss.forks, forked{rec.Prompt.Stream, f})
		stream = f
	}
	a := r.newAttempt()
	x := &r.attempts[a]
	x.turn = turn
	x.stage = atGate
	r.atGate++
	x.outputTokens = rec.OutputTokens
	x.prompt = prefix.Prefix{Stream: stream, Tokens: rec.Prompt.Tokens}
	x.path = r.tree.Segments(prefix.Prefix{Stream: stream, Tokens: rec.Prompt.Tokens + rec.OutputTokens}, r.cfg.Engine.BlockTokens, x.path[:0])
	x.before = before
	x.row = results.Turn{
		Session: ss.row.Session, Thread: rec.Thread, Number: rec.Number, Attempt: t.attempts, Class: ss.class, Group: ss.row.Group,
		Replica: -1, PrefillReplica: -1, ArrivalPS: now, AdmittedPS: results.Missing, SentPS: results.Missing,
		ScheduledPS: results.Missing, FirstTokenPS: results.Missing, DonePS: results.Missing, PromptTokens: rec.Prompt.Tokens,
		ITLMaxPS: results.Missing, ToolGapPS: t.gapPS, IdleTTFTPS: results.Missing, IdleTPOTPS: results.Missing,
		CeilingTokens: t.ceiling,
	}
	if t.attempts > 1 {
		// A former attempt may have computed all of the prompt.
		x.row.CeilingTokens = max(x.row.CeilingTokens, (rec.Prompt.Tokens-1)/r.cfg.Engine.BlockTokens*r.cfg.Engine.BlockTokens)
	}
	if c := r.cfg.CPUTier; c != nil {
		x.row.CeilingTokens = c.ceiling(x.row.CeilingTokens, x.row.PromptTokens, r.cfg.Engine.BlockTokens)
	}
	if r.cfg.IdleLatency {
		r.idleLatency(x)
	}
	t.live++
	ss.live++
	if r.cfg.Clients.TimeoutPS > 0 {
		r.agenda.push(now+r.cfg.Clients.TimeoutPS, clientGivesUp, a, x.generation)
	}
	r.mayLeave(a)
	r.fact(policies.Fact{Kind: policies.TurnArrived, Replica: policies.NoReplica, Turn: policies.Turn{
		Attempt: x.id, Session: policies.SessionID(ss.row.Session), Thread: policies.ThreadID(ss.thread + t.thread), Number: rec.Number,
		Retry: t.attempts - 1, Prompt: x.prompt, Class: x.row.Class, Group: x.row.Group,
	}})
}

func (r *run) newAttempt() int32 {
	var a int32
	if n := len(r.spareAttempts); n > 0 {
		a = r.spareAttempts[n-1]
		r.spareAttempts = r.spareAttempts[:n-1]
	} else {
		a = int32(len(r.attempts))
		r.attempts = append(r.attempts, attempt{})
	}
	x := &r.attempts[a]
	r.attemptCount++
	*x = attempt{id: policies.AttemptID(r.attemptCount<<attemptBits | int64(a)), generation: x.generation + 1, path: x.path}
	return a
}

// supersede tells the gate that older attempts of a turn which still wait have a successor, and returns how many prompt
// tokens former attempts had computed.
func (r *run) supersede(turn turnRef) int32 {
	for a := range r.attempts {
		x := &r.attempts[a]
		if x.stage == atGate && x.turn == turn {
			r.fact(policies.Fact{Kind: policies.AttemptSuperseded, Attempt: x.id, Replica: policies.NoReplica})
		}
	}
	return r.turn(turn).reached
}

// giveUp is a client's timeout.
func (r *run) giveUp(a int32, now int64) {
	x := &r.attempts[a]
	if x.gone || x.stage == answered {
		return
	}
	x.gone = true
	r.remember(a)
	turn := x.turn
	if r.cfg.Clients.CancelUpstream {
		r.fact(policies.Fact{Kind: policies.ClientGone, Attempt: x.id, Replica: policies.NoReplica})
		if x.stage == atGate {
			r.endAttempt(a, now)
		} else {
			r.abortAtReplica(a)
		}
	}
	r.retryOrFail(turn, now)
}

// retryOrFail sends the next attempt of a turn whose client gave up or was refused, or ends the turn for good.
func (r *run) retryOrFail(turn turnRef, now int64) {
	if r.turn(turn).attempts <= r.cfg.Clients.Retries {
		r.plan(turn, now+r.cfg.Clients.RetryDelayPS)
		return
	}
	r.turnFailed(turn, now)
}

// remember keeps how much of the prompt this attempt computed, for the waste of the next one.
func (r *run) remember(a int32) {
	x := &r.attempts[a]
	t := r.turn(x.turn)
	t.reached = max(t.reached, x.reached)
}

// abortAtReplica has the engine drop an attempt that was dispatched. One that the engine has not taken in yet ends at
// once.
func (r *run) abortAtReplica(a int32) {
	x := &r.attempts[a]
	if x.aborting {
		return
	}
	i := x.row.Replica
	p := &r.replicas[i]
	if x.stage == sent {
		for k, b := range p.inbox {
			if b == a {
				p.inbox = append(p.inbox[:k], p.inbox[k+1:]...)
				break
			}
		}
		r.leaveReplica(a)
		r.fact(policies.Fact{Kind: policies.Failed, Attempt: x.id, Replica: policies.ReplicaID(i)})
		r.endAttempt(a, r.now)
		return
	}
	x.aborting = true
	p.aborts = append(p.aborts, a)
	r.wake(i)
}

func (r *run) leaveReplica(a int32) {
	x := &r.attempts[a]
	i := x.row.Replica
	r.catchUp(i, r.now)
	if x.stage == inEngine {
		y := &r.replicas[i].slots[x.slot]
		x.row.OutputTokens, x.row.ITLMaxPS = y.output, y.longest
	}
	r.replicas[i].inFlight--
	r.wrote(x.prompt.Stream, -1)
}

// engineFinished is the end of an attempt in its engine.
func (r *run) engineFinished(i, a int32) {
	x := &r.attempts[a]
	r.leaveReplica(a)
	r.retention.ended(x, &r.sessions[x.turn.session])
	for k, b := range r.replicas[i].aborts {
		if b == a { // it ended before it could be aborted
			r.replicas[i].aborts = append(r.replicas[i].aborts[:k], r.replicas[i].aborts[k+1:]...)
			break
		}
	}
	if !x.failed {
		r.fact(policies.Fact{
			Kind: policies.Finished, Attempt: x.id, Replica: policies.ReplicaID(i), PromptTokens: x.prompt.Tokens,
			OutputTokens: x.row.OutputTokens, HitTokens: x.row.HitGPU + x.row.HitCPU, Preemptions: x.row.Preemptions,
		})
	}
	if x.gone {
		r.endAttempt(a, r.now)
		return
	}
	x.stage = answered
	x.row.FirstTokenPS += r.apiPS
	if r.apiPS == 0 {
		r.clientSaw(a, r.now)
	} else {
		r.agenda.push(r.now+r.apiPS, clientSees, a, x.generation)
	}
}

// clientSaw completes the turn: its client has the last token.
func (r *run) clientSaw(a int32, now int64) {
	x := &r.attempts[a]
	x.row.DonePS = now
	x.row.Final = true
	turn := x.turn
	ss := &r.sessions[turn.session]
	ss.row.FinishedTurns++
	ss.row.PromptTokens += int64(x.row.PromptTokens)
	ss.row.OutputTokens += int64(x.row.OutputTokens)
	ss.row.ComputedTokens += int64(x.row.ComputedTokens)
	ss.row.EndPS = now
	r.totals.EndPS = max(r.totals.EndPS, now)
	r.endAttempt(a, now)
	r.trigger(turn, traces.OnCompletion, now)
	r.turnOver(turn, now)
}

// turnOver is the end of a turn, finished or not.
func (r *run) turnOver(turn turnRef, now int64) {
	ss := &r.sessions[turn.session]
	t := &ss.turns[turn.turn]
	t.ended = true
	r.turnsDone++
	ss.open--
	if ss.threadOpen[t.thread]--; ss.threadOpen[t.thread] == 0 {
		r.fact(policies.Fact{Kind: policies.ThreadFinished, Thread: policies.ThreadID(ss.thread + t.thread), Session: policies.SessionID(ss.row.Session), Replica: policies.NoReplica})
	}
	r.settleSession(turn.session, now)
}

// settleSession ends a session when its last turn is over. Its row waits for attempts that live on unseen.
func (r *run) settleSession(place int32, now int64) {
	ss := &r.sessions[place]
	if ss.open == 0 && !ss.done {
		ss.done = true
		r.fact(policies.Fact{Kind: policies.SessionFinished, Session: policies.SessionID(ss.row.Session), Replica: policies.NoReplica})
		r.sessionOver(now)
	}
	if ss.done && ss.live == 0 {
		ss.row.Complete = !ss.failed
		ss.row.ReplicasUsed = int32(len(ss.replicas))
		r.emitSession(&ss.row)
		r.leave(place)
	}
}

// turnFailed ends a turn for good, and with it every turn of its session that has not arrived.
func (r *run) turnFailed(turn turnRef, now int64) {
	ss := &r.sessions[turn.session]
	ss.failed = true
	r.turnOver(turn, now)
	for k := range ss.turns {
		t := &ss.turns[k]
		if t.ended || t.attempts > 0 {
			continue
		}
		next := turnRef{turn.session, int32(k)}
		rec := r.traceTurn(next)
		row := results.Turn{
			Session: ss.row.Session, Thread: rec.Thread, Number: rec.Number, Final: true, Class: ss.class, Group: ss.row.Group, Replica: -1, PrefillReplica: -1,
			ArrivalPS: results.Missing, AdmittedPS: results.Missing, SentPS: results.Missing, ScheduledPS: results.Missing,
			FirstTokenPS: results.Missing, DonePS: results.Missing, Outcome: results.Unstarted, PromptTokens: rec.Prompt.Tokens,
			ITLMaxPS: results.Missing, ToolGapPS: results.Missing, IdleTTFTPS: results.Missing, IdleTPOTPS: results.Missing,
		}
		r.emitTurn(&row)
		r.turnOver(next, now)
	}
}

// endAttempt writes an attempt's row and frees its slot.
func (r *run) endAttempt(a int32, now int64) {
	x := &r.attempts[a]
	t := r.turn(x.turn)
	ss := &r.sessions[x.turn.session]
	if x.gone {
		if x.row.Outcome != results.Superseded && x.row.Outcome != results.FailedRun {
			x.row.Outcome = results.TimedOut
		}
		x.row.Final = t.attempts == x.row.Attempt && t.attempts > r.cfg.Clients.Retries
	}
	if x.row.OutputTokens < 2 {
		x.row.ITLMaxPS = results.Missing
	}
	most := results.CauseNone
	for c := results.CauseNone + 1; c < results.NumCauses; c++ {
		x.row.WastedTokens += x.waste[c]
		r.totals.WasteTokens[c] += int64(x.waste[c])
		if x.waste[c] > 0 && (most == results.CauseNone || x.waste[c] > x.waste[most]) {
			most = c
		}
	}
	x.row.WasteCause = most
	waitEnd := x.row.AdmittedPS
	if waitEnd == results.Missing {
		waitEnd = now
	}
	ss.row.GateWaitPS += waitEnd - x.row.ArrivalPS
	r.emitTurn(&x.row)
	t.live--
	ss.live--
	place := x.turn.session
	if x.stage == atGate {
		r.atGate--
	}
	x.stage = vacant
	x.generation++
	r.spareAttempts = append(r.spareAttempts, a)
	if ss.done && ss.live == 0 {
		r.settleSession(place, now)
	}
}
