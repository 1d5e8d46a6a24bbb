// Package results is what a run leaves behind: rows, tables, summary and the definitions of every metric.
//
// In memory all times are integer picoseconds since the run began; files hold float64 seconds. The package imports
// nothing of ours.
package results

// Missing marks a time that does not exist, such as the first token of a turn that was never scheduled. In files it is
// null, never zero.
const Missing int64 = -1

// Outcome is how an attempt ended.
type Outcome uint8

const (
	Finished   Outcome = iota // all output tokens were produced
	Rejected                  // the gate or the engine refused it
	TimedOut                  // the client gave up
	Superseded                // a newer attempt of the same turn took its place while it waited
	FailedRun                 // the replica failed it
	Unstarted                 // the run ended, or an earlier turn of the thread failed for good, before it could arrive
)

// Cause says why a prompt token that had been computed before was computed again; the first that matches, in this order.
type Cause uint8

const (
	CauseNone      Cause = iota
	CausePreempted       // the engine preempted the turn
	CauseRetry           // a former attempt of the turn had computed it
	CauseRestarted       // the replica restarted since
	CauseEvicted         // it was evicted here during the gap
	CauseElsewhere       // it is resident on another replica
	CauseCold            // never computed here and resident nowhere
	NumCauses
)

// Turn is one attempt of a turn, the row of turns.parquet. Exactly one attempt of every turn is the last one
// (Final); sums over turns use the final attempts.
type Turn struct {
	Session, Thread, Number int32 // session index; thread within the session; turn number from 1 within the thread
	Attempt                 int32 // 1 for the first
	Final                   bool  // the last attempt of its turn
	Class, Group            int32
	Replica, PrefillReplica int32 // -1 when never dispatched

	ArrivalPS, AdmittedPS, SentPS, ScheduledPS, FirstTokenPS, DonePS int64

	Outcome     Outcome
	AdmitReason string // reason of admission, or of the last hold when it was never admitted
	RouteReason string

	PromptTokens, OutputTokens           int32 // OutputTokens: produced
	HitGPU, HitCPU, HitGlobal            int32 // tokens found at first scheduling
	ComputedTokens                       int32 // prompt tokens computed, recomputation after preemption included
	CeilingTokens                        int32 // hit tokens with an infinite cache and ideal routing
	WastedTokens                         int32 // prompt tokens computed again, all causes
	WasteCause                           Cause // the cause of most of them
	Preemptions                          int32 // by the engine
	GateHolds, UsageProbes, PrefixProbes int32
	ITLMaxPS                             int64 // Missing with fewer than two output tokens
	ToolGapPS                            int64 // from the trigger of the turn to its arrival; Missing for the first turn of a session
	IdleTTFTPS, IdleTPOTPS               int64 // what the turn would take alone on an idle replica with a warm cache; Missing unless an SLO is set
}

// Session is the row of sessions.parquet.
type Session struct {
	Session              int32
	Name                 string
	Group                int32
	StartPS, EndPS       int64 // first arrival; last completion (Missing when no turn finished)
	Turns, FinishedTurns int32
	PromptTokens         int64
	OutputTokens         int64
	ComputedTokens       int64
	GateWaitPS           int64
	AttemptsPreempted    int32 // attempts superseded by a newer one at the gate, apart from engine preemptions
	ReplicasUsed         int32
	Complete             bool // every turn finished
}

// Sample is one interval of one replica, the row of replicas.parquet. Sums are over the interval, gauges at its end.
type Sample struct {
	Replica                    int32
	EndPS                      int64 // end of the interval
	Running, Waiting, InFlight int32
	Usage                      float64 // referenced blocks / usable blocks
	ResidentTokens, CPUTokens  int64   // cached content, referenced or idle
	ComputedTokens             int64   // prompt tokens computed
	OutputTokens, HitTokens    int64
	PromptTokens               int64 // of the turns first scheduled in the interval
	EvictedTokens              int64
	BusyPS                     int64
	Preemptions                int32
}

// Sink receives rows as a run produces them, in an order that the run's inputs determine. The pointers are valid only
// during the call.
type Sink interface {
	Turn(*Turn) error
	Session(*Session) error
	Sample(*Sample) error
}

// Totals is what the simulator counts itself because rows do not hold it.
type Totals struct {
	EndPS                          int64 // last completion
	Replicas                       int32
	GPUs                           int32 // over all replicas
	KVTokens                       int64 // capacity of one replica
	KVBlocks                       int64 // usable blocks of one replica
	BlockTokens                    int32
	Sessions, Turns                int64 // asked for: dropped ones included
	Dropped                        []Count
	Notes                          []Count
	Steps                          int64   // engine steps that computed something
	BusyPS                         []int64 // per replica
	PrefillBusyPS                  int64   // part of the busy time that the prefill tokens of steps caused
	DecodeBusyPS                   int64
	TransferBusyPS                 int64       // by which loads from the CPU tier lengthened steps
	CPUTier                        *TierTotals // nil without a CPU tier
	WasteTokens                    [NumCauses]int64
	ITL                            *Histogram // pooled inter-token gaps, picoseconds
	EngineAdmissions               int64      // requests that the engines took in
	Preemptions                    int64      // by the engines
	AttemptsPreempted              int64      // attempts superseded at the gate
	LeasesAdmitted                 int64      // leases: admitted = finished + failed + cancelled + live
	LeasesFinished                 int64
	LeasesFailed                   int64
	LeasesCancelled                int64
	LeasesLive                     int64
	LeasesLost                     int64   // whose end a fault of the scenario kept from the policies
	LeasesAbandoned                int64   // of these: ended since when their replica restarted
	Pins, PinsExpired, PinsForRoom int64   // pins of finished turns; ended in time; given up because an engine needed the room
	PinnedTokenS                   float64 // pinned tokens times seconds
	PolicySteps                    int64   // calls of the decision core; not in files, since it depends on how the simulator steps
	Events                         int64   // simulator events; likewise
}

// TierTotals counts what moved between the GPUs and the CPU tier.
type TierTotals struct {
	CapacityTokens               int64 // of one replica
	LoadedTokens, StoredTokens   int64
	EvictedTokens                int64
	Loads, Stores, RefusedStores int64 // jobs
	Flushes                      int64 // stores that a step had to wait for
	LoadBusyPS, StoreBusyPS      int64 // time that the links were busy, over all replicas
}

// Count is a labelled number.
type Count struct {
	Label string `json:"label"`
	N     int64  `json:"n"`
}
