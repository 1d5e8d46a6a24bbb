package engine

import "github.com/sluice-sim/sluice/prefix"

// DecodeRun is a stretch of steps that differ in nothing but how far each request has come: every running request decodes
// one token a step, nothing that waits can be admitted, nobody ends, and blocks suffice. Its steps take an affine time,
// so a driver can jump over them; Jump with Resume, and Creep, bring the engine to exactly the state that scheduling and updating
// step by step leads to (spec: fast path 2).
type DecodeRun struct {
	Steps    int32 // how many steps can be completed, and as many scheduled, before anything else can change
	Rows     int32 // requests
	Context  int64 // sum of contexts in the last scheduled step; grows by Rows a step
	Windowed int64 // sum of min(context, window) in the last scheduled step
	Below    int32 // requests whose context is below the window; Windowed grows by this a step
	Lull     bool  // the end of the step after these, and the schedule call after it, concern nobody else either (see Loop.Lull)
}

// runScratch is what a Loop needs for runs.
type runScratch struct {
	crossing   []int32 // by step of a round from the beginning of the run: requests that take a block
	ran        int32   // steps since the beginning of the run
	crept      int32   // steps since the last EndCreep
	sortedAt   int32   // ran when it was made
	sorted     bool    // byPhase is of this run
	byPhase    []filling
	phaseStart []int32
	phaseNext  []int32
	fills      []bool // by phase: some request fills a block
}

// maxRunSteps keeps the sums over a run far from the end of int64.
const maxRunSteps = 1 << 16

// DecodeRun describes the run that the loop is in. It may be asked when Advance has just returned Blocked; Steps is 0
// when the loop is not in a run.
func (l *Loop) DecodeRun() DecodeRun {
	n := len(l.running)
	depth := int8(1)
	if l.cfg.Async {
		depth = 2
	}
	if n == 0 || l.depth != depth || len(l.Preempted) > 0 || !l.steady() || l.headMayFit() {
		return DecodeRun{}
	}
	run := DecodeRun{Steps: min(maxRunSteps, l.stepsThatFit()), Rows: int32(n), Lull: depth == 2 && l.tier == nil}
	if l.tier != nil {
		run.Steps = min(run.Steps, l.steadySteps())
	}
	lead := int32(depth) // a request leaves the schedule this many tokens before its last is processed
	for _, s := range l.running {
		r := &l.requests[s]
		out := r.tokens - r.prompt.Tokens
		run.Steps = min(run.Steps, r.maxTokens-out-lead, l.cfg.MaxModelLen-r.computed-2)
		if r.stopAfter > 0 {
			run.Steps, run.Lull = min(run.Steps, r.stopAfter-out-1), false
		}
		run.Context += int64(r.computed)
		if w := l.cfg.SlidingWindowTokens; w > 0 && r.computed < w {
			run.Steps = min(run.Steps, w-r.computed)
			run.Below++
		}
		run.Windowed += int64(l.windowed(r.computed))
	}
	run.Steps = max(run.Steps, 0)
	return run
}

// Lull tells whether the end of the step in progress and the schedule call after it concern nobody but the engine itself:
// no request gets its first or last token, none can be admitted, and all that run decode. It may be asked when Advance
// has just returned Blocked.
func (l *Loop) Lull() bool {
	if l.depth < 2 || l.tier != nil || l.nextQueue() != nil {
		return false
	}
	st := &l.steps[l.queue[0]]
	for i := range st.Entries {
		x := &st.Entries[i]
		r := &l.requests[x.Slot]
		if n := r.tokens + 1; x.Yields && uint16(r.epoch) == x.epoch && (n == r.prompt.Tokens+1 || n >= r.prompt.Tokens+r.maxTokens || n >= l.cfg.MaxModelLen || r.stopAfter > 0) {
			return false
		}
	}
	for _, s := range l.running {
		if r := &l.requests[s]; r.tokens+int32(r.inFlight)-r.computed > 1 {
			return false
		}
	}
	return true
}

