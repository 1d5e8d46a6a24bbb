package admission

import "github.com/sluice-sim/sluice/policies"

// Reads one usage probe for every turn and, under pressure, one prefix probe for a turn whose thread owns no window.
// Keeps the ownership windows of threads. Waiters are woken in order of arrival.
// Source: LegoX/Lego-RL, src/verl_patch/agent_loop/vllm_chat_completion_proxy.py; spec: policies 2, decided "Session gate".
//
// A turn goes at once while usage is below the high watermark. From there on it goes if its thread owns a window or if
// enough of its prompt is resident, and it gets (or keeps) a window for the time that it runs and for the idle grace
// after. Otherwise it waits and is judged again, from the usage probe on, when it is woken and at the latest after the
// poll. Both comparisons are inclusive. What a probe cannot say lets the turn go, without a window. A turn whose thread
// has an older attempt that runs waits for its end.
//
// The presets differ in who is woken by what:
//
//	                        as-shipped                        documented
//	a turn ends             all waiters                       the first waiter
//	a thread finishes       all waiters                       the first waiter
//	a window expires        nobody, until the next turn that  the first waiter, by a timer
//	                        is judged or ends: then all
//	a waiter is admitted    nobody                            the next waiter
//	a turn finds no         nobody                            the first waiter
//	pressure
//	a newer attempt of a    it notices when it is next        aborted at once
//	waiting turn arrives    judged; the newer waits for that
//	poll below 5 s          raised to 5 s                     taken as it is
//	usage unknown           admitted as open                  admitted as probe_unavailable
//
// In the shipped code the waiters of one gate are those of one worker process, which serves one session at a time. Scope
// session gives that: a session's events wake its own turns only.
//
// Knob repair changes exactly one rule of either preset; session_repair.go has them.

// Session declares the session-level gate.
func Session() policies.Declaration {
	return policies.Declaration{
		Name: "session",
		Doc: "While KV usage is at or above the watermark, admits only turns whose thread owns an ownership window or whose prompt is mostly resident; the others wait. " +
			"Preset documented queues them in order of arrival and lets one at a time try; preset as-shipped wakes all of them.",
		Source:  "LegoX/Lego-RL, src/verl_patch/agent_loop/vllm_chat_completion_proxy.py; spec: policies 2",
		Needs:   policies.NeedsProbes,
		Missing: "A probe without a value admits the turn, without a window.",
		Omits: "the source's gates are one for each worker process: set cluster.routers for so many gates side by side. Its engine half is not published; the probes here answer the share of blocks that running requests refer to, " +
			"and how much of the prompt is resident. Who tells the main agent from subagents is the driver: a thread is what the source keys by system prompts.",
		Knobs: []policies.Knob{
			{Name: "preset", Kind: policies.EnumKnob, Default: policies.Value{Text: documented}, Enum: []string{documented, asShipped},
				Doc: "which of the two behaviours"},
			{Name: "enabled", Kind: policies.BoolKnob, Default: policies.Value{Bool: true}, Doc: "false admits every turn and keeps no state"},
			{Name: "high_watermark", Kind: policies.FloatKnob, Default: policies.Value{Number: .85}, Min: 0, Max: 10, Unit: "fraction",
				Doc: "usage at which pressure starts, inclusive; above 1 there never is any"},
			{Name: "hit_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: .80}, Min: 0, Max: 10, Unit: "fraction",
				Doc: "resident share of the prompt that admits under pressure, inclusive"},
			{Name: "idle_grace_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 60}, Min: 0, Max: 1e6, Unit: "s",
				Doc: "how long a window outlives its turn"},
			{Name: "wait_poll_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 5}, Min: 0.001, Max: 1e6, Unit: "s",
				Doc: "longest wait between two judgements of a turn; as-shipped raises it to 5"},
			{Name: "usage", Kind: policies.EnumKnob, Default: policies.Value{Text: "owner"}, Enum: []string{"owner", "mean", "max"},
				Doc: "whose usage counts: the replica that owns the thread, or the mean or maximum over all replicas"},
			{Name: "scope", Kind: policies.EnumKnob, Default: policies.Value{Text: "cluster"}, Enum: []string{"cluster", "session"},
				Doc: "whose waiters an event can wake: all, or those of the same session"},
			{Name: "repair", Kind: policies.EnumKnob, Default: policies.Value{Text: "none"}, Enum: []string{"none", "strict", "demand", "expected", "aging"},
				Doc: "the one rule that is changed: strict lets one cold turn go for each freed quantum, demand counts the KV of idle threads as used, expected measures the hit against the thread's history, aging bounds the wait"},
			{Name: "max_wait_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 120}, Min: 0.001, Max: 1e6, Unit: "s",
				Doc: "repair aging: a turn that has waited so long goes, without a window"},
		},
		NewGate: newSession,
	}
}

