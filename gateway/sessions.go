package gateway

import (
	"cmp"
	"container/list"
	"math"
	"slices"

	"github.com/sluice-sim/sluice/policies"
)

// session is a session that has not ended. The core knows it and its threads by numbers, which are given out again, the
// longest unused first, when the session has ended: so what is kept for a number follows the sessions that live.
type session struct {
	key     string // "" for one that ends with its only turn
	number  policies.SessionID
	threads map[string]*conversation // by key, "" for the root
	live    int                      // attempts that wait or run
	ended   bool                     // to be forgotten when nothing lives
	idle    *list.Element            // among the sessions without a live attempt, nil while there is one
	since   policies.Time            // idle since
	turns   int64
	retries budget
}

// conversation is the threads of one key, in order of creation: turns of one conversation that overlap go on threads of
// their own.
type conversation struct {
	key     string
	session *session
	threads []*thread
	ended   bool // to be forgotten when nothing lives
}

// maxConversations bounds the conversations of one session that have not ended.
const maxConversations = 1024

// thread is what the core takes for one conversation. At most one attempt of it lives, but for retries.
type thread struct {
	number policies.ThreadID
	of     *conversation
	turns  int32 // that were dispatched
	live   int
}

// numbers gives out dense numbers.
type numbers struct {
	next int32
	free []int32
	head int
}

// take is the number that has been free for longest, or else a new one.
func (n *numbers) take() int32 {
	if n.head == len(n.free) {
		n.next++
		return n.next - 1
	}
	x := n.free[n.head]
	if n.head++; n.head > len(n.free)/2 {
		n.free = n.free[:copy(n.free, n.free[n.head:])]
		n.head = 0
	}
	return x
}

func (n *numbers) give(x int32) { n.free = append(n.free, x) }

// budget is a count that comes back over time.
type budget struct {
	spent float64
	at    policies.Time
}

// spend takes one of most, which come back over window; false if none is left, with the time until there is.
func (b *budget) spend(now policies.Time, most int, window policies.Time) (ok bool, wait policies.Time) {
	if most <= 0 {
		return false, window
	}
	rate := float64(most) / float64(window)
	b.spent = max(0, b.spent-rate*float64(now-b.at))
	b.at = now
	if over := b.spent + 1 - float64(most); over > 1e-9 {
		return false, policies.Time(math.Ceil(over / rate))
	}
	b.spent++
	return true, 0
}

// registry is the sessions that live.
type registry struct {
	byKey    map[string]*session
	children map[string]*session // by the key of a conversation that is not a root
	idle     *list.List          // of *session, idle for longest first
	sessions numbers
	threads  numbers
}

func newRegistry() registry {
	return registry{byKey: map[string]*session{}, children: map[string]*session{}, idle: list.New()}
}

// find is the session that key names, as its own key or as that of a conversation in it; nil if there is none.
func (r *registry) find(key string) *session {
	if key == "" {
		return nil
	}
	if s := r.byKey[key]; s != nil {
		return s
	}
	return r.children[key]
}

// open makes a session called key.
func (r *registry) open(key string) *session {
	s := &session{key: key, number: policies.SessionID(r.sessions.take()), threads: map[string]*conversation{}}
	if key != "" {
		r.byKey[key] = s
	}
	return s
}

// conversation is that of s which key names.
func (r *registry) conversation(s *session, key string) *conversation {
	if key == s.key {
		key = ""
	}
	c := s.threads[key]
	if c == nil {
		c = &conversation{key: key, session: s}
		s.threads[key] = c
		if key != "" {
			r.children[key] = s
		}
	}
	return c
}

// thread is that of c on which a turn goes: a retry on the one that its turn had, another on the first that has no live
// attempt.
func (r *registry) thread(c *conversation, former *thread) *thread {
	if former != nil && former.of == c {
		return former
	}
	for _, t := range c.threads {
		if t.live == 0 {
			return t
		}
	}
	t := &thread{number: policies.ThreadID(r.threads.take()), of: c}
	c.threads = append(c.threads, t)
	return t
}

// begin counts an attempt of t.
func (r *registry) begin(t *thread) {
	t.live++
	s := t.of.session
	s.live++
	if s.idle != nil {
		r.idle.Remove(s.idle)
		s.idle = nil
	}
}

// end uncounts an attempt of t.
func (r *registry) end(t *thread, now policies.Time) {
	t.live--
	s := t.of.session
	if s.live--; s.live == 0 {
		s.since = now
		s.idle = r.idle.PushBack(s)
	}
}

// forgetConversation drops a conversation without a live attempt and appends the facts that say so.
func (r *registry) forgetConversation(c *conversation, facts []policies.Fact) []policies.Fact {
	for _, t := range c.threads {
		facts = append(facts, policies.Fact{Kind: policies.ThreadFinished, Thread: t.number, Session: c.session.number, Replica: policies.NoReplica})
		r.threads.give(int32(t.number))
	}
	delete(c.session.threads, c.key)
	if c.key != "" && r.children[c.key] == c.session {
		delete(r.children, c.key)
	}
	return facts
}

// forget drops a session without a live attempt and appends the facts that say so.
func (r *registry) forget(s *session, facts []policies.Fact) []policies.Fact {
	all := make([]*conversation, 0, len(s.threads))
	for _, c := range s.threads {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *conversation) int { return cmp.Compare(a.key, b.key) })
	for _, c := range all {
		facts = r.forgetConversation(c, facts)
	}
	r.sessions.give(int32(s.number))
	if s.idle != nil {
		r.idle.Remove(s.idle)
		s.idle = nil
	}
	if s.key != "" {
		delete(r.byKey, s.key)
	}
	return append(facts, policies.Fact{Kind: policies.SessionFinished, Session: s.number, Replica: policies.NoReplica})
}

// alive says whether a turn of c waits or runs.
func (c *conversation) alive() bool {
	for _, t := range c.threads {
		if t.live > 0 {
			return true
		}
	}
	return false
}

// oldest is the session that has been idle for longest, nil if every session has a live attempt.
func (r *registry) oldest() *session {
	if e := r.idle.Front(); e != nil {
		return e.Value.(*session)
	}
	return nil
}
