package sim

import (
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/results"
)

// decodeRun is a stretch of decode steps that a replica is jumping over. The step that ends at the horizon, and the event
// for it, are ordinary; steps before it are accounted for when somebody looks, up to the last one that has ended.
type decodeRun struct {
	active   bool
	left     int32 // steps that can still be jumped over
	rows     int64
	context  int64 // of the last scheduled step
	windowed int64
	below    int64
	a, b, c  int64 // a step takes a + b*context + c*windowed
}

// begin looks whether the replica, which has just blocked, is in a run, and plans its next ordinary end of a step.
func (r *run) begin(i int32) {
	p := &r.replicas[i]
	p.runEpoch++
	p.decoding.active, p.deferred = false, false
	end := p.flight[0].end
	if !r.cfg.Walk && !r.roomIsMade(p) && r.fresh(p) {
		if d := p.loop.DecodeRun(); d.Steps > 1 {
			p.decoding = decodeRun{active: true, left: d.Steps, rows: int64(d.Rows), context: d.Context, windowed: d.Windowed, below: int64(d.Below)}
			p.decoding.a, p.decoding.b, p.decoding.c = r.decodeCoefficients(i, d.Rows)
			if r.cfg.CPUTier != nil {
				if at, ok := p.tier.next(); ok { // the step that ends then tells the engine of the transfer
					p.decoding.left = p.endedBefore(at)
				}
			}
			end = p.endOf(p.decoding.left)
			if p.deferred = r.defers && d.Lull; p.deferred {
				end = p.endOf(p.decoding.left + 1)
			}
		}
	}
	if !p.decoding.active && r.defers && p.loop.Lull() {
		p.deferred = true
		end = p.flight[1].end
	}
	if r.sendKV && !r.looks && p.behind() {
		r.expectNews(i)
	}
	r.ends.set(i, end)
}

// fresh tells whether every running request got its last token at the start of the step in progress, so that the gap to
// its next one is that step.
func (r *run) fresh(p *replica) bool {
	for _, s := range p.loop.RunningSlots() {
		if p.slots[s].lastToken != p.flight[0].start {
			return false
		}
	}
	return true
}

// lastScheduledTo is when the d-th step after the last scheduled one would end.
func (p *replica) lastScheduledTo(d int64) int64 {
	x := &p.decoding
	triangle := d * (d + 1) / 2
	return p.freeAt + d*x.a + x.b*(d*x.context+x.rows*triangle) + x.c*(d*x.windowed+x.below*triangle)
}

// endOf is when the j-th step from now ends; the one in progress is number 0.
func (p *replica) endOf(j int32) int64 {
	if j < int32(p.depth) {
		return p.flight[j].end
	}
	return p.lastScheduledTo(int64(j) - int64(p.depth) + 1)
}

// endedBefore is how many steps of the run end before t.
func (p *replica) endedBefore(t int64) int32 {
	lo, hi := int32(0), p.decoding.left // the answer is in [lo, hi]
	if hi == 0 || p.endOf(hi-1) < t {
		return hi
	}
	if p.endOf(0) >= t {
		return 0
	}
	// Ends are nearly evenly spaced, so a guess along the line between two of them, which need not be exact, is seldom off by
	// more than one.
	lo, hi = 1, hi-1
	for before, after := p.endOf(0), p.endOf(hi); lo < hi; {
		mid := min(lo+int32(float64(t-before)/float64(after-before)*float64(hi-lo+1)), hi-1)
		if end := p.endOf(mid); end < t {
			lo, before = mid+1, end
		} else {
			hi, after = mid, end
		}
	}
	return lo
}

// catchUp brings a replica up to t: it accounts for the steps of its run that ended before t, and closes the intervals of
// its series that end at or before t.
func (r *run) catchUp(i int32, t int64) {
	if p := &r.replicas[i]; p.deferred && p.firstEnd() < t {
		r.settle(i)
	}
	if r.scrapes.lazy {
		r.keepScrapes(i, t)
	}
	r.advance(i, t)
}

// advance is catchUp without regard to scrapes.
func (r *run) advance(i int32, t int64) {
	p := &r.replicas[i]
	if !p.decoding.active {
		p.series.closeUntil(p, t)
		return
	}
	for edge := p.series.edge(); edge <= t; edge = p.series.edge() {
		r.jump(i, p.endedBefore(edge))
		p.series.close(p, edge, 1)
	}
	r.jump(i, p.endedBefore(t))
}

