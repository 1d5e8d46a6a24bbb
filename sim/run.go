package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// run is the state of one simulation.
type run struct {
	cfg    *Config
	sink   results.Sink
	totals results.Totals
	apiPS  int64

	agenda agenda
	ends   ends
	now    int64 // the moment that is being settled
	event  int64 // the moment of the agenda; a replica that catches up is settled at moments before it

	source        traces.Source
	survey        *traces.Survey
	ceiling       *traces.SessionCeiling
	ceilings      []int32 // scratch
	feed          feed
	tree          *prefix.Tree
	sessions      []sessionState // that are live, and places of others
	spareSessions []int32

	attempts      []attempt
	spareAttempts []int32
	attemptCount  int64
	atGate        int // attempts that wait for a verdict
	probes        []probe
	spareProbes   []int32

	replicas  []replica
	outputs   []*engine.Output // see output
	nested    int              // engines whose output is read by one of them that looks at the next
	dirty     []int32
	history   history
	retention retention
	faults    faultState
	ahead     ahead
	scrapes   scrapes

	core     policies.Machine
	control  core
	needs    policies.Signals
	sendKV   bool
	samples  bool // of the engines' metrics are read
	looks    bool // the policies look at all replicas whenever they decide
	defers   bool // ends of steps that concern nobody else are settled with the next end; see defer.go
	news     news
	facts    []policies.Fact
	commands []policies.Command
	armed    policies.Time    // the wake that is on the agenda
	chunk    [1]latency.Chunk // scratch of the oracle

	turnsDone    int64
	sessionsDone int
	err          error // the first error of the sink
}

// maxRunPS is the longest run: policy time is nanoseconds in an int64, and beyond 100 days something is wrong.
const maxRunPS = int64(100*86400) * 1_000_000_000_000

// Run simulates cfg and hands its rows to sink. It stops with the context's error when ctx is cancelled, and with an
// InputError when cfg cannot be run.
func Run(ctx context.Context, cfg *Config, sink results.Sink) (*results.Totals, error) {
	r, err := begin(ctx, cfg, sink)
	if err != nil {
		return nil, err
	}
	err = r.loop(ctx)
	if err := errors.Join(err, r.feed.close()); err != nil {
		return nil, err
	}
	r.finish()
	if r.err != nil {
		return nil, r.err
	}
	if err := r.checkEnd(); err != nil {
		return nil, err
	}
	totals := r.totals // a pointer to the run's own would keep all of it
	return &totals, nil
}

// begin makes a run that is ready to loop.
func begin(ctx context.Context, cfg *Config, sink results.Sink) (*run, error) {
	survey, err := cfg.check(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, sink: sink, armed: policies.Never, source: cfg.source(), survey: survey, ceiling: traces.NewCeiling(survey)}
	if err := r.openFeed(); err != nil {
		return nil, err
	}
	if r.setUp(); r.err != nil {
		return nil, errors.Join(r.err, r.feed.close())
	}
	return r, nil
}

func (r *run) setUp() {
	c := r.cfg
	about := r.source.About()
	r.tree = about.Tree.Extended()
	r.needs = c.Gate.Signals(c.GateParams) | c.Router.Signals(c.RouterParams)
	r.sendKV = r.needs&policies.NeedsKVEvents != 0
	r.samples = r.needs&policies.NeedsSamples != 0
	r.replicas = make([]replica, c.Replicas)
	r.ends = newEnds(c.Replicas)
	r.history = newHistory(c.Replicas, r.tree.Len())
	r.faults.conditions = make([]condition, c.Replicas)
	for i := range r.replicas {
		p := &r.replicas[i]
		r.boot(int32(i))
		p.series = series{interval: c.IntervalPS, limit: max(c.MaxSamples&^1, 2)}
	}
	r.apiPS = toPS(c.Law.APISeconds() * 1e12)
	r.totals = results.Totals{
		Replicas: int32(c.Replicas), GPUs: int32(c.Replicas * c.GPUsPerReplica), KVTokens: int64(c.KVBlocks) * int64(c.Engine.BlockTokens),
		KVBlocks: int64(c.KVBlocks), BlockTokens: c.Engine.BlockTokens, Sessions: int64(r.survey.Sessions), ITL: results.NewHistogram(),
		BusyPS: make([]int64, c.Replicas),
	}
	for _, d := range about.Report.Dropped {
		r.totals.Dropped = append(r.totals.Dropped, results.Count{Label: d.Reason, N: d.Turns})
		r.totals.Turns += d.Turns
	}
	for _, n := range about.Report.Notes {
		r.totals.Notes = append(r.totals.Notes, results.Count{Label: n.Note, N: n.Count})
	}
	r.totals.Turns += r.survey.Turns
	r.retention.on = c.newRetention(policies.Env{}) != nil
	r.retention.clairvoyant = c.Retention.Needs&policies.NeedsOracle != 0
	r.makeCore()
	r.planFaults()
	r.planScrapes()
	r.planNews()
	r.planDeferral()
	r.arrange()
	r.planAhead()
}