// steady tells whether every step in flight is one decode of each running request, in order.
func (l *Loop) steady() bool {
	for _, q := range l.queue[:l.depth] {
		st := &l.steps[q]
		if len(st.Entries) != len(l.running) {
			return false
		}
		for i := range st.Entries {
			x := &st.Entries[i]
			r := &l.requests[x.Slot]
			if x.Slot != l.running[i] || x.epoch != uint16(r.epoch) || x.Tokens != 1 || x.Past == 0 || !x.Yields || r.stale > 0 || r.dropped > 0 {
				return false
			}
		}
	}
	return true
}

// headMayFit tells whether the head of the waiting queue, refused in the last schedule call, could be admitted during a
// run: free blocks only shrink, but a running request may register content that the head asks for.
func (l *Loop) headMayFit() bool {
	q := l.nextQueue()
	if q == nil {
		return false
	}
	head := &l.requests[q.front()]
	if head.stale > 0 || l.cfg.SkipBlocked { // then any of them could be admitted, not the head alone
		return true
	}
	for _, s := range l.running {
		if onPath(head.path, l.requests[s].prompt.Stream) {
			return true
		}
	}
	return false
}

func onPath(path []prefix.Segment, s prefix.StreamID) bool {
	for i := range path {
		if path[i].Stream == s {
			return true
		}
	}
	return false
}

// stepsThatFit is how many more steps can be scheduled before blocks run out.
func (l *Loop) stepsThatFit() int32 {
	b := l.cfg.BlockTokens
	if len(l.crossing) != int(b) {
		l.crossing = make([]int32, b)
	}
	crossing := l.crossing // requests that need a block for the d-th next step, d from 1, at d-1
	clear(crossing)
	l.ran, l.sorted = 0, false
	for _, s := range l.running {
		crossing[(b-l.requests[s].computed%b)%b]++
	}
	n, free := int32(len(l.running)), l.pool.Free()
	rounds := free / n // each round of b steps takes a block for every request
	if rounds >= maxRunSteps/b {
		return maxRunSteps
	}
	steps, left := rounds*b, free-rounds*n
	for _, c := range crossing {
		if left -= c; left < 0 {
			break
		}
		steps++
	}
	return steps
}

// taken is how many blocks the first m steps of the run take.
func (l *Loop) taken(m int32) int32 {
	b := l.cfg.BlockTokens
	n := m / b * int32(len(l.running))
	for _, c := range l.crossing[:m%b] {
		n += c
	}
	return n
}

// Evicts appends to dst the streams of which the first m steps of the run, from now on, evict content.
func (l *Loop) Evicts(m int32, dst []prefix.StreamID) []prefix.StreamID {
	return l.pool.Oldest(l.taken(l.ran+m)-l.taken(l.ran), dst)
}

// MayEvict is Evicts for those m steps, which may be none, and the schedule call after them; it may name streams of which
// nothing is evicted.
func (l *Loop) MayEvict(m int32, dst []prefix.StreamID) []prefix.StreamID {
	n := int32(len(l.running))
	if m > 0 {
		n += l.taken(l.ran+m) - l.taken(l.ran)
	}
	return l.pool.Oldest(n, dst)
}

// UsageAfter is the usage after Jump(m), m at least 1, without going there.
func (l *Loop) UsageAfter(m int32) float64 {
	free := l.pool.Free() - (l.taken(l.ran+m-1) - l.taken(l.ran))
	return 1 - float64(free)/float64(l.pool.Usable())
}

// Jump goes to the moment when the next m steps of a run, at least one, are completed and the last call to schedule, to
// which Resume goes, is still to come. Between the two nothing else may be asked of the engine but its pool and its usage,
// which is what the engine's gauge says then.
func (l *Loop) Jump(m int32) {
	l.advanceRun(m - 1)
	if l.late != nil {
		for _, s := range l.running {
			r := &l.requests[s]
			r.due = r.ready
		}
	}
}

// Resume goes on from Jump by the m-th of the calls to schedule. The steps in flight are then the m-th next ones.
func (l *Loop) Resume(m int32) {
	l.advanceRun(1)
	l.Engine.steps += int64(m)
	l.ran += m
	if l.tier != nil {
		l.jumpedOver(m)
	}
}

