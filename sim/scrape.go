package sim

import (
	"slices"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// scraped is a scrape of one replica on its way to the policies.
type scraped struct {
	sample   policies.Sample
	progress []progressed
}

// progressed is how many output tokens an attempt had.
type progressed struct {
	attempt policies.AttemptID
	tokens  int32
}

// scrapes is the scrapes that were taken and have not arrived.
type scrapes struct {
	taken   uint64 // rounds so far
	slots   []scraped
	free    []int32
	current []int32 // by replica: slot in this round, -1 for none
	idle    int     // rounds in a row in which nothing else was on the agenda

	lazy bool  // scrapes are taken when the policies next decide
	read int64 // when the last one that they saw was due
	due  []policies.Fact
}

// maxIdleScrapes is how many scrapes are taken in a row when nothing else will ever happen; a run that then still has
// turns to do is stuck.
const maxIdleScrapes = 10_000

// planScrapes begins to scrape if the policies need it. Where nobody acts on a sample but when a turn has to go somewhere,
// and every sample is there when it is taken, a decision needs only the last one before it, so no more are taken. A gate
// that needs samples may act on each of them.
func (r *run) planScrapes() {
	if r.needs&(policies.NeedsSamples|policies.NeedsProgress) == 0 {
		return
	}
	c := r.cfg
	g := &c.Signals
	r.scrapes.lazy = r.needs&policies.NeedsProgress == 0 && c.Gate.Signals(c.GateParams)&policies.NeedsSamples == 0 &&
		g.ScrapeDelayPS == 0 && g.ScrapeJitterPS == 0 && g.ScrapeLoss == 0 && len(c.Faults) == 0
	if r.scrapes.read = -1; !r.scrapes.lazy {
		r.agenda.push(0, scrapeDue, 0, 0)
	}
}

// readScrapes hands the policies the scrapes that were due last, if they have not seen them. They are told before what
// else is true now, unless that is the same moment. It reports false, and is called again, where a step that ends at
// this moment has to end first.
func (r *run) readScrapes() bool {
	s := &r.scrapes
	if !s.lazy {
		return true
	}
	at := r.now / r.cfg.Signals.ScrapePS * r.cfg.Signals.ScrapePS
	if at == s.read {
		return true
	}
	if at == r.now && !r.lookAll() {
		return false
	}
	s.read = at
	s.due = s.due[:0]
	for i := range r.replicas {
		x := r.sampleOf(int32(i), at)
		if at < r.now {
			r.reachScrape(int32(i), at)
			x = r.replicas[i].scraped
		}
		x.At = policyTime(at)
		s.due = append(s.due, policies.Fact{Kind: policies.MetricsSampled, Replica: policies.ReplicaID(i), Sample: x})
	}
	if at == r.now {
		r.facts = append(r.facts, s.due...)
	} else {
		r.facts = slices.Insert(r.facts, 0, s.due...)
	}
	return true
}

// reachScrape keeps what the scrape of replica i at a moment finds, before anything later happens to it.
func (r *run) reachScrape(i int32, at int64) {
	p := &r.replicas[i]
	if at < p.nextScrape {
		return
	}
	p.scraped = r.sampleOf(i, at)
	p.nextScrape = at + 1
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
			s.slots[slot].progress = r.progress(int32(i), s.slots[slot].progress)
		}
	}
	for i, slot := range s.current {
		if slot < 0 {
			continue
		}
		if lag := r.scrapeLag(i); lag > 0 {
			r.agenda.push(r.now+lag, scrapeReaches, int32(i), uint32(slot))
		} else {
			r.scrapeReached(int32(i), slot)
		}
	}
	s.taken++
	if s.idle++; len(r.agenda.heap) > len(s.slots)-len(s.free) {
		s.idle = 0
	}
	if s.idle < maxIdleScrapes {
		r.agenda.push(r.now+r.cfg.Signals.ScrapePS, scrapeDue, 0, 0)
	}
}

// take samples replica i into a slot; -1 when there is nothing to scrape or the sample is lost.
func (r *run) take(i int32) int32 {
	c := &r.faults.conditions[i]
	loss := r.cfg.Signals.ScrapeLoss
	if c.down || c.absent || c.stalled || loss > 0 && exact.Uniform(exact.Hash3(r.cfg.Seed, purposeScrapeLoss, uint64(i), r.scrapes.taken)) < loss {
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

// progress appends how far the decodes of replica i have come.
func (r *run) progress(i int32, dst []progressed) []progressed {
	p := &r.replicas[i]
	m := p.ranBy(r.now)
	for _, s := range p.loop.RunningSlots() {
		if x := &p.slots[s]; x.output+m > 0 {
			dst = append(dst, progressed{r.attempts[x.attempt].id, x.output + m})
		}
	}
	return dst
}

func (r *run) scrapeLag(i int) int64 {
	g := &r.cfg.Signals
	if g.ScrapeJitterPS == 0 {
		return g.ScrapeDelayPS
	}
	u := exact.Uniform(exact.Hash3(r.cfg.Seed, purposeScrapeJitter, uint64(i), r.scrapes.taken))
	return g.ScrapeDelayPS + toPS(u*float64(g.ScrapeJitterPS))
}

// scrapeReached hands a scrape of replica i to the policies.
func (r *run) scrapeReached(i, slot int32) {
	s := &r.scrapes
	x := &s.slots[slot]
	if r.needs&policies.NeedsSamples != 0 {
		r.fact(policies.Fact{Kind: policies.MetricsSampled, Replica: policies.ReplicaID(i), Sample: x.sample})
	}
	for _, g := range x.progress {
		r.fact(policies.Fact{Kind: policies.TokensProgressed, Attempt: g.attempt, Replica: policies.ReplicaID(i), OutputTokens: g.tokens})
	}
	s.free = append(s.free, slot)
}
