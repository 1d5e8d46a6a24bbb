package results

// span is a stretch of time, both ends included.
type span struct {
	start, end int64
	whole      bool // rates come from the rows, not from the samples
}

func (s span) holds(ps int64) bool { return ps != Missing && s.start <= ps && ps <= s.end }

// wholeSpan is the time from the first arrival to the last completion.
func (c *Collector) wholeSpan(totals *Totals) (sp span, ok bool) {
	sp = span{c.sums.start, max(c.sums.end, totals.EndPS), true}
	return sp, sp.start != Missing && sp.end > sp.start
}

// steadySpan is the time from the start of the session that makes 10 % of those that started to the completion of the
// turn that makes 90 % of those that finished.
func (c *Collector) steadySpan(s *sorter) (sp span, ok bool, err error) {
	start, ok := c.sessions.tenth(s)
	if !ok {
		return span{}, false, nil
	}
	if err := c.gather(s, &completions, nil); err != nil || len(s.keys) == 0 {
		return span{}, false, err
	}
	s.order()
	sp = span{start: start, end: psOfKey(s.keys[(len(s.keys)*90+99)/100-1])}
	return sp, sp.end > sp.start, nil
}

// window measures over a span all that is no distribution.
func (c *Collector) window(sp span, totals *Totals, sums *windowSums, sort *sorter) (*Window, error) {
	length := Seconds(sp.end - sp.start)
	w := &Window{Start: Seconds(sp.start), End: Seconds(sp.end), Length: length}
	if err := sums.of(c, sp); err != nil {
		return nil, err
	}
	sums.set(w)
	sums.sessionRates(sort)
	w.SessionHit = sort.dist()
	c.sessions.lengths(sort, sp)
	w.SessionTime = sort.dist()
	load := c.series.over(sp.start, sp.end, int(totals.Replicas))
	w.SampledAtAll = load.sampled
	if sp.whole {
		w.InputTPS = ratio(float64(c.sums.prompt), length)
		w.OutputTPS = ratio(float64(c.sums.output), length)
		w.ComputedPrefillTPS = ratio(float64(c.sums.computed), length)
	} else if load.sampled {
		w.InputTPS = ratio(load.sum(loadPrompt), length)
		w.OutputTPS = ratio(load.sum(loadOutput), length)
		w.ComputedPrefillTPS = ratio(load.sum(loadComputed), length)
	}
	if w.InputTPS != nil {
		w.TotalTPS = some(*w.InputTPS + *w.OutputTPS)
	}
	gpus := float64(totals.GPUs)
	w.TotalPerGPU, w.OutputPerGPU = over(w.TotalTPS, gpus), over(w.OutputTPS, gpus)
	w.ComputedPerGPU = over(w.ComputedPrefillTPS, gpus)
	w.setLoad(load, sp, totals)
	completed := int64(0)
	for s := range c.sessions.all {
		if s.complete && sp.holds(s.end) {
			completed++
		}
	}
	w.SessionsPerH = ratio(float64(completed)*3600, length)
	if c.info.SLO != nil {
		w.SLO = c.slo(sp, sums)
	}
	w.ByClass = c.byClass(sums)
	return w, nil
}

// windowSums are sums over the attempts of a span.
type windowSums struct {
	turnSums          // over the turns that arrived in it, last attempts
	completed   int64 // turns finished in it
	good        int64 // of these met the SLO
	goodOutput  int64 // their tokens
	goodTotal   int64
	waits       int64 // at the gate, of all attempts of turns that arrived, ps
	latency     int64 // of finished turns that arrived, ps
	computed    int64 // tokens of all attempts of turns that arrived
	wasted      int64
	cpu, global int64 // hits of turns that arrived, by tier
	known       int64 // turns that arrived whose latency on an idle replica is known
	infeasible  int64 // of these
	classes     []turnSums
	sessions    []struct{ hits, prompt int64 } // by session
}

// turnSums are sums over last attempts.
type turnSums struct {
	turns, finished, held, rejected, met int64
	hits, ceiling, prompt                int64 // tokens of those that were scheduled
}

func (t *turnSums) add(flags int32) {
	t.turns++
	t.finished += int64(flags & flagFinished / flagFinished)
	t.held += int64(flags & flagHeld / flagHeld)
	t.rejected += int64(flags & flagRejected / flagRejected)
	t.met += int64(flags & flagMet / flagMet)
}

func (t *turnSums) addTokens(hits, ceiling, prompt int64) {
	t.hits += hits
	t.ceiling += ceiling
	t.prompt += prompt
}

// of sums over a span; the room for sessions is used again.
func (w *windowSums) of(c *Collector, sp span) error {
	*w = windowSums{sessions: grown(&w.sessions, int(c.most)+1), classes: make([]turnSums, len(c.classes))}
	clear(w.sessions)
	return c.attempts.each(timeArrival.set()|timeDone.set()|timeWait.set()|countFlags.set()|countSession.set()|countTag.set()|
		countPrompt.set()|countOutput.set()|countComputed.set()|countWasted.set()|countCeiling.set()|countHitGPU.set()|
		countHitCPU.set()|countHitGlobal.set(), func(ch *chunk) { w.add(ch, sp) })
}

