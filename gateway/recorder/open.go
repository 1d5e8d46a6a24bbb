package recorder

import (
	"container/list"
	"slices"
	"time"

	"github.com/sluice-sim/sluice/gateway/content"
)

// open is the sessions that have not ended, least recently heard of first.
type open struct {
	r        *Recorder
	file     *file
	sessions map[string]*session
	order    *list.List
	load     int // sessions, and turns by their weight
}

type session struct {
	key     string
	at      *list.Element
	heard   time.Time
	turns   []turn
	threads map[int64]*thread
	early   map[Outcome]int64 // turns that left no output
}

// thread is what the next turn of a conversation is compared with.
type thread struct {
	number int32
	path   content.Path
	output int32
}

// turn is what is kept of a Turn.
type turn struct {
	thread         int32
	prompt, output int32
	shared         int32        // tokens of the prompt that the turn before it in its thread had, its output included
	path           content.Path // what of the path lies beyond that
	model          string
	start, end     int64
	cut            bool
	basis          content.Basis
}

// weight is what a turn counts for in OpenTurns: long paths take more memory.
func (t *turn) weight() int { return 1 + len(t.path)/8 }

func newOpen(r *Recorder) *open {
	return &open{r: r, file: newFile(&r.cfg), sessions: make(map[string]*session), order: list.New()}
}

func (o *open) take(n *note) {
	t := &n.turn
	s := o.sessions[t.Session]
	if n.ended {
		if s != nil {
			o.end(s)
		}
		return
	}
	early := t.Outcome == Refused || t.Outcome == NoOutput || t.OutputTokens == 0
	if t.Outcome >= numOutcomes || !early && !t.possible() {
		o.r.droppedOther.Add(1)
		return
	}
	if s == nil {
		s = &session{key: t.Session, threads: make(map[int64]*thread), early: make(map[Outcome]int64)}
		s.at = o.order.PushBack(s)
		o.sessions[t.Session] = s
		o.r.openSessions.Add(1)
		o.load++
	}
	s.heard = time.Now()
	o.order.MoveToBack(s.at)
	if early {
		s.early[t.Outcome]++
		o.r.droppedOther.Add(1)
	} else {
		s.add(t)
		o.load += s.turns[len(s.turns)-1].weight()
		o.r.openTurns.Add(1)
		o.r.turns.Add(1)
	}
	if len(s.turns) >= maxSessionTurns {
		o.end(s)
	}
	for o.load > o.r.cfg.OpenTurns {
		o.giveUp(o.order.Front().Value.(*session))
	}
}

// possible says whether the figures of a turn fit together.
func (t *Turn) possible() bool {
	n := len(t.Path)
	return t.PromptTokens >= 1 && n > 0 && t.Path[n-1].Upto == t.PromptTokens && t.EndedNS >= t.ArrivedNS && t.OutputTokens > 0 &&
		int64(t.PromptTokens)+int64(t.OutputTokens) <= 1<<31-1
}

func (s *session) add(t *Turn) {
	th := s.threads[t.Thread]
	u := turn{prompt: t.PromptTokens, output: t.OutputTokens, model: aliasOf(t.Model), start: t.ArrivedNS, end: t.EndedNS,
		cut: t.Outcome == Cut, basis: t.Basis}
	if th == nil {
		th = &thread{number: int32(len(s.threads))}
		s.threads[t.Thread] = th
	} else {
		u.shared = shared(th.path, th.output, t.Path)
	}
	beyond := 0
	for t.Path[beyond].Upto <= u.shared && beyond < len(t.Path)-1 {
		beyond++
	}
	u.path = slices.Clone(t.Path[beyond:])
	u.thread, th.path, th.output = th.number, t.Path, t.OutputTokens
	s.turns = append(s.turns, u)
}

// shared is how many leading tokens of the prompt at path the turn before it had: its prompt, and its output where the
// prompt runs on in the same stream.
func shared(before content.Path, output int32, path content.Path) int32 {
	n := int32(0)
	for i := range min(len(before), len(path)) {
		a, b := before[i], path[i]
		if a.Stream != b.Stream || a.Generation != b.Generation {
			break
		}
		if i == len(before)-1 {
			a.Upto += output
		}
		n = min(a.Upto, b.Upto)
		if a.Upto != b.Upto {
			break
		}
	}
	return n
}

// end puts a session into the file.
func (o *open) end(s *session) {
	o.forget(s)
	o.file.add(s)
}

// giveUp drops a session for want of memory: half a session would be a wrong one.
func (o *open) giveUp(s *session) {
	o.forget(s)
	o.r.droppedOpen.Add(int64(len(s.turns)))
	o.r.turns.Add(-int64(len(s.turns)))
	o.file.dropped["session given up for want of memory"] += int64(len(s.turns))
}

func (o *open) forget(s *session) {
	delete(o.sessions, s.key)
	o.order.Remove(s.at)
	for i := range s.turns {
		o.load -= s.turns[i].weight()
	}
	o.load--
	o.r.openTurns.Add(-int64(len(s.turns)))
	o.r.openSessions.Add(-1)
}

func (o *open) endIdle(now time.Time) {
	for e := o.order.Front(); e != nil && now.Sub(e.Value.(*session).heard) >= o.r.cfg.Idle; e = o.order.Front() {
		o.end(e.Value.(*session))
	}
}

func (o *open) endAll() {
	for e := o.order.Front(); e != nil; e = o.order.Front() {
		o.end(e.Value.(*session))
	}
}