func (r *run) makeCore() {
	c := r.cfg
	r.looks = r.needs&policies.NeedsOracle != 0 || r.retention.on
	var exact policies.Oracle = oracle{r}
	if c.Decisions != nil {
		exact = c.Decisions.Watch(exact)
	}
	r.control = r.newCore(exact)
	r.core = r.control
}

// fact collects a fact for this instant's Step.
func (r *run) fact(f policies.Fact) {
	if len(r.faults.losing) > 0 && r.losesRelease(&f) {
		return
	}
	r.facts = append(r.facts, f)
}

// policyTime is an instant as the policies see it.
func policyTime(ps int64) policies.Time { return policies.Time(ps / nsToPS) }

// loop runs instant after instant until every turn is over and nothing is left in the engines.
func (r *run) loop(ctx context.Context) error {
	for n := 0; r.next() < never && !r.idles() || r.unjam(); n++ {
		if n%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.cfg.Progress != nil {
				r.cfg.Progress(r.turnsDone, r.survey.Turns)
			}
		}
		r.now = r.next()
		r.event = r.now
		if r.now > maxRunPS {
			return fmt.Errorf("the run passed 100 days of simulated time with %s: the load is far beyond what the cluster serves, arrivals are spread too thin, or pins that do not end keep usage above what the gate waits for", r.standing())
		}
		r.instant()
		if r.err != nil {
			return r.err
		}
		if r.turnsDone == r.survey.Turns && len(r.spareAttempts) == len(r.attempts) && r.quiet() {
			return nil
		}
		if r.cfg.Check {
			if err := r.checkInstant(); err != nil {
				return err
			}
		}
	}
	return r.stuck()
}

// next is the next moment at which something happens; never if nothing will.
func (r *run) next() int64 {
	at := r.ends.next().at
	if len(r.agenda.heap) > 0 {
		at = min(at, r.agenda.heap[0].at)
	}
	return at
}

// idles tells whether nothing will happen but that the policies wake and engines are scraped, with nobody at the gate.
func (r *run) idles() bool {
	if r.atGate > 0 || r.ends.next().at < never {
		return false
	}
	for i := range r.agenda.heap {
		switch r.agenda.heap[i].kind {
		case wakeDue, scrapeDue, scrapeReaches:
		default:
			return false
		}
	}
	return true
}

// quiet tells whether no engine has a step in flight or waits for a transfer.
func (r *run) quiet() bool {
	for i := range r.replicas {
		if p := &r.replicas[i]; p.blocked && p.tier.offload != nil {
			return false
		}
	}
	return true
}

// errForever is that of a run in which an engine goes round for nothing.
var errForever = errors.New("it goes round for ever, as vLLM does: nothing that it has can be computed, and a request that is to load from the CPU tier is ahead of one that has loaded and does not fit beside it; give clients a timeout that cancels their requests, or more KV")

// stuck explains an agenda that ran empty before the turns were over and the engines were empty.
func (r *run) stuck() error {
	if r.turnsDone == r.survey.Turns && len(r.spareAttempts) == len(r.attempts) {
		return nil
	}
	for i := range r.replicas {
		if r.replicas[i].tier.vain > maxSpins {
			return fmt.Errorf("at %.3f s only %s, and the engine of replica %d has %d requests: %w", float64(r.now)/1e12, r.standing(), i, r.replicas[i].inFlight, errForever)
		}
	}
	return fmt.Errorf("nothing will happen any more at %.3f s, but only %s", float64(r.now)/1e12, r.standing())
}

