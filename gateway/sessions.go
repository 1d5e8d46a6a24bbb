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
	threads map[string][]*thread // by key, in order of creation: turns of one key that overlap go on threads of their own
	live    int                  // attempts that wait or run
	ended   bool                 // to be forgotten when nothing lives
	idle    *list.Element        // among the sessions without a live attempt, nil while there is one
	since   policies.Time        // idle since
	turns   int64
	retries budget
}

// thread is one conversation of a session. At most one attempt of it lives, but for retries.
type thread struct {
	number  policies.ThreadID
	session *session
	turns   int32 // that were dispatched
	live    int
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
	rate := float64(most) / float64(window)
	b.spent = max(0, b.spent-rate*float64(now-b.at))
	b.at = now
	if b.spent+1 > float64(most) {
		if most == 0 {
			return false, window
		}
		return false, policies.Time(math.Ceil((b.spent + 1 - float64(most)) / rate))
	}
	b.spent++
	return true, 0
}

// registry is the sessions that live.
type registry struct {
	byKey    map[string]*session
	idle     *list.List // of *session, idle for longest first
	sessions numbers
	threads  numbers
}

func newRegistry() registry {
	return registry{byKey: map[string]*session{}, idle: list.New()}
}

// open is the session called key, a new one if there is none.
func (r *registry) open(key string) *session {
	if s := r.byKey[key]; s != nil && key != "" {
		return s
	}
	s := &session{key: key, number: policies.SessionID(r.sessions.take()), threads: map[string][]*thread{}, ended: key == ""}
	if key != "" {
		r.byKey[key] = s
	}
	return s
}

// threadFor is the thread of s that a turn of the given key goes on: a retry on the one that its turn had, another on the
// first that has no live attempt.
func (r *registry) threadFor(s *session, key string, former *thread) *thread {
	if former != nil && former.session == s {
		return former
	}
	for _, t := range s.threads[key] {
		if t.live == 0 {
			return t
		}
	}
	t := &thread{number: policies.ThreadID(r.threads.take()), session: s}
	s.threads[key] = append(s.threads[key], t)
	return t
}

// begin counts an attempt of t.
func (r *registry) begin(t *thread) {
	t.live++
	s := t.session
	s.live++
	if s.idle != nil {
		r.idle.Remove(s.idle)
		s.idle = nil
	}
}

// end uncounts an attempt of t and says whether its session is to be forgotten.
func (r *registry) end(t *thread, now policies.Time) (over bool) {
	t.live--
	s := t.session
	if s.live--; s.live > 0 {
		return false
	}
	s.since = now
	s.idle = r.idle.PushBack(s)
	return s.ended
}

// forget drops a session without a live attempt and appends the facts that say so.
func (r *registry) forget(s *session, facts []policies.Fact) []policies.Fact {
	var all []*thread
	for _, list := range s.threads {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b *thread) int { return cmp.Compare(a.number, b.number) })
	for _, t := range all {
		facts = append(facts, policies.Fact{Kind: policies.ThreadFinished, Thread: t.number, Session: s.number, Replica: policies.NoReplica})
		r.threads.give(int32(t.number))
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

// oldest is the session that has been idle for longest, nil if every session has a live attempt.
func (r *registry) oldest() *session {
	if e := r.idle.Front(); e != nil {
		return e.Value.(*session)
	}
	return nil
}