// sessionRates sorts the hit rates of the sessions.
func (w *windowSums) sessionRates(rates *sorter) {
	rates.reset(false)
	for _, s := range w.sessions {
		if s.prompt > 0 {
			rates.add(keyOf(float64(s.hits)/float64(s.prompt)), 0)
		}
	}
	rates.sort()
}

func (w *windowSums) add(ch *chunk, sp span) {
	arrival, done, wait := ch.times[timeArrival], ch.times[timeDone], ch.times[timeWait]
	prompts, outputs := ch.counts[countPrompt], ch.counts[countOutput]
	for i, flags := range ch.counts[countFlags] {
		if flags&(flagFinal|flagFinished) == flagFinal|flagFinished && sp.holds(done[i]) {
			w.completed++
			if flags&flagMet != 0 {
				w.good++
				w.goodOutput += int64(outputs[i])
				w.goodTotal += int64(prompts[i]) + int64(outputs[i])
			}
		}
		if !sp.holds(arrival[i]) {
			continue
		}
		if wait[i] != Missing {
			w.waits += wait[i]
		}
		w.computed += int64(ch.counts[countComputed][i])
		w.wasted += int64(ch.counts[countWasted][i])
		if flags&flagFinal == 0 {
			continue
		}
		if flags&flagFinished != 0 && done[i] != Missing {
			w.latency += done[i] - arrival[i]
		}
		if flags&flagIdleKnown != 0 {
			w.known++
			w.infeasible += int64(flags & flagInfeasible / flagInfeasible)
		}
		class := &w.classes[classField.of(uint32(ch.counts[countTag][i]))]
		w.turnSums.add(flags)
		class.add(flags)
		if flags&flagScheduled != 0 {
			cpu, global := int64(ch.counts[countHitCPU][i]), int64(ch.counts[countHitGlobal][i])
			hits := int64(ch.counts[countHitGPU][i]) + cpu + global
			prompt, ceiling := int64(prompts[i]), int64(ch.counts[countCeiling][i])
			w.cpu += cpu
			w.global += global
			w.addTokens(hits, ceiling, prompt)
			class.addTokens(hits, ceiling, prompt)
			session := &w.sessions[ch.counts[countSession][i]]
			session.hits += hits
			session.prompt += prompt
		}
	}
}

// set writes the sums into a window. Hits are those of last attempts that were scheduled, so that every turn and its
// ceiling count once.
func (w *windowSums) set(into *Window) {
	into.Turns, into.Finished, into.HeldTurns = w.turns, w.finished, w.held
	into.ComputedTokens, into.WastedTokens, into.PromptTokens = w.computed, w.wasted, w.prompt
	into.Thrash = ratio(float64(w.wasted), float64(w.computed))
	into.GateShare = ratio(Seconds(w.waits), Seconds(w.latency))
	into.TurnsPerS = ratio(float64(w.completed), into.Length)
	prompt := float64(w.prompt)
	into.HitRate, into.Ceiling = ratio(float64(w.hits), prompt), ratio(float64(w.ceiling), prompt)
	into.HitRateGPU = ratio(float64(w.hits-w.cpu-w.global), prompt)
	into.HitRateCPU, into.HitRateGlobal = ratio(float64(w.cpu), prompt), ratio(float64(w.global), prompt)
	into.Capture = ratio(float64(w.hits), float64(w.ceiling))
}

func (w *Window) setLoad(load *load, sp span, totals *Totals) {
	n := int(totals.Replicas)
	w.ReplicaBusy, w.ReplicaWork = []float64{}, []int64{}
	if sp.whole && len(totals.BusyPS) == n {
		for _, ps := range totals.BusyPS {
			w.ReplicaBusy = append(w.ReplicaBusy, Seconds(ps)/w.Length)
		}
	} else if load.sampled {
		for r := range n {
			w.ReplicaBusy = append(w.ReplicaBusy, load.replicas[r].total[loadBusy]/w.Length)
		}
	}
	if len(w.ReplicaBusy) > 0 {
		sum := 0.0
		for _, b := range w.ReplicaBusy {
			sum += b
		}
		w.Busy = some(sum / float64(n))
		w.Idle = some(1 - *w.Busy)
	}
	if !load.sampled {
		return
	}
	for r := range n {
		w.ReplicaWork = append(w.ReplicaWork, int64(load.replicas[r].total[loadComputed]+0.5))
	}
	w.Work, w.InFlight = load.imbalance(loadComputed), load.imbalance(loadInFlight)
	w.Resident = load.imbalance(loadResident)
	w.KVUsage = ratio(load.sum(loadUsage), w.Length*float64(n))
	w.KVUsageMax = some(load.maxUsage)
}
