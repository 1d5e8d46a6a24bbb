// Package policies is the decision core: facts in, commands out. It decides when a turn may go (a Gate) and where it
// goes (a Router), and it owns the bookkeeping that these decisions rest on (leases, in-flight counts, prefix index,
// ages of samples). The same code runs in the simulator and in a gateway.
//
// The core is pure: no clock, no goroutine, no I/O, no global randomness, no dependence on map order. Time is what the
// driver says it is. An import and syntax test keeps it so.
package policies

import (
	"math"

	"github.com/sluice-sim/sluice/prefix"
)

// Time is nanoseconds since the driver's epoch.
type Time int64

// Never is later than every moment.
const Never Time = math.MaxInt64

// Second is one second of Time.
const Second Time = 1_000_000_000

// ReplicaID is the index of a replica, dense from 0.
type ReplicaID int32

const (
	NoReplica   ReplicaID = -1 // none, or not decided
	AllReplicas ReplicaID = -2 // in a probe verdict: every replica that is up
)

// SessionID is a dense index of sessions. ThreadID is a dense index of conversations over all sessions: a session's
// root thread and each of its subagents has its own. AttemptID is unique for every attempt of every turn and grows in
// order of arrival; an admitted attempt is a lease.
type (
	SessionID int32
	ThreadID  int32
	AttemptID int64
)

// Machine is what a driver knows of the core.
type Machine interface {
	// Step takes every fact that is true at now, settles once, and appends the commands that follow to out.
	// now never goes back. It never blocks and keeps no reference to in or out.
	Step(now Time, in []Fact, out []Command) []Command
	// NextWake is the latest moment at which Step must be called again; Never if none.
	NextWake() Time
}

// Turn is what a live gateway knows of a turn on arrival. It does not hold the true output length. Session and Thread are
// not negative and Prompt has at least one token.
type Turn struct {
	Attempt   AttemptID
	Session   SessionID
	Thread    ThreadID
	Number    int32 // 1 for the first turn of the thread
	Retry     int32 // 0 for the first attempt
	Prompt    prefix.Prefix
	MaxTokens int32 // the request's max_tokens; 0 when it has none
	Class     int32 // service class
	Group     int32 // tenant, repository or rollout prompt; -1 for none
	Key       int64 // of the session, the same in every gateway of an installation; 0 where there is none. Numbers are not
}

// FactKind says what a Fact reports.
type FactKind uint8

const (
	TurnArrived       FactKind = iota + 1 // Turn; its Attempt is larger than those of all earlier Steps
	AttemptSuperseded                     // Attempt: a newer attempt of the same turn has arrived (its TurnArrived follows in the same Step)
	ClientGone                            // Attempt: its client gave up. If it waits it is forgotten without a command; if it runs it stays a lease until Finished or Failed
	UsageProbed                           // Attempt, Replica, Outcome, Usage
	PrefixProbed                          // Attempt, Replica, Outcome, HitTokens, PromptTokens
	Dispatched                            // Attempt, Replica: the engine took the request in
	FirstToken                            // Attempt, Replica, PromptTokens, HitTokens
	Finished                              // Attempt, Replica, PromptTokens, OutputTokens, HitTokens, Preemptions
	Failed                                // Attempt, Replica: the request ended without a result
	ThreadFinished                        // Thread, Session: the conversation sends no more turns
	SessionFinished                       // Session: all its threads have finished. Turns of it may still wait or run, those of clients that left without a word
	MetricsSampled                        // Replica, Sample
	TokensProgressed                      // Attempt, OutputTokens so far
	BlocksStored                          // Replica, Stream, Lo, Hi, BlockTokens
	BlocksEvicted                         // Replica, Stream, Lo, Hi, BlockTokens: one copy of each block
	BlocksCleared                         // Replica: everything
	ReplicaUp                             // Replica
	ReplicaDown                           // Replica
	ReplicaDraining                       // Replica: takes nothing new
	Woke                                  // the time asked for with NextWake has come
	ReplicaRestarted                      // Replica: its process is a new one; what it held and ran is gone
)

// ProbeOutcome is how a probe ended.
type ProbeOutcome uint8

const (
	ProbeValue       ProbeOutcome = iota // it returned a value
	ProbeTimeout                         // no answer before its deadline
	ProbeUnsupported                     // the replica cannot answer
)

