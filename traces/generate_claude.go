package traces

import (
	"fmt"
	"math"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
)

// The laws of Claude Code sessions (spec: papers 8.2 and 9.1), narrowed to the spread within a session; the session
// effects of the knobs restore the pooled spread. What a turn adds is the preset's own fit: the survey's laws for it
// are of the growth of the input, which holds the previous output too. LN(270, 1.75) behind a tool step and
// LN(150, 1.9) behind a user step, pooled, give with these outputs the measured percentiles of the growth to 6 %.
var (
	claudeOutput  = mixture{{.46, lognormal{155, .38}}, {.54, lognormal{408, .97}}}.within(.84)
	claudeToolGap = mixture{{.69, lognormal{7.2, .53}}, {.31, lognormal{45, 1.54}}}.within(1.23)
	claudeUserGap = lognormal{127, 1.70} // 1.78 pooled
	// claudeSteps is the number of turns that one user message causes.
	claudeSteps = quantiles{{0, 1}, {.4, 1}, {.5, 2}, {.75, 4}, {.9, 17}, {.99, 80}, {1, 120}}
)

const (
	largeWindow    = 1_000_000 // context limit of the sessions of large_window_share, tokens
	leastPrompt    = 500       // tokens that a first prompt adds to its system prompt at least
	subagentTypes  = 8         // distinct system prompts of subagents
	parallelAgents = 4         // subagents that one turn starts at most
	loopSteps      = 36        // turns of a failure loop (spec: papers 8.4)
	loopAppend     = 7.5       // how much larger the tool results of a failure loop are
)

// claudeCode is one generation of the claude-code preset.
type claudeCode struct {
	*generation
	systems, agents pool
	groups          ranks
	groupStreams    map[[2]int]prefix.Prefix // content of (stream of the system prompt, group), made on first use
}

// prepareClaudeCode makes the long sessions of one person's coding agent: fresh or resumed contexts, tool steps in
// user turns, compactions, edited histories and subagents.
func prepareClaudeCode(g *generation) (plan, error) {
	n := int(g.int("sessions"))
	expected := min(g.law("turns_median", "turns_sigma").mean(), g.float("turn_cap"))
	agentTurns := float64(g.float("subagents") * g.float("subagent_requests"))
	if err := g.checkTurns(float64(n)*(expected+agentTurns), "sessions, turns_median or subagents"); err != nil {
		return plan{}, err
	}
	limit := g.int("context_limit")
	if group := g.int("group_tokens"); group > limit/4 {
		return plan{}, fmt.Errorf("group_tokens = %d is over a quarter of context_limit = %d: lower it or raise the limit", group, limit)
	}
	systems, err := g.systemPool()
	if err != nil {
		return plan{}, err
	}
	// A subagent's first prompt is mostly its type's system prompt; the rest is its task.
	start := lognormal{.87 * g.float("subagent_start_tokens"), .1}
	cc := claudeCode{
		generation:   g,
		systems:      systems,
		agents:       newPool(g.streams, subagentTypes, 1, start, limit/4),
		groups:       zipf(g.int("groups"), g.float("group_zipf")),
		groupStreams: map[[2]int]prefix.Prefix{},
	}
	if g.int("group_tokens") > 0 {
		for i := range g.int("groups") {
			g.groups = append(g.groups, fmt.Sprintf("repository%03d", i))
		}
	}
	return plan{n, cc.session}, nil
}

// claudeSession is one session at work.
type claudeSession struct {
	sessionBuilder
	cc    *claudeCode
	d     dice
	rules contextRules
	// Effects of the session on all its turns.
	append, output, gap float64
}

