package results

// met reports whether a last attempt finished within every bound.
func (b *SLO) met(a *attempt) bool {
	if !a.finished() || a.first == Missing || a.arrival == Missing {
		return false
	}
	tpot, ok := a.tpot()
	return b.within(Seconds(a.first-a.arrival), a.prompt, tpot, ok)
}

// feasible reports whether the turn would meet every bound alone on an idle replica; known is false without idle times.
func (b *SLO) feasible(a *attempt) (feasible, known bool) {
	if a.idleTTFT == Missing {
		return false, false
	}
	return b.within(Seconds(a.idleTTFT), a.prompt, Seconds(a.idleTPOT), a.idleTPOT != Missing), true
}

func (b *SLO) within(ttft float64, prompt int32, tpot float64, hasTPOT bool) bool {
	if b.TTFTS > 0 || b.TTFTPer1KPromptS > 0 {
		if ttft > b.TTFTS+float64(b.TTFTPer1KPromptS*float64(prompt)/1000) {
			return false
		}
	}
	return !(b.TPOTS > 0 && hasTPOT && tpot > b.TPOTS)
}

// slo measures attainment over the turns that arrived in the span and goodput over those that finished in it.
func (c *Collector) slo(sp span) *SLOResult {
	length := Seconds(sp.end - sp.start)
	bounds := c.info.SLO
	missed := map[int32]bool{}
	var arrived, met, known, infeasible, good, output, total int64
	for i := range c.attempts {
		a := &c.attempts[i]
		if !a.final {
			continue
		}
		ok := bounds.met(a)
		if !ok {
			missed[a.session] = true
		}
		if ok && sp.holds(a.done) {
			good++
			output += int64(a.output)
			total += int64(a.prompt) + int64(a.output)
		}
		if !sp.holds(a.arrival) {
			continue
		}
		arrived++
		if ok {
			met++
		}
		if feasible, k := bounds.feasible(a); k {
			known++
			if !feasible {
				infeasible++
			}
		}
	}
	var sessions, sessionsMet, sessionsGood int64
	for i := range c.sessions {
		s := &c.sessions[i]
		ok := s.Complete && !missed[s.Session]
		if sp.holds(s.StartPS) {
			sessions++
			if ok {
				sessionsMet++
			}
		}
		if ok && sp.holds(s.EndPS) {
			sessionsGood++
		}
	}
	return &SLOResult{
		Attainment:        ratio(float64(met), float64(arrived)),
		SessionAttainment: ratio(float64(sessionsMet), float64(sessions)),
		GoodTurnsPerS:     ratio(float64(good), length),
		GoodOutputTPS:     ratio(float64(output), length),
		GoodTotalTPS:      ratio(float64(total), length),
		GoodSessionsPerH:  ratio(float64(sessionsGood)*3600, length),
		Infeasible:        ratio(float64(infeasible), float64(known)),
	}
}