// advanceRun lets every running request grow by m tokens.
func (l *Loop) advanceRun(m int32) {
	if m == 0 {
		return
	}
	b := l.cfg.BlockTokens
	for _, s := range l.running {
		r := &l.requests[s]
		r.tokens += m
		r.computed += m
		if need := blocksFor(r.computed, b); need > r.held {
			l.grow(r, need-r.held)
		}
		l.register(r, r.tokens)
	}
}

// Creep is Jump and Resume by one step that cost only the requests whose block fills: blocks are taken, evicted and registered in
// exactly the order of the steps, so that every event of the pool has its step. EndCreep counts the tokens. Between the
// two nothing else may be asked of the engine but its pool.
func (l *Loop) Creep() (usage float64) {
	usage = l.Usage()
	if !l.sorted {
		l.sortByPhase()
	}
	l.crept++
	phase := l.phase(l.crept)
	for _, x := range l.byPhase[l.phaseStart[phase]:l.phaseStart[phase+1]] {
		r := &l.requests[l.running[x.row]]
		if x.grows {
			l.grow(r, 1)
		} else {
			l.register(r, r.tokens+l.crept)
		}
	}
	return usage
}

// EndCreep counts the tokens of the steps that Creep went.
func (l *Loop) EndCreep() {
	for _, s := range l.running {
		r := &l.requests[s]
		r.tokens += l.crept
		r.computed += l.crept
	}
	l.Engine.steps += int64(l.crept)
	l.ran += l.crept
	if l.tier != nil {
		l.jumpedOver(l.crept)
	}
	l.crept = 0
}

// NextEvent is the number of the next step of the run, counted from 1, that changes what the pool holds (a block fills, or
// one is evicted), at most limit+1 where none up to limit does. A step before it may be named when blocks that hold
// nothing run short.
func (l *Loop) NextEvent(limit int32) int32 {
	if !l.sorted {
		l.sortByPhase()
	}
	evicts := l.pool.Bare() < int32(len(l.running))
	m := int32(1)
	for ; m <= limit; m++ {
		phase := l.phase(m)
		if l.fills[phase] || evicts && l.phaseStart[phase+1] > l.phaseStart[phase] {
			break
		}
		if m == l.cfg.BlockTokens {
			return limit + 1
		}
	}
	return m
}

// phase is where in a round of BlockTokens steps the m-th step from now is.
func (l *Loop) phase(m int32) int32 { return (l.ran - l.sortedAt + m) % l.cfg.BlockTokens }

// filling is a running request that takes or fills a block at one phase of a run.
type filling struct {
	row   int32
	grows bool
}

// sortByPhase lists, for every step of a round of BlockTokens steps, the requests that take a block (before the step's
// token is computed) or fill one, in the order of the running list.
func (l *Loop) sortByPhase() {
	b := l.cfg.BlockTokens
	if len(l.phaseStart) != int(b)+1 {
		l.phaseStart = make([]int32, b+1)
		l.phaseNext = make([]int32, b)
		l.fills = make([]bool, b)
	}
	l.sorted, l.sortedAt = true, l.ran
	clear(l.phaseStart)
	clear(l.fills)
	n := 2 * len(l.running)
	if cap(l.byPhase) < n {
		l.byPhase = make([]filling, n)
	}
	l.byPhase = l.byPhase[:n]
	phases := func(s Slot) (grow, fill int32) {
		r := &l.requests[s]
		return (b - r.computed%b + 1) % b, (b - r.tokens%b) % b
	}
	for _, s := range l.running {
		grow, fill := phases(s)
		l.phaseStart[grow+1]++
		l.phaseStart[fill+1]++
		l.fills[fill] = true
	}
	for i := range b {
		l.phaseStart[i+1] += l.phaseStart[i]
		l.phaseNext[i] = l.phaseStart[i]
	}
	for row, s := range l.running {
		grow, fill := phases(s)
		l.byPhase[l.phaseNext[grow]] = filling{int32(row), true}
		l.phaseNext[grow]++
		l.byPhase[l.phaseNext[fill]] = filling{int32(row), false}
		l.phaseNext[fill]++
	}
}