// Fact is one thing that became true. It is flat; Kind says which fields count.
type Fact struct {
	Kind    FactKind
	Outcome ProbeOutcome
	Replica ReplicaID
	Session SessionID
	Thread  ThreadID
	Attempt AttemptID

	PromptTokens, OutputTokens int32
	HitTokens                  int32
	Preemptions                int32
	Usage                      float64 // referenced blocks / usable blocks, 0 to 1

	Stream      prefix.StreamID
	Lo, Hi      int32 // blocks Lo <= i < Hi of Stream
	BlockTokens int32

	Sample Sample
	Turn   Turn
}

// Sample is a scrape of one replica's metrics. At is when the replica's state was so; the fact's own time minus At is
// its age. A figure that the source did not give has its Has bit clear and is unknown, which is not zero.
type Sample struct {
	At      Time
	Has     SampleField
	Running int32   // requests in the running list
	Waiting int32   // requests waiting in the engine
	Usage   float64 // referenced blocks / usable blocks

	QueryTokens int64 // counter: prompt tokens looked up in the prefix cache
	HitTokens   int64 // counter: of these, found
}

// SampleField is a set of Sample fields.
type SampleField uint8

const (
	HasRunning SampleField = 1 << iota
	HasWaiting
	HasUsage
	HasPrefixCounters
)

// CommandKind says what a Command asks for.
type CommandKind uint8

const (
	Admit       CommandKind = iota + 1 // Attempt may go; it is a lease from now on. Reason
	Dispatch                           // send Attempt to Replica. Reason
	Hold                               // Attempt waits. Reason. Sent once for each spell of waiting with a new reason
	Reject                             // refuse Attempt. Reason, RetryAfter
	Abort                              // end Attempt, waiting or running. Reason
	ProbeUsage                         // ask Replica for its usage, on behalf of Attempt
	ProbePrefix                        // ask Replica how much of Attempt's prompt is resident
	Migrate                            // move Attempt's session to Replica
	Pin                                // keep Attempt's content on Replica until Until
	Unpin                              // undo Pin
)

// Command is one thing that the driver must do. It is flat; Kind says which fields count.
type Command struct {
	Kind       CommandKind
	Reason     Reason
	Replica    ReplicaID
	Attempt    AttemptID
	RetryAfter Time // duration; 0 for none
	Until      Time
}

// Reason is why a command was given. The set is closed.
type Reason uint8

// The reasons of gates come first, then those of routers.
const (
	NoReason          Reason = iota
	Ungated                  // there is no gate, or it is switched off
	Open                     // no pressure
	ReservedSession          // the thread owns a window
	ResidentPrefix           // enough of the prompt is resident
	ProbeUnavailable         // a probe gave no value, and the gate fails open
	SlotFree                 // a slot was free
	SlotOwned                // the session holds a slot
	UnderPressure            // held: usage at or above the watermark and too little resident
	BehindWaiter             // held: others arrived before
	NoSlot                   // held: all slots are taken
	Fits                     // there is room for the program
	ActiveProgram            // the program is active
	Resumed                  // the session or program was let on after a pause
	Forced                   // it had waited as long as a turn may
	SessionOver              // its session or program has ended; it takes no slot
	Paused                   // held: its session or program is paused
	NoRoom                   // held: there is no room for the program
	Saturated                // held: the pool is saturated
	QueueFull                // rejected: too many wait
	WaitedTooLong            // rejected: it waited as long as a turn may
	Shed                     // rejected: its class is refused while the load is high
	NoReplicaUp              // held or rejected: nothing can take it
	SupersededAttempt        // aborted: a newer attempt of the same thread arrived
	ClientLeft               // aborted: the client gave up
	InTurn                   // routed by rotation
	PlacedByGate             // the gate had chosen the replica
	LeastLoaded              // routed to the smallest load
	Affinity                 // routed to where the thread went before
	FirstPlacement           // routed by load because the thread has no place yet
	HomeLost                 // routed by load because the thread's place is gone
	BestScore                // routed to the best score
	Sampled                  // routed by a weighted draw
	HomeHit                  // routed to the longest resident prefix
	Spilled                  // routed by score because the longest resident prefix is where there is no room
	Predicted                // routed to the smallest predicted completion time
	LoadBound                // routed away from its place, which is over its bound of load
	Imbalanced               // routed by load because the loads are too far apart
	Hotspot                  // routed away from those that hold a prefix that is too popular
	numReasons
)

