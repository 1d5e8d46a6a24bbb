package results

import "slices"

// span is a stretch of time, both ends included.
type span struct {
	start, end int64
	whole      bool // rates come from the rows, not from the samples
}

func (s span) holds(ps int64) bool { return ps != Missing && s.start <= ps && ps <= s.end }

// wholeSpan is the time from the first arrival to the last completion.
func (c *Collector) wholeSpan(totals *Totals) (start, end int64, ok bool) {
	start, end = Missing, totals.EndPS
	for i := range c.attempts {
		a := &c.attempts[i]
		if a.arrival != Missing && (start == Missing || a.arrival < start) {
			start = a.arrival
		}
		if a.finished() {
			end = max(end, a.done)
		}
	}
	return start, end, start != Missing && end > start
}

// steadySpan is the time from the start of the session that makes 10 % of those that started to the completion of the
// turn that makes 90 % of those that finished.
func (c *Collector) steadySpan() (start, end int64, ok bool) {
	var starts, ends []int64
	for i := range c.sessions {
		if c.sessions[i].StartPS != Missing {
			starts = append(starts, c.sessions[i].StartPS)
		}
	}
	for i := range c.attempts {
		if a := &c.attempts[i]; a.final && a.finished() && a.done != Missing {
			ends = append(ends, a.done)
		}
	}
	if len(starts) == 0 || len(ends) == 0 {
		return 0, 0, false
	}
	slices.Sort(starts)
	slices.Sort(ends)
	start = starts[(len(starts)*10+99)/100-1]
	end = ends[(len(ends)*90+99)/100-1]
	return start, end, end > start
}

