// Package engine is vLLM's V1 scheduler: the running and waiting queues, the token budget, chunked prefill, preemption,
// and synchronous and asynchronous stepping over a block pool. It says what each step computes; how long a step takes
// is the law of package latency, and when it happens is the driver's business.
//
// An Engine is driven by Loop, which keeps vLLM's order of inputs, scheduling and processing of outputs.
package engine

import (
	"math"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/prefix"
)

// Config holds vLLM's own settings. Every field counts; DefaultConfig fills in vLLM's defaults.
type Config struct {
	BlockTokens         int32 // block_size
	MaxNumSeqs          int32
	MaxBatchedTokens    int32 // max_num_batched_tokens
	LongPrefillTokens   int32 // long_prefill_token_threshold; 0 is off
	MaxModelLen         int32
	ChunkedPrefill      bool
	PrefixCaching       bool
	ReserveFullISL      bool    // scheduler_reserve_full_isl
	Watermark           float64 // fraction of all blocks
	Priority            bool    // scheduling policy priority instead of fcfs
	Async               bool    // async_scheduling
	SkipBlocked         bool    // requests that do not fit are passed over, and tried first in the next step; vLLM stops at the first one (its pull request 33499 proposes this)
	SlidingWindowTokens int32   // of the model's windowed layers, for the shape of a step; 0 has none
}

// DefaultConfig is vLLM's default scheduler configuration; sizes that depend on the GPU are those of a large one.
func DefaultConfig() Config {
	return Config{
		BlockTokens: 16, MaxNumSeqs: 1024, MaxBatchedTokens: 8192, MaxModelLen: math.MaxInt32,
		ChunkedPrefill: true, PrefixCaching: true, ReserveFullISL: true, Async: true,
	}
}

// Request is what a client sends, with the length of the answer.
type Request struct {
	ID        int64 // decides ties under priority scheduling
	Prompt    prefix.Prefix
	MaxTokens int32            // the request stops after this many output tokens
	StopAfter int32            // the model ends by itself after this many output tokens, which the scheduler cannot foresee; 0 if it does not
	Priority  int32            // smaller goes first
	Arrival   int64            // orders requests of one priority
	Path      []prefix.Segment // which stream owns which full block of prompt and output
}

// Slot is an engine's handle of a live request. A slot is used again after its request has ended; Epoch tells its
// users apart.
type Slot int32

type state uint8

const (
	vacant state = iota
	waiting
	running
	preempted
	loading // waits for KV from the CPU tier, vLLM's WAITING_FOR_REMOTE_KVS
)

// request is a live request. What every step looks at comes first and fills one line of a processor's cache, the rest
// another: where many engines take turns, it is the lines that cost.
type request struct {
	prompt    prefix.Prefix
	maxTokens int32
	stopAfter int32
	computed  int32 // tokens whose KV exists or is being computed
	tokens    int32 // prompt and output tokens appended so far
	table     kv.Handle
	held      int32 // blocks in the table, or owed to it
	cached    int32 // leading blocks of the table that are registered
	epoch     uint32
	inFlight  int16 // placeholders: output tokens being sampled in steps not yet processed
	stale     int16 // output tokens in flight from before a preemption; they are still delivered
	dropped   int16 // output tokens in flight that will be thrown away
	state     state
	eager     bool // registers blocks as they fill; see late.go
	lateness

	id, arrival int64
	path        []prefix.Segment
	priority    int32
	preempts    int32
	own         prefix.StreamID // that the last blocks of the path belong to; see late.go
	streams     uint32          // one bit for each stream on the path, several of which may have the same
	skipped     bool            // in the skipped queue rather than the waiting one
}

// Entry is the part of one request in a step.
type Entry struct {
	Slot   Slot
	Tokens int32  // tokens computed
	Past   int32  // tokens that were there before
	epoch  uint16 // of the slot, its low bits: an entry is compared with it a few steps later at most
	Yields bool   // samples an output token
}

// Step is one scheduled batch.
type Step struct {
	Number  int64 // of the schedule call
	Entries []Entry
	Tokens  int32          // computed in all
	Shape   *latency.Batch // for the law; valid until the next call to schedule
}