func (cc *claudeCode) session(i int) Session {
	d := cc.dice(i)
	s := claudeSession{
		sessionBuilder: sessionBuilder{streams: cc.streams},
		cc:             cc,
		d:              d,
		append:         exact.LogNormal(1, cc.float("append_session_sigma"), d.u(drawSessionAppend, 0, 0)),
		output:         exact.LogNormal(1, cc.float("output_session_sigma"), d.u(drawSessionOutput, 0, 0)),
		gap:            exact.LogNormal(cc.float("gap_scale"), cc.float("gap_session_sigma"), d.u(drawSessionGap, 0, 0)),
	}
	limit := cc.int("context_limit")
	if d.u(drawWindow, 0, 0) < cc.float("large_window_share") {
		limit = max(limit, largeWindow)
	}
	compactAt := exact.LogNormal(float64(limit)*cc.float("compact_at"), cc.float("compact_at_sigma"), d.u(drawWindow, 0, 1))
	s.rules = contextRules{
		limit:      limit,
		compactAt:  clampTokens(compactAt, int32(int64(limit)*55/100), int32(int64(limit)*95/100)),
		compaction: cc.law("compact_tokens", "compact_sigma"),
		strip:      cc.float("thinking_strip"),
	}
	var group int32
	s.rules.system, group = cc.system(d)
	s.run()
	return s.finish(fmt.Sprintf("s%06d", i), group)
}

// system picks the session's system prompt and, when there are groups, the group's content behind it.
func (cc *claudeCode) system(d dice) (prefix.Prefix, int32) {
	system := cc.systems.pick(d.u(drawPrefix, 0, 0))
	tokens := cc.int("group_tokens")
	if tokens == 0 {
		return system, -1
	}
	group := cc.groups.at(d.u(drawGroup, 0, 0))
	at := [2]int{int(system.Stream), group}
	content, ok := cc.groupStreams[at]
	if !ok {
		content = prefix.Prefix{Stream: cc.streams.fork(system), Tokens: system.Tokens + tokens}
		cc.groupStreams[at] = content
	}
	return content, int32(group)
}

// run makes all turns of the session.
func (s *claudeSession) run() {
	cc, d, system := s.cc, s.d, s.rules.system
	turns := clampTokens(cc.law("turns_median", "turns_sigma").at(d.u(drawTurns, 0, 0)), 2, cc.int("turn_cap"))
	spawns := s.spawns(turns)
	first := cc.law("fresh_tokens", "fresh_sigma")
	if d.u(drawFirst, 0, 0) < cc.float("resumed_share") {
		first = cc.law("resumed_tokens", "resumed_sigma")
		cc.notes["session resumed with a long first prompt"]++
	}
	prompt := clampTokens(first.at(d.u(drawFirst, 0, 1)), system.Tokens+leastPrompt, s.rules.compactAt)
	c := s.open(system)
	steps, loop := s.userTurn(1)
	var joined []Dep
	gap := int64(0)
	for {
		s.say(&c, prompt, s.drawOutput(&c, prompt), gap, joined...)
		if c.number == turns {
			return
		}
		joined = s.subagents(&c, spawns[c.number])
		key := c.key()
		user := steps == 1
		if steps--; user {
			steps, loop = s.userTurn(key)
		}
		gap = s.drawGap(key, user)
		prompt = s.extend(&c, user, loop && !user)
	}
}

// userTurn draws how many turns a user message causes, and whether they are a failure loop.
func (s *claudeSession) userTurn(key uint64) (steps int, loop bool) {
	if s.d.u(drawUserTurn, key, 1) < s.cc.float("failure_loop_share") {
		s.cc.notes["failure loop"]++
		return loopSteps, true
	}
	return int(claudeSteps.at(s.d.u(drawUserTurn, key, 0))), false
}

// extend draws what the root thread's next turn adds to its prompt and returns the prompt's length.
func (s *claudeSession) extend(c *conversation, user, loop bool) int32 {
	key := c.key()
	law := s.cc.law("tool_append_tokens", "tool_append_sigma")
	if user {
		law = s.cc.law("user_append_tokens", "user_append_sigma")
	}
	added := law.at(s.d.u(drawAppend, key, 0)) * s.append
	if loop {
		added *= loopAppend
	}
	before := c.prompt.Stream
	next := s.cc.grow(&s.sessionBuilder, c, &s.rules, s.d, clampTokens(added, 1, s.rules.limit))
	if c.prompt.Stream == before && s.d.u(drawRewrite, key, 0) < s.cc.float("rewrite_share") {
		s.rewrite(c, key)
	}
	return next
}