// window measures everything over a span.
func (c *Collector) window(sp span, totals *Totals) *Window {
	length := Seconds(sp.end - sp.start)
	w := &Window{Start: Seconds(sp.start), End: Seconds(sp.end), Length: length}
	c.latencies(w, sp)
	c.hits(w, sp)
	c.sessionMetrics(w, sp)
	load := c.series.over(sp.start, sp.end, int(totals.Replicas))
	w.SampledAtAll = load.sampled
	if sp.whole {
		c.rowRates(w)
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
	if c.info.SLO != nil {
		w.SLO = c.slo(sp)
	}
	w.ByClass = c.byClass(sp)
	return w
}

// rowRates takes the rates of the whole run from the attempts, which hold every token.
func (c *Collector) rowRates(w *Window) {
	var prompt, output, computed int64
	for i := range c.attempts {
		a := &c.attempts[i]
		if a.wasScheduled() {
			prompt += int64(a.prompt)
		}
		output += int64(a.output)
		computed += int64(a.computed)
	}
	w.InputTPS = ratio(float64(prompt), w.Length)
	w.OutputTPS = ratio(float64(output), w.Length)
	w.ComputedPrefillTPS = ratio(float64(computed), w.Length)
}

// turnTimes are latency samples in seconds of the turns that arrived in a span.
type turnTimes struct {
	ttft, engine, gate, queue, tpot, e2el, gaps []float64
	latency                                     int64 // sum of e2el, ps
}

func (s *turnTimes) add(a *attempt) {
	if d := since(a.arrival, a.done); d != Missing {
		s.latency += d
	}
	s.ttft = appendSince(s.ttft, a.arrival, a.first)
	s.engine = appendSince(s.engine, a.sent, a.first)
	s.gate = appendSince(s.gate, 0, a.wait)
	s.queue = appendSince(s.queue, a.sent, a.scheduled)
	s.e2el = appendSince(s.e2el, a.arrival, a.done)
	s.tpot = a.appendTPOT(s.tpot)
}

func (c *Collector) latencies(w *Window, sp span) {
	var s turnTimes
	var waits, completed int64
	for i := range c.attempts {
		a := &c.attempts[i]
		if a.final && a.finished() && sp.holds(a.done) {
			completed++
		}
		if !sp.holds(a.arrival) {
			continue
		}
		if a.wait != Missing {
			waits += a.wait
		}
		w.ComputedTokens += int64(a.computed)
		w.WastedTokens += int64(a.wasted)
		if !a.final {
			continue
		}
		w.Turns++
		if a.holds > 0 {
			w.HeldTurns++
		}
		if a.toolGap != Missing {
			s.gaps = append(s.gaps, Seconds(a.toolGap))
		}
		if a.finished() {
			w.Finished++
			s.add(a)
		}
	}
	w.TTFT, w.TTFTEngine, w.GateWait, w.EngineQueue = distOf(s.ttft), distOf(s.engine), distOf(s.gate), distOf(s.queue)
	w.TPOT, w.E2EL, w.ToolGap = distOf(s.tpot), distOf(s.e2el), distOf(s.gaps)
	if w.TPOT.P50 != nil {
		w.Interactivity = ratio(1, *w.TPOT.P50)
	}
	w.Thrash = ratio(float64(w.WastedTokens), float64(w.ComputedTokens))
	w.GateShare = ratio(Seconds(waits), Seconds(s.latency))
	w.TurnsPerS = ratio(float64(completed), w.Length)
}

// hits sums over the last attempts that were scheduled, so that every turn and its ceiling count once.
func (c *Collector) hits(w *Window, sp span) {
	type sums struct{ hit, prompt int64 }
	bySession := map[int32]sums{}
	var gpu, cpu, global, ceiling int64
	for i := range c.attempts {
		a := &c.attempts[i]
		if !a.final || !a.wasScheduled() || !sp.holds(a.arrival) {
			continue
		}
		gpu += int64(a.hitGPU)
		cpu += int64(a.hitCPU)
		global += int64(a.hitGlobal)
		ceiling += int64(a.ceiling)
		w.PromptTokens += int64(a.prompt)
		s := bySession[a.session]
		bySession[a.session] = sums{s.hit + a.hits(), s.prompt + int64(a.prompt)}
	}
	prompt := float64(w.PromptTokens)
	w.HitRate = ratio(float64(gpu+cpu+global), prompt)
	w.HitRateGPU, w.HitRateCPU = ratio(float64(gpu), prompt), ratio(float64(cpu), prompt)
	w.HitRateGlobal, w.Ceiling = ratio(float64(global), prompt), ratio(float64(ceiling), prompt)
	w.Capture = ratio(float64(gpu+cpu+global), float64(ceiling))
	rates := make([]float64, 0, len(bySession))
	for _, s := range bySession { // order does not show: distOf sorts
		if s.prompt > 0 {
			rates = append(rates, float64(s.hit)/float64(s.prompt))
		}
	}
	w.SessionHit = distOf(rates)
}

func (c *Collector) sessionMetrics(w *Window, sp span) {
	var completed int64
	for i := range c.sessions {
		if s := &c.sessions[i]; s.Complete && sp.holds(s.EndPS) {
			completed++
		}
	}
	w.SessionTime = distOf(c.sessionTimes(sp))
	w.SessionsPerH = ratio(float64(completed)*3600, w.Length)
}

func (c *Collector) sessionTimes(sp span) []float64 {
	var times []float64
	for i := range c.sessions {
		if s := &c.sessions[i]; s.Complete && sp.holds(s.StartPS) {
			times = appendSince(times, s.StartPS, s.EndPS)
		}
	}
	return times
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
			w.ReplicaBusy = append(w.ReplicaBusy, load.total[loadBusy][r]/w.Length)
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
		w.ReplicaWork = append(w.ReplicaWork, int64(load.total[loadComputed][r]+0.5))
	}
	w.Work, w.InFlight = load.imbalance(loadComputed), load.imbalance(loadInFlight)
	w.Resident = load.imbalance(loadResident)
	w.KVUsage = ratio(load.sum(loadUsage), w.Length*float64(n))
	w.KVUsageMax = some(load.maxUsage)
}
