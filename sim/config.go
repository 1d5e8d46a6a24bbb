// Package sim is virtual time: it replays sessions against a cluster of modelled replicas through the decision core of
// package policies, and hands rows to a sink of package results.
//
// The simulator is a driver of policies: at each instant it collects every fact that is true then, calls Step once,
// applies the commands and arms one wake, until the instant is quiet; only then do engines schedule, so everything that
// reaches a replica at an instant is in the step that it schedules at that instant.
//
// Time is int64 picoseconds; policies see whole nanoseconds, rounded down. One run is one goroutine. The same
// configuration gives the same rows, whatever GOMAXPROCS is.
package sim

import (
	"context"
	"fmt"
	"math"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/traces"
)

// Process is how sessions arrive.
type Process uint8

const (
	Poisson    Process = iota // independent exponential gaps at RatePerS
	Uniform                   // equal gaps at RatePerS
	Recorded                  // as the trace says, Speedup times as fast
	Concurrent                // Sessions at a time: the next begins when one ends
	Burst                     // all at once
	Rollout                   // batches of Prompts x Samples; the next batch begins when all of one has ended
)

// Arrivals says when sessions start.
type Arrivals struct {
	Process          Process
	RatePerS         float64
	Speedup          float64 // Recorded
	Sessions         int     // Concurrent
	Prompts, Samples int     // Rollout
	Shuffle          bool    // sessions start in an order drawn from the seed, not in that of the trace
}

// Clients says what clients do beside waiting.
type Clients struct {
	TimeoutPS      int64 // from arrival to the last token; 0 for none
	Retries        int32
	RetryDelayPS   int64
	CancelUpstream bool // a client that gives up tells the gate and the engine; otherwise its attempt lives on unseen
}

// Signals says how policies see the replicas.
type Signals struct {
	ScrapePS       int64   // period of metrics samples
	ScrapeDelayPS  int64   // from the scrape to the policies
	ScrapeJitterPS int64   // added to it, drawn uniformly for each replica and scrape
	ScrapeLoss     float64 // probability that a scrape of a replica fails
	NoProbes       bool    // replicas do not answer probes
	ProbeIPCPS     int64   // a probe reaches the engine after this time, then waits for the end of the step in progress
	ProbeTimeoutPS int64   // 0 for none
	KVEventDelayPS int64
}

// Config is one run, with everything resolved.
type Config struct {
	Seed     uint64
	Trace    *traces.Trace // the sessions; nil when Source gives them
	Source   traces.Source // the sessions one by one
	Arrivals Arrivals
	Open     bool // turns arrive at their recorded times instead of after their dependencies
	Clients  Clients
	Signals  Signals

	ClassShares []float64 // of the sessions, by service class, their sum 1; none for class 0 alone

	Replicas       int
	GPUsPerReplica int
	Engine         engine.Config
	KVBlocks       int32    // usable blocks of one replica
	CPUTier        *CPUTier // behind each replica; nil for none
	ReferencePool  bool     // the pool that keeps every block, instead of the extent pool
	Law            *latency.Law
	MaxModelLen    int32 // prompt and output together; longer turns are refused before the run

	Faults  []Fault
	Routers int // router instances that share nothing; 0 and 1 are one. Sessions are spread over them by the seed

	Gate                     policies.Declaration
	Router                   policies.Declaration
	GateParams, RouterParams policies.Params
	Retention                policies.Declaration // the zero value pins nothing
	RetentionParams          policies.Params
	Capability               policies.Capability // of one replica

	IdleLatency bool // work out what each turn would take alone on an idle, warm replica (for SLO feasibility)

	IntervalPS int64 // of replica samples
	MaxSamples int   // samples kept for one replica; the interval doubles when they would be more
	Walk       bool  // go through every decode step instead of jumping; the rows are the same
	Check      bool  // check invariants all along, not only at the end
	ahead      bool  // ask for memory ahead however few the replicas are; for tests

	Progress func(done, total int64) // turns; called now and then

	Decisions Decisions // told of every Step of the policies; nil for nobody
}

// Decisions is told what the policies were told and what they said, in order. It keeps nothing that it is handed and
// changes no result.
type Decisions interface {
	// Watch is called once, before the first Step, and returns the oracle that the policies are to ask.
	Watch(policies.Oracle) policies.Oracle
	// Step is called after every Step, with the tree that the facts' streams are of. An error ends the run.
	Step(tree *prefix.Tree, now policies.Time, facts []policies.Fact, commands []policies.Command) error
}

func (c *Config) pool() kv.Pool {
	if c.ReferencePool {
		return kv.NewReference(c.KVBlocks, c.Engine.PrefixCaching)
	}
	return kv.NewExtent(c.KVBlocks, c.Engine.PrefixCaching)
}

// InputError says that a configuration cannot be run as it stands.
type InputError struct{ Problem string }

// Error implements error.
func (e *InputError) Error() string { return e.Problem }

func inputErrorf(format string, args ...any) error {
	return &InputError{Problem: fmt.Sprintf(format, args...)}
}

// source is where the sessions come from.
func (c *Config) source() traces.Source {
	if c.Trace != nil {
		return c.Trace
	}
	return c.Source
}

// check reads the sessions once and refuses what the engines of the cluster would never finish.
func (c *Config) check(ctx context.Context) (*traces.Survey, error) {
	tokens := int64(c.KVBlocks) * int64(c.Engine.BlockTokens)
	limit := min(tokens, int64(c.MaxModelLen))
	v, err := traces.NewSurvey(ctx, c.source(), c.Engine.BlockTokens, limit)
	switch {
	case err != nil:
		return nil, err
	case v.Empty > 0:
		return nil, inputErrorf("%s; a run needs at least one of each", v.FirstEmpty)
	case v.OverLimit > 0:
		return nil, inputErrorf("%d turns do not fit: %s, but a replica takes at most %d (KV %d tokens, max_model_len %d); lower workload.trace.max_context, or give the replicas more KV", v.OverLimit, v.FirstOverLimit, limit, tokens, c.MaxModelLen)
	case v.Sessions == 0:
		return nil, inputErrorf("the trace holds no session")
	case c.Arrivals.Process == Recorded && v.NoStart > 0:
		return nil, inputErrorf("arrivals.process is recorded, but %s has no recorded start; use poisson, concurrent or burst", v.FirstNoStart)
	}
	if err := checkClassShares(c.ClassShares); err != nil {
		return nil, err
	}
	return v, c.checkFaults()
}

// shareSlack is how far the sum of class shares may be from 1.
const shareSlack = 1e-9

func checkClassShares(shares []float64) error {
	sum := 0.0
	for class, x := range shares {
		if !(x >= 0 && x <= 1) { // NaN too
			return inputErrorf("class %d has a share of %v of the sessions; shares must be from 0 to 1", class, x)
		}
		sum += x
	}
	if len(shares) > 0 && math.Abs(sum-1) > shareSlack {
		return inputErrorf("the shares of the %d service classes sum to %v; they must sum to 1", len(shares), sum)
	}
	return nil
}