// standing says in words what is left.
func (r *run) standing() string {
	atGateNow, inEngines := 0, 0
	for i := range r.attempts {
		switch r.attempts[i].stage {
		case atGate:
			atGateNow++
		case vacant:
		default:
			inEngines++
		}
	}
	transfers := 0
	for i := range r.replicas {
		transfers += len(r.replicas[i].tier.transfers)
	}
	return fmt.Sprintf("%d of %d turns over (%d attempts at the gate, %d in engines, %d transfers and %d pins; %d leases were lost by a fault)",
		r.turnsDone, r.survey.Turns, atGateNow, inEngines, transfers, len(r.retention.pins)-len(r.retention.spare), r.totals.LeasesLost)
}

// instant settles one moment: events and decisions until the moment is quiet, then the engines; an engine's step may
// take no time, so all of that is repeated until nothing is left.
func (r *run) instant() {
	for {
		for r.next() == r.now {
			r.totals.Events++
			if e := r.ends.next(); e.at == r.now { // ends of steps come first
				r.ends.set(e.replica, never)
				r.prefetchBegin()
				r.stepEnded(e.replica)
				r.wake(e.replica)
			} else {
				e := r.agenda.pop()
				r.prefetchBegin()
				r.handle(e)
				r.prefetchOwn()
			}
			r.prefetchNext()
		}
		if len(r.facts) > 0 || r.core.NextWake() <= policyTime(r.now) {
			if r.look() {
				r.readScrapes()
				r.decide()
			}
			continue
		}
		if len(r.dirty) == 0 {
			break
		}
		if len(r.dirty) > 1 {
			slices.Sort(r.dirty)
		}
		r.prefetchNext()
		due := len(r.dirty)
		for _, i := range r.dirty[:due] {
			r.pump(i)
		}
		r.dirty = r.dirty[:copy(r.dirty, r.dirty[due:])]
	}
	if r.ahead.on {
		r.foresee()
		r.prefetchNext()
	}
	r.awaitScrape()
	if w := r.core.NextWake(); w < r.armed {
		r.armed = w
		r.agenda.push(int64(w)*nsToPS, wakeDue, 0, 0)
	}
}

func (r *run) handle(e event) {
	switch e.kind {
	case clientSees:
		if x := &r.attempts[e.a]; x.generation == e.b {
			r.clientSaw(e.a, r.now)
		}
	case sessionStarts:
		r.start(e.a, r.now)
	case turnArrives:
		if r.isLive(e.c, e.a) {
			r.arrive(turnRef{e.c, int32(e.b)}, r.now)
		}
	case clientGivesUp:
		if x := &r.attempts[e.a]; x.generation != e.b {
			break
		} else if x.stage == inEngine && !r.upTo(x.row.Replica) { // a step that ends at this very moment ends first
			r.agenda.push(r.now, clientGivesUp, e.a, e.b)
			break
		}
		r.giveUp(e.a, r.now)
	case probeReaches:
		r.probeReached(e.a)
	case probeExpires:
		r.probeExpired(e.a, e.b)
	case faultBegins:
		r.faultBegins(e.a)
	case faultDetected:
		r.faultDetected(e.a)
	case faultEnds:
		r.faultEnds(e.a)
	case pinExpires:
		r.pinExpired(e.a, e.b)
	case kvEventsReach:
		if r.replicas[e.a].kvEpoch == e.b {
			r.deliverKV(e.a)
		}
	case scrapeReaches:
		r.scrapeReached(e.a, int32(e.b))
	case scrapeDue:
		if r.scrapes.lazy {
			r.scrapesArrive()
		} else {
			r.scrape()
		}
	case wakeDue:
		r.armed = policies.Never
		r.fact(policies.Fact{Kind: policies.Woke, Replica: policies.NoReplica})
	}
}

// decide has the core settle the facts of this moment, and does what it says.
func (r *run) decide() {
	r.totals.PolicySteps++
	r.commands = r.core.Step(policyTime(r.now), r.facts, r.commands[:0])
	if r.cfg.Decisions != nil {
		if err := r.cfg.Decisions.Step(r.tree, policyTime(r.now), r.facts, r.commands); err != nil && r.err == nil {
			r.err = err
		}
	}
	r.facts = r.facts[:0]
	for _, c := range r.commands {
		r.obey(c)
	}
	r.retention.content = r.retention.content[:0]
}

func (r *run) emitTurn(t *results.Turn) {
	if err := r.sink.Turn(t); err != nil && r.err == nil {
		r.err = err
	}
}

