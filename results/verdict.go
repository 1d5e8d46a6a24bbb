package results

import "fmt"

// Codes of verdicts.
const (
	VerdictInvalid = "invalid"
	VerdictGate    = "gate"
	VerdictKV      = "kv"
	VerdictSkew    = "skew"
	VerdictPrefill = "prefill"
	VerdictDecode  = "decode"
	VerdictIdle    = "idle"
	VerdictUnknown = "unknown"
)

// Limits of the verdict.
const (
	invalidShare = 0.01
	gateShare    = 0.20
	wasteShare   = 0.20
	skewMaxMean  = 1.5
	idleBusy     = 0.50
)

// verdictOf names the first limit that applies. An invalid run also says what would have been the verdict otherwise.
func verdictOf(s *Summary) Verdict {
	v := bottleneck(s)
	if k := &s.Conservation; !k.Holds {
		v = Verdict{VerdictInvalid, v.Bottleneck, fmt.Sprintf("invalid: read %d turns, but finished %d, failed %d, dropped %d; otherwise %s",
			k.Read, k.Finished, k.Failed, k.Dropped, v.Text)}
	} else if lost := ratio(float64(k.Failed+k.Dropped), float64(k.Read)); exceeds(lost, invalidShare) {
		v = Verdict{VerdictInvalid, v.Bottleneck, fmt.Sprintf("invalid: %.1f %% of the turns dropped or failed (%d dropped, %d failed of %d); otherwise %s",
			*lost*100, k.Dropped, k.Failed, k.Read, v.Text)}
	}
	if s.GatePolicy != "" && s.GatePolicy != "none" && s.Gate.Holds == 0 {
		v.Text += "; the gate never held a turn"
	}
	return v
}

func bottleneck(s *Summary) Verdict {
	of := func(code, format string, values ...any) Verdict {
		return Verdict{code, code, fmt.Sprintf(code+": "+format, values...)}
	}
	w := s.Table()
	if w == nil {
		return of(VerdictUnknown, "no turn finished")
	}
	switch {
	case exceeds(w.GateShare, gateShare):
		return of(VerdictGate, "waits at the gate are %.0f %% of turn latency", *w.GateShare*100)
	case exceeds(w.Thrash, wasteShare):
		return of(VerdictKV, "%.0f %% of computed prefill is recomputation", *w.Thrash*100)
	case exceeds(w.Work.MaxMean, skewMaxMean):
		return of(VerdictSkew, "the busiest replica computes %.2f times the mean", *w.Work.MaxMean)
	case w.Busy == nil || s.Engine.PrefillBusy == nil || s.Engine.DecodeBusy == nil:
		return of(VerdictUnknown, "busy time was not measured")
	case *w.Busy < idleBusy:
		return of(VerdictIdle, "replicas are busy %.0f %% of the time", *w.Busy*100)
	case *s.Engine.PrefillBusy >= *s.Engine.DecodeBusy:
		return of(VerdictPrefill, "replicas are busy %.0f %% of the time, %.0f %% of it with prefill",
			*w.Busy*100, *s.Engine.PrefillBusy*100)
	default:
		return of(VerdictDecode, "replicas are busy %.0f %% of the time, %.0f %% of it with decode",
			*w.Busy*100, *s.Engine.DecodeBusy*100)
	}
}

func exceeds(v *float64, limit float64) bool { return v != nil && *v > limit }