const (
	documented = "documented"
	asShipped  = "as-shipped"
)

type session struct {
	shipped   bool
	enabled   bool
	watermark float64
	threshold float64
	grace     policies.Time
	poll      policies.Time
	usage     string
	bySession bool

	windows  []window // by thread
	waited   []bool   // by thread: its newest turn has been held for room
	expiries fifo[expiry]

	strict   bool
	expected bool
	line     line    // repair strict
	idle     *demand // repair demand, else nil
	maxWait  policies.Time
	since    []waitStart // repair aging, by thread
}

// window is a thread's ownership of its prefix. While the attempt that retains it runs it does not expire.
type window struct {
	until    policies.Time // policies.Never while retained, 0 if there is none
	retainer policies.AttemptID
	session  policies.SessionID
}

// expiry is a window's end, as it was when its turn ended. The grace is constant, so these are in order of time.
type expiry struct {
	at     policies.Time
	thread policies.ThreadID
}

func newSession(_ policies.Env, p policies.Params) policies.Gate {
	g := &session{
		shipped: p["preset"].Text == asShipped, enabled: p["enabled"].Bool,
		watermark: p["high_watermark"].Number, threshold: p["hit_threshold"].Number,
		grace: seconds(p["idle_grace_s"].Number), poll: seconds(p["wait_poll_s"].Number),
		usage: p["usage"].Text, bySession: p["scope"].Text == "session",
	}
	if g.shipped {
		g.poll = max(g.poll, 5*policies.Second)
	}
	g.repair(p)
	return g
}

func seconds(s float64) policies.Time { return policies.Time(float64(s*float64(policies.Second)) + .5) }

// NoticesLate implements policies.LateNotice.
func (g *session) NoticesLate() bool { return g.enabled && g.shipped }

// roomKey is where the turns of s wait for room.
func (g *session) roomKey(s policies.SessionID) policies.WakeKey {
	if g.bySession {
		return 2 + 2*policies.WakeKey(s)
	}
	return 0
}

// turnKey is where newer attempts of t wait for an older one that runs.
func turnKey(t policies.ThreadID) policies.WakeKey { return 1 + 2*policies.WakeKey(t) }

func (g *session) notify(v *policies.View, s policies.SessionID) {
	n := 1
	if g.shipped && !g.strict {
		n = -1
	}
	v.Wake(g.roomKey(s), n)
}

func (g *session) of(t policies.ThreadID) *window {
	for int(t) >= len(g.windows) {
		g.windows = append(g.windows, window{})
		g.waited = append(g.waited, false)
		g.line.places = append(g.line.places, notInLine)
		g.since = append(g.since, waitStart{})
	}
	return &g.windows[t]
}

func (g *session) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	if !g.enabled {
		return
	}
	switch f.Kind {
	case policies.Finished, policies.Failed:
		g.release(now, v, f)
		v.Wake(turnKey(f.Thread), -1)
	case policies.ThreadFinished:
		*g.of(f.Thread) = window{}
		g.idle.remove(f.Thread)
		g.freed(v, f.Session)
	case policies.ClientGone, policies.AttemptSuperseded:
		g.of(f.Thread)
		g.waited[f.Thread] = false
		g.line.leave(f.Thread, f.Attempt)
	case policies.ReplicaDown, policies.ReplicaRestarted:
		g.idle.lose(f.Replica)
	case policies.Woke:
		g.purge(now, v)
	}
}

// release ends the retention of a window, if the attempt had one, and wakes in any case.
func (g *session) release(now policies.Time, v *policies.View, f *policies.Fact) {
	if w := g.of(f.Thread); w.until == policies.Never && w.retainer == f.Attempt {
		if w.until = now + g.grace; g.grace == 0 {
			*w = window{}
		} else {
			g.expiries.push(expiry{w.until, f.Thread})
		}
	}
	g.idle.add(now, v, f.Thread, f.Session)
	g.purge(now, v)
	g.freed(v, f.Session)
}

// freed wakes after a turn, a thread or a window has ended.
func (g *session) freed(v *policies.View, s policies.SessionID) {
	g.line.next = 0
	g.notify(v, s)
}

