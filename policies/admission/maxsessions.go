package admission

import "github.com/sluice-sim/sluice/policies"

// Reads nothing from the engine. Keeps which sessions hold a slot. A root session takes one slot with its first turn and
// gives it back when it has finished, so it holds it across tool calls and subagents. Turns of it that wait then go without a
// slot. Order: first come, first served; a session keeps its place when its client retries.
// Source: the static bound that every adaptive gate must beat; spec: policies C12.

// MaxSessions declares the gate that bounds the number of sessions that are under way.
func MaxSessions() policies.Declaration {
	return policies.Declaration{
		Name:    "max-sessions",
		Doc:     "Lets a fixed number of sessions be under way at a time, from a session's first turn to its end; the others wait in order of arrival. Turns that still wait when their session has ended go at once and take no slot.",
		Source:  "baseline; spec: policies C12",
		Missing: "It reads no signal.",
		Knobs: []policies.Knob{{
			Name: "max_sessions", Kind: policies.IntKnob, Default: policies.Value{Number: 64}, Min: 1, Max: 1e6,
			Unit: "sessions", Doc: "sessions under way at a time; subagents count with their session",
		}},
		NewGate: func(_ policies.Env, p policies.Params) policies.Gate {
			return &maxSessions{free: int(p["max_sessions"].Number)}
		},
	}
}

type claim uint8

const (
	noClaim claim = iota
	queued        // waits for a slot
	granted       // has one that no turn has used yet
	owner
)

type maxSessions struct {
	free     int
	sessions []claim
	queue    fifo[policies.SessionID] // the queued ones
}

func (g *maxSessions) of(s policies.SessionID) *claim {
	for int(s) >= len(g.sessions) {
		g.sessions = append(g.sessions, noClaim)
	}
	return &g.sessions[s]
}

func (g *maxSessions) Observe(_ policies.Time, v *policies.View, f *policies.Fact) {
	if f.Kind != policies.SessionFinished {
		return
	}
	s := g.of(f.Session)
	was := *s
	*s = noClaim
	switch was {
	case queued:
		g.queue.remove(func(q policies.SessionID) bool { return q == f.Session })
		v.Wake(policies.WakeKey(f.Session), -1)
	case granted, owner:
		g.pass(v)
	}
}

// pass gives a slot that has become free to the session that has queued longest.
func (g *maxSessions) pass(v *policies.View) {
	if g.free < 0 || g.queue.len() == 0 {
		g.free++
		return
	}
	next := g.queue.pop()
	*g.of(next) = granted
	v.Wake(policies.WakeKey(next), -1)
}

func (g *maxSessions) Admit(_ policies.Time, v *policies.View, t *policies.Turn, _ *policies.Probes) policies.Verdict {
	s := g.of(t.Session)
	switch {
	case v.SessionEnded(t.Session):
		return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.SessionOver}
	case *s == owner:
		return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.SlotOwned}
	case *s == noClaim && g.free > 0:
		g.free--
		fallthrough
	case *s == granted:
		*s = owner
		return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.SlotFree}
	case *s == noClaim:
		*s = queued
		g.queue.push(t.Session)
	}
	return policies.Verdict{Kind: policies.VerdictHold, Reason: policies.NoSlot, Until: policies.Never, WakeOn: policies.WakeKey(t.Session)}
}

// Inherit implements policies.Inheritor: a session that has not ended and has a running turn holds a slot, though there may be fewer now.
func (g *maxSessions) Inherit(_ policies.Time, v *policies.View, l *policies.Lease) {
	if s := g.of(l.Session); *s == noClaim && !v.SessionEnded(l.Session) {
		*s = owner
		g.free--
	}
}

func (g *maxSessions) NextWake() policies.Time { return policies.Never }
