package sim

import (
	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// scraped is a scrape of one replica on its way to the policies.
type scraped struct {
	round    int64
	sample   policies.Sample
	progress []progressed
}

// progressed is how many output tokens an attempt had.
type progressed struct {
	attempt policies.AttemptID
	tokens  int32
}

// scrapes is the scrapes that were taken and have not arrived. Round k is due at k periods.
type scrapes struct {
	round   int64 // the next one
	slots   []scraped
	free    []int32
	current []int32 // by replica: slot in this round, -1 for none
	idle    int     // rounds in a row in which nothing else was on the agenda

	lazy    bool            // scrapes are taken when the policies next decide; see lazyScrapes
	awaited bool            // if lazy: the next arrival is on the agenda
	now     scraped         // scratch
	due     []policies.Fact // scratch
}

// maxIdleScrapes is how many scrapes are taken in a row when nothing else will ever happen; a run that then still has
// turns to do is stuck.
const maxIdleScrapes = 10_000

// planScrapes begins to scrape if the policies need it.
func (r *run) planScrapes() {
	if r.needs&(policies.NeedsSamples|policies.NeedsProgress) == 0 {
		return
	}
	r.scrapes.lazy = len(r.cfg.Faults) == 0 && r.cfg.Decisions == nil && (r.needs&policies.NeedsEverySample == 0 || r.cfg.Signals.ScrapeJitterPS == 0)
	if !r.scrapes.lazy {
		r.agenda.push(0, scrapeDue, 0, 0)
	}
}

// scrape samples the metrics of every replica, as its last finished step left them, and the progress of what runs. Each
// sample arrives after the delay and its own jitter; some are lost.
func (r *run) scrape() {
	s := &r.scrapes
	s.current = s.current[:0]
	for i := range r.replicas {
		slot := r.take(int32(i))
		s.current = append(s.current, slot)
		if slot >= 0 && r.needs&policies.NeedsProgress != 0 {
			s.slots[slot].progress = r.progress(int32(i), r.now, s.slots[slot].progress)
		}
	}
	for i, slot := range s.current {
		if slot < 0 {
			continue
		}
		if lag := r.scrapeLag(int32(i), s.round); lag > 0 {
			r.agenda.push(r.now+lag, scrapeReaches, int32(i), uint32(slot))
		} else {
			r.scrapeReached(int32(i), slot)
		}
	}
	s.round++
	if r.scrapesGoOn(len(s.slots) - len(s.free)) {
		r.agenda.push(r.now+r.cfg.Signals.ScrapePS, scrapeDue, 0, 0)
	}
}

// scrapesGoOn counts a round and tells whether there are to be more: not if for long nothing else was on the agenda, of whose events so
// many are scrapes on their way.
func (r *run) scrapesGoOn(onTheirWay int) bool {
	s := &r.scrapes
	if s.idle++; len(r.agenda.heap) > onTheirWay || r.ends.next().at < never {
		s.idle = 0
	}
	return s.idle < maxIdleScrapes
}

// take samples replica i into a slot; -1 when there is nothing to scrape or the sample is lost.
func (r *run) take(i int32) int32 {
	c := &r.faults.conditions[i]
	if c.down || c.absent || c.stalled || r.scrapeLost(i, r.scrapes.round) {
		return -1
	}
	s := &r.scrapes
	if len(s.free) == 0 {
		s.free = append(s.free, int32(len(s.slots)))
		s.slots = append(s.slots, scraped{})
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	x := &s.slots[slot]
	x.progress = x.progress[:0]
	x.sample = r.sampleOf(i, r.now)
	if c.stale {
		x.sample = c.frozen
		x.sample.At = policyTime(r.now)
	}
	return slot
}

// sampleOf is the metrics of replica i at a moment, as its last step that had finished left them; nothing later has
// happened to it. A run of decodes is looked into, not cut; a step that ends at the moment counts.
func (r *run) sampleOf(i int32, at int64) policies.Sample {
	p := &r.replicas[i]
	s := p.gauges
	s.At = policyTime(at)
	if m := p.ranBy(at); m > 0 {
		s.Usage = p.loop.UsageAfter(m)
		s.Running, s.Waiting = int32(p.loop.Running()), int32(p.loop.Waiting()+p.loop.Skipped())
	}
	if s.Has == 0 { // no step has finished: vLLM exports zeros from the start
		s.Has = policies.HasRunning | policies.HasWaiting | policies.HasUsage | policies.HasPrefixCounters
	}
	return s
}

// ranBy is how many steps of the run of decodes have ended by t and are not accounted for.
func (p *replica) ranBy(t int64) int32 {
	if !p.decoding.active {
		return 0
	}
	return p.endedBefore(t + 1)
}

// progress appends how far the decodes of replica i had come at a moment; nothing later has happened to it.
func (r *run) progress(i int32, at int64, dst []progressed) []progressed {
	p := &r.replicas[i]
	m := p.ranBy(at)
	for _, s := range p.loop.RunningSlots() {
		if x := &p.slots[s]; x.output+m > 0 {
			dst = append(dst, progressed{r.attempts[x.attempt].id, x.output + m})
		}
	}
	return dst
}

// scrapeLag is how long the scrape of replica i in a round is on its way.
func (r *run) scrapeLag(i int32, round int64) int64 {
	g := &r.cfg.Signals
	if g.ScrapeJitterPS == 0 {
		return g.ScrapeDelayPS
	}
	u := exact.Uniform(exact.Hash3(r.cfg.Seed, purposeScrapeJitter, uint64(i), uint64(round)))
	return g.ScrapeDelayPS + toPS(u*float64(g.ScrapeJitterPS))
}

func (r *run) scrapeLost(i int32, round int64) bool {
	loss := r.cfg.Signals.ScrapeLoss
	return loss > 0 && exact.Uniform(exact.Hash3(r.cfg.Seed, purposeScrapeLoss, uint64(i), uint64(round))) < loss
}

// scrapeReached hands a scrape of replica i to the policies.
func (r *run) scrapeReached(i, slot int32) {
	s := &r.scrapes
	s.due = r.scrapeFacts(i, &s.slots[slot], s.due[:0])
	for k := range s.due {
		r.fact(s.due[k])
	}
	s.free = append(s.free, slot)
}

// scrapeFacts appends what a scrape tells.
func (r *run) scrapeFacts(i int32, x *scraped, dst []policies.Fact) []policies.Fact {
	if r.needs&policies.NeedsSamples != 0 {
		dst = append(dst, policies.Fact{Kind: policies.MetricsSampled, Replica: policies.ReplicaID(i), Sample: x.sample})
	}
	for _, g := range x.progress {
		dst = append(dst, policies.Fact{Kind: policies.TokensProgressed, Attempt: g.attempt, Replica: policies.ReplicaID(i), OutputTokens: g.tokens})
	}
	return dst
}
