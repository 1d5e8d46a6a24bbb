package sim

import (
	"slices"

	"github.com/sluice-sim/sluice/policies"
)

// Where the policies look at samples only when they decide, a decision needs of each replica just the last scrape that
// has arrived, so no other is taken. It is taken when the policies decide, or, if something happens to the replica before
// that, just before that happens. Policies that let a turn go because a sample comes decide when one does, but only while a
// turn waits.

// lazyScrapes is what one replica has of scrapes that are taken so.
type lazyScrapes struct {
	over  int64     // rounds before this one were due before the last thing happened to the replica
	until int64     // when round over is due
	told  int64     // rounds before this one were told, or will not be
	kept  []scraped // of rounds before over, those that may still be told, in order
}

// arrived is the last round before limit, and not before from, of which the scrape of replica i arrives by t; ok is
// false if there is none.
func (r *run) arrived(i int32, t, from, limit int64) (round int64, ok bool) {
	g := &r.cfg.Signals
	if t < g.ScrapeDelayPS {
		return 0, false
	}
	for k := min(limit-1, (t-g.ScrapeDelayPS)/g.ScrapePS); k >= from; k-- {
		if !r.scrapeLost(i, k) && k*g.ScrapePS+r.scrapeLag(i, k) <= t {
			return k, true
		}
	}
	return 0, false
}

// settled is the first round of which a scrape may still come after t.
func (r *run) settled(t int64) int64 {
	g := &r.cfg.Signals
	if t -= g.ScrapeDelayPS + g.ScrapeJitterPS; t < 0 {
		return 0
	}
	return t/g.ScrapePS + 1
}

// keepScrapes keeps the scrapes of replica i that are due before t and may be told at t or later, before something
// happens to it at t.
func (r *run) keepScrapes(i int32, t int64) {
	x := &r.replicas[i].lazy
	if t <= x.until {
		return
	}
	period := r.cfg.Signals.ScrapePS
	end := (t + period - 1) / period
	first := x.over
	if last, ok := r.arrived(i, t, x.told, end); ok {
		x.drop(last)
		first = max(first, last)
	} else {
		x.told = max(x.told, min(end, r.settled(t)))
		first = max(first, x.told)
	}
	for k := first; k < end; k++ {
		if !r.scrapeLost(i, k) {
			if len(x.kept) < cap(x.kept) {
				x.kept = x.kept[:len(x.kept)+1] // with what its last use has allocated
			} else {
				x.kept = append(x.kept, scraped{})
			}
			r.scrapeInto(&x.kept[len(x.kept)-1], i, k)
		}
	}
	x.over, x.until = end, end*period
}

// drop forgets the scrapes of rounds before one.
func (x *lazyScrapes) drop(round int64) {
	n := 0
	for n < len(x.kept) && x.kept[n].round < round {
		n++
	}
	for k := n; k < len(x.kept) && n > 0; k++ {
		x.kept[k-n], x.kept[k] = x.kept[k], x.kept[k-n]
	}
	x.kept = x.kept[:len(x.kept)-n]
}

// scrapeInto takes the scrape of a round of replica i, to which nothing has happened since.
func (r *run) scrapeInto(s *scraped, i int32, round int64) {
	at := round * r.cfg.Signals.ScrapePS
	s.round, s.sample, s.progress = round, r.sampleOf(i, at), s.progress[:0]
	if r.needs&policies.NeedsProgress != 0 {
		s.progress = r.progress(i, at, s.progress)
	}
}

// readScrapes hands the policies the scrapes that have arrived and that they have not seen. They are told before what
// else is true now, but for the beginning, when replicas come up.
func (r *run) readScrapes() {
	s, g := &r.scrapes, &r.cfg.Signals
	if !s.lazy || r.now < g.ScrapeDelayPS || !r.mayJudge() {
		return
	}
	limit := r.now/g.ScrapePS + 1
	if g.ScrapeJitterPS == 0 && g.ScrapeLoss == 0 { // all replicas are in the same round
		if limit = (r.now-g.ScrapeDelayPS)/g.ScrapePS + 1; limit == s.round {
			return
		}
		s.round = limit
	}
	s.due = s.due[:0]
	for i := range r.replicas {
		r.readScrape(int32(i), limit)
	}
	at := 0
	if r.now == 0 {
		at = len(r.facts)
	}
	r.facts = slices.Insert(r.facts, at, s.due...)
}

// awaitScrape puts the next arrival of scrapes on the agenda while a turn waits that it may let go.
func (r *run) awaitScrape() {
	s, g := &r.scrapes, &r.cfg.Signals
	if s.awaited || r.atGate == 0 || !s.lazy || r.needs&policies.NeedsEverySample == 0 || s.idle >= maxIdleScrapes {
		return
	}
	at := g.ScrapeDelayPS
	if r.now >= at {
		at += ((r.now-at)/g.ScrapePS + 1) * g.ScrapePS
	}
	r.agenda.push(at, scrapeDue, 0, 0)
	s.awaited = true
}

// scrapesArrive is that arrival.
func (r *run) scrapesArrive() {
	r.scrapes.awaited = false
	r.scrapesGoOn(0)
	if r.atGate > 0 {
		r.readScrapes()
	}
}

// mayJudge tells whether the policies may look at samples now: a turn arrives or waits, or they asked to be woken.
func (r *run) mayJudge() bool {
	if r.atGate > 0 || r.core.NextWake() <= policyTime(r.now) {
		return true
	}
	for k := range r.facts {
		if r.facts[k].Kind == policies.Woke {
			return true
		}
	}
	return false
}

// readScrape is readScrapes for replica i, of rounds before limit.
func (r *run) readScrape(i int32, limit int64) {
	s, x := &r.scrapes, &r.replicas[i].lazy
	round, ok := r.arrived(i, r.now, x.told, limit)
	if !ok {
		x.told = max(x.told, min(limit, r.settled(r.now)))
		return
	}
	x.told = round + 1
	if round >= x.over {
		r.scrapeInto(&s.now, i, round)
		s.due = r.scrapeFacts(i, &s.now, s.due)
		return
	}
	x.drop(round)
	s.due = r.scrapeFacts(i, &x.kept[0], s.due)
}
