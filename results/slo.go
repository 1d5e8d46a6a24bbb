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

// againstSLO are the flags of a last attempt that the SLO gives.
func (c *Collector) againstSLO(a *attempt) int32 {
	bounds := c.info.SLO
	if bounds == nil {
		return 0
	}
	flags := int32(0)
	if bounds.met(a) {
		flags |= flagMet
	} else {
		for int(a.turn.session) >= len(c.missed) {
			c.missed = append(c.missed, false)
		}
		c.missed[a.turn.session] = true
	}
	if feasible, known := bounds.feasible(a); known {
		flags |= flagIdleKnown
		if !feasible {
			flags |= flagInfeasible
		}
	}
	return flags
}

// slo measures attainment over the turns that arrived in the span and goodput over those that finished in it.
func (c *Collector) slo(sp span, w *windowSums) *SLOResult {
	length := Seconds(sp.end - sp.start)
	var sessions, sessionsMet, sessionsGood int64
	for s := range c.sessions.all {
		missed := int(s.session) < len(c.missed) && c.missed[s.session]
		ok := s.complete && !missed
		if sp.holds(s.start) {
			sessions++
			if ok {
				sessionsMet++
			}
		}
		if ok && sp.holds(s.end) {
			sessionsGood++
		}
	}
	return &SLOResult{
		Attainment:        ratio(float64(w.met), float64(w.turns)),
		SessionAttainment: ratio(float64(sessionsMet), float64(sessions)),
		GoodTurnsPerS:     ratio(float64(w.good), length),
		GoodOutputTPS:     ratio(float64(w.goodOutput), length),
		GoodTotalTPS:      ratio(float64(w.goodTotal), length),
		GoodSessionsPerH:  ratio(float64(sessionsGood)*3600, length),
		Infeasible:        ratio(float64(w.infeasible), float64(w.known)),
	}
}
