package results

// distribution is a latency of attempts, and where its summaries go.
type distribution struct {
	from, to timeColumn // from their difference; from noTime: the column to itself
	perToken bool       // divided by the output tokens after the first, of which there must be one
	need     int32      // flags of the attempts that have it
	byReason bool       // groups are admission reasons

	window func(*Window) *Dist
	atOnce func(*Window) *Dist // the one that it equals when every attempt was sent as it arrived
	class  func(*ClassResult) *Dist
	bucket func(*Bucket) *Dist
	sample func(*Latencies) *[]float64
}

const noTime = numTimes

const finishedTurn = flagFinal | flagFinished

// distributions of turns by window, and by class and bucket where they have one.
var distributions = []distribution{
	{from: timeArrival, to: timeFirst, need: finishedTurn,
		window: func(w *Window) *Dist { return &w.TTFT },
		class:  func(r *ClassResult) *Dist { return &r.TTFT },
		bucket: func(b *Bucket) *Dist { return &b.TTFT },
		sample: func(l *Latencies) *[]float64 { return &l.TTFT }},
	{from: timeArrival, to: timeDone, need: finishedTurn,
		window: func(w *Window) *Dist { return &w.E2EL },
		class:  func(r *ClassResult) *Dist { return &r.E2EL },
		bucket: func(b *Bucket) *Dist { return &b.E2EL },
		sample: func(l *Latencies) *[]float64 { return &l.E2EL }},
	{from: timeFirst, to: timeDone, need: finishedTurn, perToken: true,
		window: func(w *Window) *Dist { return &w.TPOT },
		class:  func(r *ClassResult) *Dist { return &r.TPOT },
		bucket: func(b *Bucket) *Dist { return &b.TPOT }},
	{from: timeSent, to: timeFirst, need: finishedTurn,
		window: func(w *Window) *Dist { return &w.TTFTEngine },
		atOnce: func(w *Window) *Dist { return &w.TTFT }},
	{from: timeSent, to: timeScheduled, need: finishedTurn, window: func(w *Window) *Dist { return &w.EngineQueue }},
	{from: noTime, to: timeWait, need: finishedTurn,
		window: func(w *Window) *Dist { return &w.GateWait },
		class:  func(r *ClassResult) *Dist { return &r.GateWait }},
	{from: noTime, to: timeToolGap, need: flagFinal, window: func(w *Window) *Dist { return &w.ToolGap }},
}

var (
	completions = distribution{from: noTime, to: timeDone, need: finishedTurn}
	gateWaits   = distribution{from: noTime, to: timeWait, byReason: true}
)

// Fields of tags, above a bit for each of two windows.
var (
	turnField    = field{2, 1<<5 - 1}
	contextField = field{7, 1<<4 - 1}
	classField   = field{11, 1<<21 - 1}
	reasonField  = field{0, 1<<32 - 1}
)

func inWindow(i int) uint32 { return 1 << i }

// measure fills in the windows, the buckets and all other distributions.
func (c *Collector) measure(s *Summary, totals *Totals, sort *sorter) error {
	steady, hasSteady, err := c.steadySpan(sort)
	if err != nil {
		return err
	}
	var sums windowSums
	var spans []span
	var windows []*Window
	add := func(into **Window, sp span) error {
		w, err := c.window(sp, totals, &sums, sort)
		*into, spans, windows = w, append(spans, sp), append(windows, w)
		return err
	}
	if whole, ok := c.wholeSpan(totals); ok {
		if err := add(&s.Whole, whole); err != nil {
			return err
		}
	}
	if hasSteady {
		if err := add(&s.Steady, steady); err != nil {
			return err
		}
	}
	byTurn, byContext := bucketsWith(turnEdges[:], c.sums.byTurn[:]), bucketsWith(contextEdges[:], c.sums.byContext[:])
	for i := range distributions {
		d := &distributions[i]
		if d.atOnce != nil && c.sums.sentLater == 0 {
			for _, w := range windows {
				*d.window(w) = *d.atOnce(w)
			}
			continue
		}
		if err := c.gather(sort, d, spans); err != nil {
			return err
		}
		sort.sort()
		d.setWindows(sort, windows)
		if d.bucket != nil {
			sort.groups(0, turnField, len(byTurn), func(i int, bits []uint64) { *d.bucket(&byTurn[i]) = distOfBits(bits) })
			sort.groups(0, contextField, len(byContext), func(i int, bits []uint64) { *d.bucket(&byContext[i]) = distOfBits(bits) })
		}
	}
	s.ByTurn, s.ByContext = usedBuckets(byTurn), usedBuckets(byContext)
	for _, w := range windows {
		orderClasses(w.ByClass)
		if w.TPOT.P50 != nil {
			w.Interactivity = ratio(1, *w.TPOT.P50)
		}
	}
	if err := c.gather(sort, &gateWaits, nil); err != nil {
		return err
	}
	sort.sort()
	sort.groups(0, reasonField, len(s.Gate.ByReason), func(i int, bits []uint64) { s.Gate.ByReason[i].Wait = distOfBits(bits) })
	s.Gate.orderReasons()
	return nil
}

func (d *distribution) setWindows(s *sorter, windows []*Window) {
	for i, w := range windows {
		*d.window(w) = distOfBits(s.selected(inWindow(i)))
		if d.class != nil && len(w.ByClass) > 0 {
			s.groups(inWindow(i), classField, len(w.ByClass), func(k int, bits []uint64) { *d.class(&w.ByClass[k]) = distOfBits(bits) })
		}
	}
}

// gather puts the values of a distribution into the sorter, tagged with the spans in which their turns arrived.
func (c *Collector) gather(s *sorter, d *distribution, spans []span) error {
	s.reset(!d.perToken)
	columns := timeArrival.set() | d.to.set() | countFlags.set() | countTag.set()
	if d.from != noTime {
		columns |= d.from.set()
	}
	if d.perToken {
		columns |= countOutput.set()
	}
	if d.byReason {
		columns |= countReason.set()
	}
	return c.attempts.each(columns, func(ch *chunk) { d.gather(s, ch, spans) })
}

func (d *distribution) gather(s *sorter, ch *chunk, spans []span) {
	to, from, arrivals := ch.times[d.to], ch.times[timeArrival], ch.times[timeArrival]
	if d.from != noTime {
		from = ch.times[d.from]
	}
	keys, tags, common := s.keys, s.tags, s.common
	for i, flags := range ch.counts[countFlags] {
		if flags&d.need != d.need || to[i] == Missing {
			continue
		}
		start := int64(0)
		if d.from != noTime {
			if start = from[i]; start == Missing {
				continue
			}
		}
		key := keyOfPS(to[i] - start)
		if d.perToken {
			output := ch.counts[countOutput][i]
			if output < 2 {
				continue
			}
			key = keyOf(perToken(to[i]-start, output))
		}
		var tag uint32
		if d.byReason {
			tag = reasonField.tag(int(ch.counts[countReason][i]))
		} else {
			tag = uint32(ch.counts[countTag][i])
			for k := range spans {
				if spans[k].holds(arrivals[i]) {
					tag |= inWindow(k)
				}
			}
		}
		keys, tags = append(keys, key), append(tags, tag)
		common &= tag
	}
	s.keys, s.tags, s.common = keys, tags, common
}