// purge removes the windows that have ended, and the tokens of threads that have been idle for the grace.
func (g *session) purge(now policies.Time, v *policies.View) {
	for g.expiries.len() > 0 && g.expiries.front().at <= now {
		e := g.expiries.pop()
		if w := g.of(e.thread); w.until == e.at {
			s := w.session
			*w = window{}
			g.freed(v, s)
		}
	}
	for {
		s, ok := g.idle.expire(now)
		if !ok {
			return
		}
		g.freed(v, s)
	}
}

func (g *session) Admit(now policies.Time, v *policies.View, t *policies.Turn, p *policies.Probes) policies.Verdict {
	if !g.enabled {
		return policies.Verdict{Kind: policies.VerdictAdmit, Reason: policies.Ungated}
	}
	if v.Running(t.Thread) > 0 {
		return policies.Verdict{Kind: policies.VerdictHold, Reason: policies.BehindWaiter, Until: policies.Never, WakeOn: turnKey(t.Thread)}
	}
	g.of(t.Thread)
	if g.aged(now, t) {
		return g.admit(now, v, t, policies.Forced, false)
	}
	if !p.HasUsage {
		return policies.Verdict{Kind: policies.VerdictProbeUsage, Replica: g.probed(now, v, t)}
	}
	g.purge(now, v)
	switch w := g.of(t.Thread); {
	case !p.UsageOK && !g.shipped:
		return g.admit(now, v, t, policies.ProbeUnavailable, false)
	case !p.UsageOK || g.pressed(now, v, t, p) < g.watermark && (!g.strict || w.until != 0 || g.line.may(now, t)):
		return g.admit(now, v, t, policies.Open, false)
	case w.until != 0 && !p.HasPrefix:
		return g.admit(now, v, t, policies.ReservedSession, true)
	case !p.HasPrefix:
		return policies.Verdict{Kind: policies.VerdictProbePrefix, Replica: owningReplica(now, v, t)}
	case !p.PrefixOK:
		return g.admit(now, v, t, policies.ProbeUnavailable, false)
	case g.hitRatio(v, p, t) >= g.threshold:
		return g.admit(now, v, t, policies.ResidentPrefix, true)
	}
	until := min(now+g.poll, g.forcedAt(now, t))
	g.waited[t.Thread] = true
	g.line.enter(t)
	return policies.Verdict{Kind: policies.VerdictHold, Reason: policies.UnderPressure, Until: until, WakeOn: g.roomKey(t.Session)}
}

// admit lets t go, with a window if retain is set. The documented gate then wakes the next waiter, if t was a waiter or
// found no pressure.
func (g *session) admit(now policies.Time, v *policies.View, t *policies.Turn, why policies.Reason, retain bool) policies.Verdict {
	if retain {
		g.windows[t.Thread] = window{until: policies.Never, retainer: t.Attempt, session: t.Session}
	}
	if !g.shipped && (g.waited[t.Thread] || !retain) && !(g.strict && why == policies.Open) {
		g.notify(v, t.Session)
	}
	g.waited[t.Thread] = false
	if g.line.leave(t.Thread, t.Attempt) && why == policies.Open {
		g.line.next = now + g.poll
	}
	g.idle.remove(t.Thread)
	return policies.Verdict{Kind: policies.VerdictAdmit, Reason: why}
}

// probed is whom the usage probe asks.
func (g *session) probed(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	if g.usage == "owner" {
		return owningReplica(now, v, t)
	}
	return policies.AllReplicas
}

// pressed is what is held against the watermark.
func (g *session) pressed(now policies.Time, v *policies.View, t *policies.Turn, p *policies.Probes) float64 {
	u := p.UsageMean
	if g.usage == "max" {
		u = p.UsageMax
	}
	return u + g.idle.share(now, v, t, g.usage)
}

// owningReplica is where the thread's last turn went, else where the router would send this one.
func owningReplica(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	if r := v.LastReplica(t.Thread); v.IsUp(r) {
		return r
	}
	return v.Peek(now, t)
}

// hitRatio is the resident share of the prompt.
func (g *session) hitRatio(v *policies.View, p *policies.Probes, t *policies.Turn) float64 {
	whole := t.Prompt.Tokens
	if p.PromptTokens > 0 {
		whole = p.PromptTokens
	}
	if h := v.History(t.Thread); g.expected && h > 0 {
		whole = min(whole, h)
	}
	return float64(p.HitTokens) / float64(whole)
}

// NextWake is when the next window or idle thread expires; only the documented gate has timers.
func (g *session) NextWake() policies.Time {
	if g.shipped {
		return policies.Never
	}
	for g.expiries.len() > 0 {
		e := g.expiries.front()
		if g.windows[e.thread].until == e.at {
			return min(e.at, g.idle.next())
		}
		g.expiries.pop()
	}
	return g.idle.next()
}
