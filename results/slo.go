package results

// met reports whether a last attempt finished within every bound; arrival is that of the turn's first attempt.
func (b *SLO) met(t *Turn, arrival int64) bool {
	if !t.finished() || t.FirstTokenPS == Missing || arrival == Missing {
		return false
	}
	tpot, ok := t.tpot()
	return b.within(Seconds(t.FirstTokenPS-arrival), t.PromptTokens, tpot, ok)
}

// feasible reports whether the turn would meet every bound alone on an idle replica; known is false without idle times.
func (b *SLO) feasible(t *Turn) (feasible, known bool) {
	if t.IdleTTFTPS == Missing {
		return false, false
	}
	return b.within(Seconds(t.IdleTTFTPS), t.PromptTokens, Seconds(t.IdleTPOTPS), t.IdleTPOTPS != Missing), true
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
func (c *Collector) againstSLO(t *Turn, arrival int64) int32 {
	bounds := c.info.SLO
	if bounds == nil {
		return 0
	}
	flags := int32(0)
	if bounds.met(t, arrival) {
		flags |= flagMet
	} else {
		for int(t.Session) >= len(c.missed) {
			c.missed = append(c.missed, false)
		}
		c.missed[t.Session] = true
	}
	if feasible, known := bounds.feasible(t); known {
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
