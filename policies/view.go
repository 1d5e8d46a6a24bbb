package policies

import (
	"slices"

	"github.com/sluice-sim/sluice/prefix"
)

// ReplicaState is whether a replica takes turns.
type ReplicaState uint8

const (
	Down     ReplicaState = iota // also: never heard of
	Up                           // takes turns
	Draining                     // finishes what it has, takes nothing new
)

// View is what the core knows, built from facts alone. Gates and routers read it; only the Controller changes it. What
// nobody reported is unknown: every accessor of a reported figure says whether there is one.
type View struct {
	tree     *prefix.Tree
	oracle   Oracle
	router   Router
	replicas []replica
	up       []ReplicaID // replicas that are Up, ascending
	threads  []thread
	ledger   ledger
	index    index
	waiters  waiters
	changes  changes
	ended    []bool   // by session
	fewest   *Ranking // by leases
	upQueued int64    // queued tokens of the replicas that are up
	upDecode int64    // decode tokens of the replicas that are up
}

// replica is what is known of one. What every turn changes comes first, in one line of memory.
type replica struct {
	state ReplicaState

	// The ledger's sums over the leases dispatched here.
	inFlight     int32
	firstLease   int32 // list of leases, in no particular order
	queuedTokens int64 // uncached prompt tokens of leases without a first token
	queuedMoment int64 // twice the sum of n(L-n/2) over the same leases
	decodeTokens int64 // prompt and output tokens of leases with a first token
	promptTokens int64 // of all leases

	capability Capability
	sample     Sample // Has is 0 until the first sample
}

type thread struct {
	last     ReplicaID // where its last dispatched turn went
	history  int32     // prompt and output tokens of its last finished turn
	finished int32     // turns finished
	running  int32     // leases
	ended    bool
}

func newView(tree *prefix.Tree, capabilities []Capability, oracle Oracle, router Router) *View {
	v := &View{tree: tree, oracle: oracle, router: router, replicas: make([]replica, len(capabilities))}
	for i := range v.replicas {
		v.replicas[i].capability = capabilities[i]
		v.replicas[i].firstLease = noSlot
	}
	v.up = make([]ReplicaID, 0, len(capabilities))
	v.changes.init(len(capabilities))
	v.index.init(tree, &v.changes, len(capabilities))
	v.fewest = NewRanking(false, func(v *View, r ReplicaID) Place { return Place{Key: int64(v.replicas[r].inFlight)} })
	v.waiters.init()
	return v
}

// Replicas is the number of replicas, in whatever state.
func (v *View) Replicas() int { return len(v.replicas) }

// Up lists the replicas that take turns, in ascending order. The caller must not change or keep it.
func (v *View) Up() []ReplicaID { return v.up }

// State is the state of r; Down for a number that names no replica.
func (v *View) State(r ReplicaID) ReplicaState {
	if !v.has(r) {
		return Down
	}
	return v.replicas[r].state
}

// IsUp says whether r takes turns; false for NoReplica.
func (v *View) IsUp(r ReplicaID) bool { return v.State(r) == Up }

// Sample is the last sample of r since it came up. A figure whose Has bit is clear is unknown.
func (v *View) Sample(r ReplicaID) Sample { return v.replicas[r].sample }

// Capability is what is known of r's hardware; unknown figures are 0.
func (v *View) Capability(r ReplicaID) Capability { return v.replicas[r].capability }

// InFlight is the number of leases dispatched to r and not ended (F).
func (v *View) InFlight(r ReplicaID) int32 { return v.replicas[r].inFlight }

// QueuedTokens is the prompt tokens dispatched to r, estimated not to be cached there, whose turn has no first token
// yet (Q).
func (v *View) QueuedTokens(r ReplicaID) int64 { return v.replicas[r].queuedTokens }

// QueuedMoment is twice the sum, over the turns of QueuedTokens, of n(L-n/2) for n uncached of L prompt tokens: the
// number of (new token, earlier token) pairs that attention has yet to visit, doubled so that it is a whole number.
func (v *View) QueuedMoment(r ReplicaID) int64 { return v.replicas[r].queuedMoment }

// DecodeTokens is the prompt and output tokens of the turns on r that have a first token (D). Output tokens count as
// far as TokensProgressed facts told.
func (v *View) DecodeTokens(r ReplicaID) int64 { return v.replicas[r].decodeTokens }

// PromptTokens is the prompt tokens of the leases dispatched to r and not ended, cached or not.
func (v *View) PromptTokens(r ReplicaID) int64 { return v.replicas[r].promptTokens }

// LastReplica is where the last dispatched turn of t went; NoReplica if none was.
func (v *View) LastReplica(t ThreadID) ReplicaID {
	if !v.hasThread(t) {
		return NoReplica
	}
	return v.threads[t].last
}

// History is the prompt and output tokens of the last finished turn of t; 0 if none has finished.
func (v *View) History(t ThreadID) int32 {
	if !v.hasThread(t) {
		return 0
	}
	return v.threads[t].history
}

// FinishedTurns is the number of finished turns of t.
func (v *View) FinishedTurns(t ThreadID) int32 {
	if !v.hasThread(t) {
		return 0
	}
	return v.threads[t].finished
}

