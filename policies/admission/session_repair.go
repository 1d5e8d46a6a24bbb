package admission

import "github.com/sluice-sim/sluice/policies"

// Keeps, by repair: strict, the line of turns held for room; demand, the KV tokens of idle threads; aging, when each
// thread's turn was first held. Source: spec: policies 2.15; what it leaves open is said here.
//
//	strict    The waiters of all sessions form one line, in order of their first hold. A turn without a window that finds no
//	          pressure goes only if nobody else is in the line before it and a quantum is free; otherwise it is judged as
//	          under pressure. One quantum is freed by the end of a turn, of a thread or of a window, and by a poll's time
//	          without any of these; quanta do not add up. Who goes for want of pressure wakes nobody.
//	demand    Pressure is (referenced + reserved) / capacity. Reserved are the prompt and output tokens of the last finished
//	          turn of every thread that is idle: it finished a turn at most the idle grace ago, was not admitted since and
//	          has not ended. Whether it owns a window does not matter: without pressure nobody owns one, and the pressure
//	          would never begin. The turn's own thread does not count. Usage max adds the largest reserved share of a
//	          replica to the largest usage, an upper bound. A replica of unknown capacity adds nothing;
//	          one that went down or restarted holds nothing.
//	expected  The hit is measured against the tokens that the thread's last finished turn left behind, if they are fewer
//	          than the prompt's, so that a large tool result does not make a resident session look cold. A thread without
//	          a finished turn is judged as without the repair.
//	aging     A turn that was first held max_wait_s ago is admitted without a further probe and without a window.

func (g *session) repair(p policies.Params) {
	g.maxWait = policies.Never
	switch p["repair"].Text {
	case "strict":
		g.strict, g.bySession = true, false
		g.line.on = true
	case "demand":
		g.idle = &demand{grace: g.grace}
	case "expected":
		g.expected = true
	case "aging":
		g.maxWait = seconds(p["max_wait_s"].Number)
	}
}

// waitStart is when an attempt was first held.
type waitStart struct {
	attempt policies.AttemptID
	at      policies.Time
}

// aged says whether t has waited as long as it may.
func (g *session) aged(now policies.Time, t *policies.Turn) bool {
	s := g.since[t.Thread]
	return g.maxWait != policies.Never && g.waited[t.Thread] && s.attempt == t.Attempt && now-s.at >= g.maxWait
}

// forcedAt is when t, about to be held, will have waited as long as it may.
func (g *session) forcedAt(now policies.Time, t *policies.Turn) policies.Time {
	if g.maxWait == policies.Never {
		return policies.Never
	}
	s := &g.since[t.Thread]
	if !g.waited[t.Thread] || s.attempt != t.Attempt {
		*s = waitStart{t.Attempt, now}
	}
	return s.at + g.maxWait
}

const notInLine policies.AttemptID = -1

// line is the waiters in order of their first hold.
type line struct {
	on     bool
	queue  fifo[place]
	places []policies.AttemptID // by thread: which of its attempts is in the queue
	next   policies.Time        // when the next quantum is free
}

type place struct {
	thread  policies.ThreadID
	attempt policies.AttemptID
}

func (l *line) enter(t *policies.Turn) {
	if l.on && l.places[t.Thread] != t.Attempt {
		l.places[t.Thread] = t.Attempt
		l.queue.push(place{t.Thread, t.Attempt})
	}
}

// leave takes an attempt out; false if it was not in the line.
func (l *line) leave(t policies.ThreadID, a policies.AttemptID) bool {
	if !l.on || l.places[t] != a {
		return false
	}
	l.places[t] = notInLine
	return true
}

// may says whether t is the first in the line, or nobody is, and a quantum is free.
func (l *line) may(now policies.Time, t *policies.Turn) bool {
	for l.queue.len() > 0 {
		p := l.queue.front()
		if l.places[p.thread] == p.attempt {
			return p.attempt == t.Attempt && l.next <= now
		}
		l.queue.pop()
	}
	return l.next <= now
}

// demand is the KV tokens of idle threads. A nil demand counts nothing.
type demand struct {
	grace    policies.Time
	threads  []idleThread
	reserved []int64 // tokens, by replica
	expiries fifo[expiry]
}

type idleThread struct {
	until   policies.Time // 0 if it is not idle
	replica policies.ReplicaID
	session policies.SessionID
	tokens  int32
}

// add counts thread t, a turn of which has just ended.
func (d *demand) add(now policies.Time, v *policies.View, t policies.ThreadID, s policies.SessionID) {
	if d == nil {
		return
	}
	d.remove(t)
	for int(t) >= len(d.threads) {
		d.threads = append(d.threads, idleThread{})
	}
	for v.Replicas() > len(d.reserved) {
		d.reserved = append(d.reserved, 0)
	}
	r, tokens := v.LastReplica(t), v.History(t)
	if tokens == 0 || d.grace == 0 || v.Running(t) > 0 || v.ThreadEnded(t) {
		return
	}
	d.threads[t] = idleThread{now + d.grace, r, s, tokens}
	d.reserved[r] += int64(tokens)
	d.expiries.push(expiry{now + d.grace, t})
}

func (d *demand) remove(t policies.ThreadID) {
	if d == nil || int(t) >= len(d.threads) || d.threads[t].until == 0 {
		return
	}
	d.reserved[d.threads[t].replica] -= int64(d.threads[t].tokens)
	d.threads[t] = idleThread{}
}

// lose forgets what was on r, which holds nothing any more.
func (d *demand) lose(r policies.ReplicaID) {
	if d == nil {
		return
	}
	for t := range d.threads {
		if d.threads[t].replica == r {
			d.remove(policies.ThreadID(t))
		}
	}
}

// expire removes one thread whose grace has ended; ok is false if there is none.
func (d *demand) expire(now policies.Time) (s policies.SessionID, ok bool) {
	if d == nil {
		return 0, false
	}
	for d.expiries.len() > 0 && d.expiries.front().at <= now {
		e := d.expiries.pop()
		if d.threads[e.thread].until == e.at {
			s = d.threads[e.thread].session
			d.remove(e.thread)
			return s, true
		}
	}
	return 0, false
}

// next is when the next grace ends.
func (d *demand) next() policies.Time {
	if d == nil {
		return policies.Never
	}
	for d.expiries.len() > 0 {
		e := d.expiries.front()
		if d.threads[e.thread].until == e.at {
			return e.at
		}
		d.expiries.pop()
	}
	return policies.Never
}

// share is what the idle threads other than t's add to a usage.
func (d *demand) share(now policies.Time, v *policies.View, t *policies.Turn, usage string) float64 {
	if d == nil {
		return 0
	}
	if usage == "owner" {
		return d.of(v, t, owningReplica(now, v, t))
	}
	sum, most := 0.0, 0.0
	for _, r := range v.Up() {
		x := d.of(v, t, r)
		sum, most = sum+x, max(most, x)
	}
	if usage == "max" || len(v.Up()) == 0 {
		return most
	}
	return sum / float64(len(v.Up()))
}

// of is the reserved share of replica r's capacity.
func (d *demand) of(v *policies.View, t *policies.Turn, r policies.ReplicaID) float64 {
	capacity := v.Capability(r).KVTokens
	if capacity <= 0 || int(r) >= len(d.reserved) {
		return 0
	}
	tokens := d.reserved[r]
	if int(t.Thread) < len(d.threads) && d.threads[t.Thread].until != 0 && d.threads[t.Thread].replica == r {
		tokens -= int64(d.threads[t.Thread].tokens)
	}
	return float64(tokens) / float64(capacity)
}