// Admission is one request that went from waiting to running.
type Admission struct {
	Slot    Slot
	Hit     int32 // tokens found in the prefix cache and the CPU tier and not computed
	CPU     int32 // of these, loaded from the CPU tier
	Resumed bool  // it had been preempted
}

// Reason is why a request ended.
type Reason uint8

const (
	Length  Reason = iota // it reached its maximum
	Stopped               // the model ended it
)

// String is vLLM's finish reason.
func (r Reason) String() string {
	if r == Stopped {
		return "stop"
	}
	return "length"
}

// Ending is one request that finished.
type Ending struct {
	Slot   Slot
	Reason Reason
}

// PrefixStats counts prefix-cache lookups of admissions (spec: vllm 10).
type PrefixStats struct {
	Requests, Queries, Hits                            int64
	PreemptedRequests, PreemptedQueries, PreemptedHits int64
}

// Output is what the last calls of an engine did, and scratch of theirs. Engines may share one where what one of them did is no
// longer read when the next is called.
type Output struct {
	// What the last Schedule did. Valid until the next call.
	Admitted  []Admission
	Preempted []Slot
	// What the last Update did. Valid until the next call.
	Sampled  []Slot // requests that got an output token, in order
	Finished []Ending

	shape  latency.Batch
	passed []Slot // looked at and passed over in this schedule call
}

// Engine is one vLLM engine without its clock. What every step looks at comes first.
type Engine struct {
	cfg *Config
	*Output
	pool     kv.Pool
	late     *kv.Extent // the pool, if blocks are registered late; see late.go
	tier     connector  // nil without a CPU tier
	running  []Slot
	requests []request
	spare    []Slot
	waiting  queue
	skipped  queue
	steps    int64
	live     int32
	ended    bool // something finished since the last schedule call

	Prefix      PrefixStats // since the last TakePrefixStats
	Preemptions int64       // in all

	ledger  *ledger  // of tier
	offload *Offload // tier, if it is that one
}

// New returns an idle engine over an empty pool. Engines may share a configuration, which must not change any more.
func New(cfg *Config, pool kv.Pool) *Engine {
	e := &Engine{cfg: cfg, pool: pool, Output: new(Output)}
	e.waiting.priority, e.skipped.priority = cfg.Priority, cfg.Priority
	return e
}

// Config is the engine's configuration.
func (e *Engine) Config() *Config { return e.cfg }

// Pool is the engine's block pool.
func (e *Engine) Pool() kv.Pool { return e.pool }

// Running, Waiting and Skipped are the lengths of the three queues; Skipped holds requests passed over for a blocked
// state and counts as waiting in vLLM's metrics.
func (e *Engine) Running() int { return len(e.running) }

// RunningSlots is the running list, in order. It belongs to the engine and is valid until the next call.
func (e *Engine) RunningSlots() []Slot { return e.running }

// Waiting is the length of the waiting queue.
func (e *Engine) Waiting() int { return e.waiting.len() }

// Skipped is the length of the queue of requests passed over.
func (e *Engine) Skipped() int { return e.skipped.len() }

// Usage is the share of usable blocks that requests hold, vllm:kv_cache_usage_perc.
func (e *Engine) Usage() float64 {
	n := e.pool.Usable()
	if n == 0 {
		return 0
	}
	return 1 - float64(e.pool.Free())/float64(n)
}

// HasRequests tells whether vLLM's loop would call schedule: something is unfinished, an ending has not been flushed by
// a schedule call yet, or a transfer is under way.
func (e *Engine) HasRequests() bool {
	return e.live > 0 || e.ended || (e.tier != nil && e.tier.busy())
}

// Epoch of a slot changes whenever the slot passes to another request.
func (e *Engine) Epoch(s Slot) uint32 { return e.requests[s].epoch }

// Table is the pool handle of a request that runs.
func (e *Engine) Table(s Slot) kv.Handle { return e.requests[s].table }

// Held is the number of blocks that a request holds.
func (e *Engine) Held(s Slot) int32 { return e.requests[s].held }