// rewrite edits the history without shortening it: content survives up to a point. Few edits touch the end of the
// prompt only, most lose the larger part of it.
func (s *claudeSession) rewrite(c *conversation, key uint64) {
	lost := .05 * s.d.u(drawRewrite, key, 2)
	if s.d.u(drawRewrite, key, 1) >= .175 {
		lost = .60 + float64(.37*s.d.u(drawRewrite, key, 2))
	}
	kept := c.prompt
	kept.Tokens = clampTokens(float64(kept.Tokens)*(1-lost), 0, kept.Tokens)
	s.rewind(c, kept)
	s.cc.notes["history rewritten"]++
}

func (s *claudeSession) drawOutput(c *conversation, prompt int32) int32 {
	key := c.key()
	out := claudeOutput.at(s.d.u(drawOutput, key, 0), s.d.u(drawOutput, key, 1)) * s.output * s.cc.float("output_scale")
	return clampTokens(out, 1, s.rules.limit-prompt)
}

func (s *claudeSession) drawGap(key uint64, user bool) int64 {
	gap := 0.0
	if user {
		gap = claudeUserGap.at(s.d.u(drawGap, key, 0))
	} else {
		gap = s.cc.toolGap(s.d, key, claudeToolGap)
	}
	return nanoseconds(gap*s.gap, s.cc.float("gap_cap_s"))
}

// spawns says how many subagents each root turn starts, by turn number. Their number is geometric; they start in
// batches at random turns before the last.
func (s *claudeSession) spawns(turns int32) map[int32]int {
	mean := s.cc.float("subagents")
	if mean == 0 {
		return nil
	}
	count := exact.Log(s.d.u(drawSubagents, 0, 0)) / exact.Log(mean/(1+mean))
	left := int(math.Floor(min(count, 64)))
	at := map[int32]int{}
	for batch := 1; left > 0; batch++ {
		turn := 1 + int32(s.d.pick(drawSubagents, 0, batch, int(turns-1)))
		n := min(left, parallelAgents-at[turn])
		at[turn] += n
		left -= n
		if n == 0 && batch > 256 {
			break // a short session whose turns are all full
		}
	}
	return at
}

// subagents runs n subagents that the thread's last turn started, and returns what its next turn waits for: the
// completion of each subagent's last turn.
func (s *claudeSession) subagents(parent *conversation, n int) []Dep {
	var joined []Dep
	for range n {
		key := uint64(s.threads) << 32
		rules := s.rules
		rules.system = s.cc.agents.pick(s.d.u(drawPrefix, key, 0))
		c := s.open(rules.system)
		prompt := clampTokens(s.cc.float("subagent_start_tokens"), c.end()+leastPrompt, rules.compactAt)
		requests := clampTokens(lognormal{s.cc.float("subagent_requests"), .4}.at(s.d.u(drawTurns, key, 0)), 1, s.cc.int("turn_cap"))
		s.say(&c, prompt, s.drawOutput(&c, prompt), 0, Dep{Turn: parent.last, On: OnCompletion})
		for c.number < requests {
			at := c.key()
			added := lognormal{s.cc.float("subagent_append_tokens"), 1.3}.at(s.d.u(drawAppend, at, 0))
			prompt = s.cc.grow(&s.sessionBuilder, &c, &rules, s.d, clampTokens(added, 1, rules.limit))
			s.say(&c, prompt, s.drawOutput(&c, prompt), s.drawGap(at, false))
		}
		joined = append(joined, Dep{Turn: c.last, On: OnCompletion})
		s.cc.notes["subagent"]++
	}
	return joined
}