// jump completes m steps of a run.
func (r *run) jump(i, m int32) {
	if m == 0 {
		return
	}
	p := &r.replicas[i]
	x := &p.decoding
	last, freeAt := p.endOf(m-1), p.lastScheduledTo(int64(m))
	r.recordGaps(p, m)
	// Steps of a run take longer one after the other, but those in flight may be from when the replica was slow.
	gap := p.flight[0].end - p.flight[0].start
	if m > 1 {
		gap = max(gap, p.endOf(1)-p.endOf(0), last-p.endOf(m-2))
	}
	for _, s := range p.loop.RunningSlots() {
		y := &p.slots[s]
		y.output += m
		y.longest = max(y.longest, gap)
		y.lastToken = last
	}
	p.series.cur.OutputTokens += int64(m) * x.rows
	p.series.addBusy(p.flight[0].start, last)
	r.totals.Steps += int64(m)
	r.totals.DecodeBusyPS += freeAt - p.freeAt
	switch {
	case r.news.each:
		r.creep(i, m)
	case r.sendKV: // what an earlier step has changed is told with its last step
		r.publishKV(i, p.endOf(0))
		p.loop.Jump(m)
		if r.samples {
			p.gauges.Usage = p.loop.Usage()
		}
		r.noteContent(i)
		r.publishKV(i, last)
		p.loop.Resume(m)
		r.noteContent(i)
	default:
		p.loop.Jump(m)
		if r.samples {
			p.gauges.Usage = p.loop.Usage()
		}
		p.loop.Resume(m)
		r.noteContent(i)
	}
	if r.samples {
		p.gauges.Running, p.gauges.Waiting = int32(p.loop.Running()), int32(p.loop.Waiting()+p.loop.Skipped())
	}
	next := [2]span{{last, p.endOf(m), true}}
	if p.depth == 2 {
		next[1] = span{next[0].end, p.endOf(m + 1), true}
	}
	p.flight, p.freeAt = next, freeAt
	x.left -= m
	x.context += int64(m) * x.rows
	x.windowed += int64(m) * x.below
}

// creep goes m steps of a run one by one, so that each event of the pool is published at the end of its step.
func (r *run) creep(i, m int32) {
	p := &r.replicas[i]
	for j := range m {
		r.publishKV(i, p.endOf(j))
		p.gauges.Usage = p.loop.Creep()
		r.noteContent(i)
	}
	p.loop.EndCreep()
}

// recordGaps counts the token gaps of the next m steps. Steps take longer one after the other, so equal gaps, to the
// resolution of the histogram, are neighbours.
func (r *run) recordGaps(p *replica, m int32) {
	start := p.flight[0].start
	for j := int32(0); j < m; {
		gap := p.endOf(j) - start
		k := j + 1
		if j >= int32(p.depth) {
			k = j + p.sameGap(gap, int64(j)-int64(p.depth)+1, int64(m-j))
		}
		r.totals.ITL.Record(gap, int64(k-j)*p.decoding.rows)
		start = p.endOf(k - 1)
		j = k
	}
}

// sameGap is how many steps in a row, at most limit, from the d-th after the last scheduled one on, count as gap in the
// histogram.
func (p *replica) sameGap(gap, d, limit int64) int32 {
	x := &p.decoding
	growth := x.b*x.rows + x.c*x.below // of the gap, from one step to the next
	if growth <= 0 {
		return int32(limit)
	}
	room := results.RoomPS(gap)
	return int32(min(limit, room/growth+1))
}

// interrupt ends a run at the step in progress, because something will have to be dealt with at its end.
func (r *run) interrupt(i int32) {
	p := &r.replicas[i]
	if !p.behind() {
		return
	}
	if r.catchUp(i, r.now); !p.behind() { // then the end of the step in progress is on the agenda
		return
	}
	p.decoding.active, p.deferred = false, false
	r.ends.set(i, p.flight[0].end)
}

// curtail is interrupt without catching up: the step in progress becomes the last of the run.
func (r *run) curtail(i int32) {
	p := &r.replicas[i]
	switch {
	case !p.behind():
		return
	case p.deferred && p.firstEnd() < r.now: // the end of the step in progress is on the agenda
		return
	case p.decoding.active:
		if m := p.endedBefore(r.now); m < p.decoding.left || p.deferred {
			p.decoding.left, p.deferred = m, false
			r.ends.set(i, p.endOf(m))
		}
	default:
		p.deferred = false
		r.ends.set(i, p.flight[0].end)
	}
}

// lookAll brings every replica up to now because somebody is about to look at them. Where a step ends at this very
// moment its end has to come first: lookAll then reports false, and is called again when the moment's events have been
// handled.
func (r *run) lookAll() bool {
	quiet := true
	for i := range r.replicas {
		quiet = r.hear(int32(i)) && quiet
	}
	return quiet
}

// upTo is lookAll for one replica.
func (r *run) upTo(i int32) bool {
	p := &r.replicas[i]
	if !p.behind() {
		return true
	}
	if r.catchUp(i, r.now); !p.behind() || p.flight[0].end != r.now {
		return true
	}
	r.interrupt(i)
	return false
}

// lookFrom brings replica j up to now because replica i, which is being pumped, looks at it. Replicas are pumped in order, so
// where j comes first and a step of it ends at this moment, that end and the next schedule are part of what i sees.
func (r *run) lookFrom(j, i int32) {
	p := &r.replicas[j]
	if !p.behind() {
		return
	}
	r.nested++ // what the engine of i has put out is still read
	p.loop.Output = r.output(r.nested)
	r.catchUp(j, r.now)
	if p.behind() && j < i && p.flight[0].end == r.now {
		r.ends.set(j, never)
		r.stepEnded(j)
		r.pump(j)
	}
	r.nested--
	p.loop.Output = r.output(0)
}

// output is where engines put out what a call did: all in one place, but one that is driven while another's is read.
func (r *run) output(depth int) *engine.Output {
	if depth == len(r.outputs) {
		r.outputs = append(r.outputs, new(engine.Output))
	}
	return r.outputs[depth]
}