var reasonNames = [numReasons]string{
	"", "ungated", "open", "reserved_session", "resident_prefix", "probe_unavailable", "slot_free", "slot_owned",
	"under_pressure", "behind_waiter", "no_slot", "fits", "active_program", "resumed", "forced", "session_over", "paused", "no_room",
	"saturated", "queue_full", "waited_too_long", "shed", "no_replica_up", "superseded", "client_left",
	"in_turn", "placed_by_gate", "least_loaded", "affinity", "first_placement", "home_lost", "best_score", "sampled", "home_hit", "spilled",
	"predicted", "load_bound", "imbalanced", "hotspot",
}

// String is the reason's name in logs and results.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "invalid"
}

// Gate decides when a turn may go.
type Gate interface {
	// Observe sees every fact after the view has taken it in. It may call v.Wake.
	Observe(now Time, v *View, f *Fact)
	// Admit is asked when a turn arrives, when a probe it asked for was answered (the answers are in p), and when it is
	// woken or its hold ends.
	Admit(now Time, v *View, t *Turn, p *Probes) Verdict
	// NextWake is when the gate wants Observe called with a Woke fact at the latest; Never if not at all.
	NextWake() Time
}

// Probes holds the answers to the probes that a turn asked for since it was last held; Admit reads them.
type Probes struct {
	HasUsage  bool // a usage probe was answered
	UsageOK   bool // with a value, on at least one replica
	UsageMean float64
	UsageMax  float64 // over the replicas that gave a value; equal to UsageMean for one replica

	HasPrefix    bool // a prefix probe was answered
	PrefixOK     bool
	HitTokens    int32
	PromptTokens int32
}

// VerdictKind is what a gate says of a turn.
type VerdictKind uint8

const (
	VerdictAdmit VerdictKind = iota + 1
	VerdictHold
	VerdictProbeUsage  // ask again once Replica (or AllReplicas) has answered
	VerdictProbePrefix // ask again once Replica has answered
	VerdictReject
)

// Verdict is a gate's answer.
type Verdict struct {
	Kind       VerdictKind
	Reason     Reason
	Replica    ReplicaID // probes, and admit with Placed
	Placed     bool      // admit: the turn goes to Replica if that is up, and the router is not asked
	Until      Time      // hold: asked again at this moment at the latest; Never for no limit
	WakeOn     WakeKey   // hold: asked again when v.Wake is called for this key
	RetryAfter Time      // reject
}

// WakeKey names a set of waiting turns that one event can release. A gate chooses its own keys, for example 0 for "room
// anywhere" or a replica's or a session's number. Turns under a key wait in order of arrival.
type WakeKey int64

// Router decides where a turn goes.
type Router interface {
	// Observe sees every fact after the view has taken it in.
	Observe(now Time, v *View, f *Fact)
	// Route chooses a replica that is up; NoReplica if there is none. The turn is dispatched there at once.
	Route(now Time, v *View, t *Turn) (ReplicaID, Reason)
	// Peek is where Route would send the turn now, without any side effect.
	Peek(now Time, v *View, t *Turn) ReplicaID
}

// Scorer is one term of a weighted router.
type Scorer interface {
	// Score writes one score for every replica into dst (len(dst) replicas), in fixed point: ScoreOne is 1. dst comes
	// filled with 0. It has no side effect.
	Score(now Time, v *View, t *Turn, dst []int64)
}

// Signals is the set of facts that a policy needs beyond its own ledger. A driver need not produce the others.
type Signals uint8

const (
	NeedsSamples     Signals = 1 << iota // MetricsSampled
	NeedsKVEvents                        // BlocksStored, BlocksEvicted, BlocksCleared
	NeedsProgress                        // TokensProgressed
	NeedsProbes                          // answers to ProbeUsage and ProbePrefix
	NeedsOracle                          // View.Oracle
	NeedsEverySample                     // with NeedsSamples: while a turn waits, each MetricsSampled when it comes
)

// Oracle is exact knowledge that only a simulator has. It serves the router named oracle, a yardstick.
type Oracle interface {
	// Completion predicts when t would produce its last token if it were dispatched to r now.
	Completion(now Time, r ReplicaID, t *Turn) Time
}

// Capability describes one replica to the policies that need physical constants. Unknown figures are 0 and the
// documentation of a policy says what it does then.
type Capability struct {
	PrefillTokensPerSec float64 // cold prefill rate of an 8k prompt (SMetric's drain)
	AttentionDoubling   float64 // context at which attention doubles the cost of a prefill token (SMetric's L_eq)
	KVTokens            int64   // KV capacity
	BlockTokens         int32   // tokens per KV block
	MaxBatchedTokens    int32
}