func (r *run) emitSession(s *results.Session) {
	if err := r.sink.Session(s); err != nil && r.err == nil {
		r.err = err
	}
}

// finish closes the series and takes the last counters.
func (r *run) finish() {
	end := r.now
	r.unpinAll()
	for i := range r.replicas {
		p := &r.replicas[i]
		r.catchUp(int32(i), end)
		p.series.finish(p, end)
		r.totals.BusyPS[i] = p.series.total
	}
	if c := r.cfg.CPUTier; c != nil {
		b := int64(r.cfg.Engine.BlockTokens)
		r.totals.CPUTier = &results.TierTotals{CapacityTokens: int64(c.Chunks) * int64(c.BlocksPerChunk) * b}
		for i := range r.replicas {
			r.replicas[i].tier.add(r.totals.CPUTier, b, int64(c.BlocksPerChunk))
		}
	}
	r.emitSamples(end)
	a := r.control.Audit()
	r.totals.LeasesAdmitted, r.totals.LeasesFinished, r.totals.LeasesFailed = a.Admitted, a.Finished, a.Failed
	r.totals.LeasesCancelled, r.totals.LeasesLive, r.totals.LeasesAbandoned = a.Cancelled, a.Live, a.Abandoned
	r.totals.AttemptsPreempted = a.Superseded
	r.noteLeak()
	if r.cfg.Progress != nil {
		r.cfg.Progress(r.turnsDone, r.survey.Turns)
	}
}

// checkEnd holds the run to its accounts: no lease lives, every block is free, what came in went out.
func (r *run) checkEnd() error {
	var errs []error
	if err := r.checkLeases(); err != nil {
		errs = append(errs, err)
	}
	if t := &r.totals; t.LeasesAdmitted != t.LeasesFinished+t.LeasesFailed+t.LeasesCancelled+t.LeasesLive {
		errs = append(errs, fmt.Errorf("leases: admitted %d, but finished %d + failed %d + cancelled %d + live %d", t.LeasesAdmitted, t.LeasesFinished, t.LeasesFailed, t.LeasesCancelled, t.LeasesLive))
	}
	if r.atGate != 0 {
		errs = append(errs, fmt.Errorf("%d attempts wait at the gate at the end", r.atGate))
	}
	for i := range r.replicas {
		p := &r.replicas[i]
		if pool := p.loop.Pool(); pool.Free() != pool.Usable() {
			errs = append(errs, fmt.Errorf("replica %d: %d of %d blocks are free at the end", i, pool.Free(), pool.Usable()))
		}
		if p.inFlight != 0 || p.loop.Running()+p.loop.Waiting()+p.loop.Skipped() != 0 {
			errs = append(errs, fmt.Errorf("replica %d: %d attempts in flight at the end", i, p.inFlight))
		}
	}
	if r.sessionsDone != r.survey.Sessions {
		errs = append(errs, fmt.Errorf("%d of %d sessions ended", r.sessionsDone, r.survey.Sessions))
	}
	return errors.Join(errs...)
}

// checkInstant holds the cluster to its invariants between two moments.
func (r *run) checkInstant() error {
	inFlight := make([]int32, len(r.replicas))
	for i := range r.attempts {
		switch x := &r.attempts[i]; x.stage {
		case sent, inEngine:
			inFlight[x.row.Replica]++
		case vacant, atGate, answered:
		}
	}
	for i := range r.replicas {
		p := &r.replicas[i]
		inside := int32(p.loop.Running()+p.loop.Waiting()+p.loop.Skipped()) + int32(len(p.inbox))
		if p.inFlight != inFlight[i] || inside != inFlight[i] {
			return fmt.Errorf("replica %d at %.6f s: %d attempts in flight by count, %d by list, %d in the engine", i, float64(r.now)/1e12, p.inFlight, inFlight[i], inside)
		}
		pool := p.loop.Pool()
		if pool.Free() < 0 || pool.Free() > pool.Usable() || (p.tier.offload == nil && len(p.pins) == 0 && p.loop.Running() == 0 && pool.Free() != pool.Usable()) {
			return fmt.Errorf("replica %d at %.6f s: %d of %d blocks free with %d requests running", i, float64(r.now)/1e12, pool.Free(), pool.Usable(), p.loop.Running())
		}
		if u := p.loop.Usage(); math.IsNaN(u) || u < 0 || u > 1 {
			return fmt.Errorf("replica %d: usage %v", i, u)
		}
	}
	return nil
}