// Running is the number of leases of t.
func (v *View) Running(t ThreadID) int32 {
	if !v.hasThread(t) {
		return 0
	}
	return v.threads[t].running
}

// HitTokens is how many leading tokens of p are resident on r according to r's KV facts: whole blocks, and never the
// last token, which must be computed. ok is false if r never sent a KV fact.
func (v *View) HitTokens(r ReplicaID, p prefix.Prefix) (tokens int32, ok bool) {
	return v.index.hit(r, p)
}

// AllHitTokens is HitTokens of every replica in dst, which must have one element for each; -1 where it is unknown.
func (v *View) AllHitTokens(p prefix.Prefix, dst []int32) { v.index.hits(p, dst) }

// Owner names p by the stream that owns its last token: two prompts are the same content if their owners are equal.
func (v *View) Owner(p prefix.Prefix) prefix.Prefix { return v.tree.Owner(p) }

// EstimateHits is AllHitTokens for t, with an estimate where it is unknown: on the replica that the thread's last turn
// went to, what that turn left there; elsewhere nothing.
func (v *View) EstimateHits(t *Turn, dst []int32) {
	v.index.hits(t.Prompt, dst)
	for i, h := range dst {
		if h < 0 {
			dst[i] = v.recalledHit(ReplicaID(i), t)
		}
	}
}

func (v *View) estimateHit(r ReplicaID, t *Turn) int32 {
	if h, ok := v.index.hit(r, t.Prompt); ok {
		return h
	}
	return v.recalledHit(r, t)
}

func (v *View) recalledHit(r ReplicaID, t *Turn) int32 {
	if v.LastReplica(t.Thread) != r {
		return 0
	}
	return max(0, min(v.History(t.Thread), t.Prompt.Tokens-1))
}

// Batch is the number of requests that r has, running or waiting: the larger of the last sample and the ledger, so that
// dispatches younger than the sample count; the ledger alone if there is no sample (rule c of the load indicators).
func (v *View) Batch(r ReplicaID) int32 {
	s := &v.replicas[r].sample
	if s.Has&HasRunning == 0 || s.Has&HasWaiting == 0 {
		return v.replicas[r].inFlight
	}
	return max(s.Running+s.Waiting, v.replicas[r].inFlight)
}

// LeastInFlight is the replica with the fewest leases, lowest number on a tie; NoReplica if none is up.
func (v *View) LeastInFlight() ReplicaID { return v.fewest.First(v, 0) }

// UpQueuedTokens is the sum of QueuedTokens over the replicas that are up.
func (v *View) UpQueuedTokens() int64 { return v.upQueued }

// UpDecodeTokens is the sum of DecodeTokens over the replicas that are up.
func (v *View) UpDecodeTokens() int64 { return v.upDecode }

// Oracle is exact knowledge, nil where there is none.
func (v *View) Oracle() Oracle { return v.oracle }

// Peek is where the router would send t now; NoReplica if none is up.
func (v *View) Peek(now Time, t *Turn) ReplicaID {
	if len(v.up) == 0 {
		return NoReplica
	}
	return v.router.Peek(now, v, t)
}

// Wake has the first n turns that are held under key asked again, in order of arrival; all of them if n is negative.
func (v *View) Wake(key WakeKey, n int) { v.waiters.wake(key, n) }

// FirstWaiter is the earliest arrival that is held under key; ok is false if there is none.
func (v *View) FirstWaiter(key WakeKey) (a AttemptID, ok bool) { return v.waiters.first(key) }

func (v *View) has(r ReplicaID) bool      { return r >= 0 && int(r) < len(v.replicas) }
func (v *View) hasThread(t ThreadID) bool { return t >= 0 && int(t) < len(v.threads) }
func (v *View) thread(t ThreadID) *thread {
	for int(t) >= len(v.threads) {
		v.threads = append(v.threads, thread{last: NoReplica})
	}
	return &v.threads[t]
}

// setState records a change of r's state; false if there is no r or nothing changed.
func (v *View) setState(r ReplicaID, s ReplicaState) bool {
	if !v.has(r) || v.replicas[r].state == s {
		return false
	}
	v.changes.note(r)
	if rep := &v.replicas[r]; s == Up {
		v.upQueued += rep.queuedTokens
		v.upDecode += rep.decodeTokens
	} else if rep.state == Up {
		v.upQueued -= rep.queuedTokens
		v.upDecode -= rep.decodeTokens
	}
	v.replicas[r].state = s
	if s == Down {
		v.forget(r)
	}
	switch i, up := slices.BinarySearch(v.up, r); {
	case s == Up:
		v.up = slices.Insert(v.up, i, r)
	case up:
		v.up = slices.Delete(v.up, i, i+1)
	}
	return true
}

// forget drops what r said: what it held is lost, and its figures are out of date.
func (v *View) forget(r ReplicaID) {
	v.replicas[r].sample = Sample{}
	v.changes.note(r)
	v.index.clear(r)
}

func (v *View) setSample(r ReplicaID, s Sample) bool {
	if !v.has(r) || v.replicas[r].state == Down || (v.replicas[r].sample.Has != 0 && s.At < v.replicas[r].sample.At) {
		return false
	}
	last := &v.replicas[r].sample
	last.At = s.At
	if *last != s {
		*last = s
		v.changes.note(r)
	}
	return true
}