// Computed is the number of a request's tokens whose KV exists or is being computed.
func (e *Engine) Computed(s Slot) int32 { return e.requests[s].computed }

// TakePrefixStats returns the prefix-cache statistics since the last call.
func (e *Engine) TakePrefixStats() PrefixStats {
	s := e.Prefix
	e.Prefix = PrefixStats{}
	return s
}

// Hit is how many tokens of a prompt a lookup finds now: whole blocks, never the whole prompt. It has no side effect,
// and is what a prefix probe answers (spec: vllm 4).
func (e *Engine) Hit(path []prefix.Segment, promptTokens int32) int32 {
	if !e.cfg.PrefixCaching {
		return 0
	}
	return e.Resident(path, (promptTokens-1)/e.cfg.BlockTokens) * e.cfg.BlockTokens
}

// Add queues a request.
func (e *Engine) Add(r Request) Slot {
	var s Slot
	if n := len(e.spare); n > 0 {
		s = e.spare[n-1]
		e.spare = e.spare[:n-1]
	} else {
		s = Slot(len(e.requests))
		e.requests = append(e.requests, request{})
	}
	q := &e.requests[s]
	*q = request{
		prompt: r.Prompt, maxTokens: r.MaxTokens, stopAfter: r.StopAfter, path: r.Path, id: r.ID, arrival: r.Arrival, priority: r.Priority,
		state: waiting, epoch: q.epoch, tokens: r.Prompt.Tokens,
	}
	e.live++
	if e.tier != nil {
		e.ledger.open(s)
	}
	if e.late != nil {
		e.meet(s)
	}
	e.waiting.push(e, s)
	return s
}

// Abort ends a request in any state and frees its blocks, those that a load writes when the load is done. Output of it
// that is still in flight is dropped.
func (e *Engine) Abort(s Slot) {
	e.leaveQueues(s)
	if e.tier != nil {
		e.tier.end(e, s)
	}
	if r := &e.requests[s]; r.state != loading || !e.tier.abandon(e, s) {
		e.release(s)
	}
	e.retire(s)
}

// Reset forgets the prefix cache, vLLM's reset_prefix_cache. Without preempting it fails, without any effect, unless no
// block is held; with it, everything that runs is preempted first, last request first, and output in flight is dropped.
func (e *Engine) Reset(preempt bool) bool {
	if preempt {
		for n := len(e.running); n > 0; n = len(e.running) {
			s := e.running[n-1]
			e.running = e.running[:n-1]
			e.preempt(s)
			r := &e.requests[s]
			r.dropped += r.stale
			r.stale = 0
		}
	}
	return e.pool.Reset()
}

// leaveQueues takes a request out of whichever queue it is in.
func (e *Engine) leaveQueues(s Slot) {
	r := &e.requests[s]
	switch {
	case r.state == running:
		for i, x := range e.running {
			if x == s {
				e.running = append(e.running[:i], e.running[i+1:]...)
				break
			}
		}
	case r.skipped:
		e.skipped.remove(s)
	default:
		e.waiting.remove(s)
	}
}

// release frees a request's blocks, if it has any.
func (e *Engine) release(s Slot) {
	r := &e.requests[s]
	if r.held == 0 {
		return
	}
	if e.late != nil {
		e.flush(r)
	}
	if e.tier != nil {
		e.free(s)
	} else {
		e.pool.Release(r.table)
	}
	r.held, r.cached, r.ready, r.due = 0, 0, 0, 0
}

// retire gives the slot back.
func (e *Engine) retire(s Slot) {
	r := &e.requests[s]
	r.state = vacant
	r.epoch++
	r.path = nil
	e.spare = append(e.spare, s)
	e.live--
	e.ended = true
}

// preempt frees a running request, which the caller has taken out of the running list, and queues it again at the
// front. Its output is kept, its KV is computed anew (spec: vllm 8).
func (e *Engine) preempt(s Slot) {
	e.release(s)
	r := &e.requests[s]
	r.state = preempted
	r.computed = 0
	r.preempts++
	r.stale += r.inFlight
	r.inFlight = 0
	e.Preemptions++
	e.waiting.pushFront(e, s)
}
