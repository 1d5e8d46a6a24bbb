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
		v = Verdict{VerdictInvalid, fmt.Sprintf("invalid: read %d turns, but finished %d, failed %d, dropped %d; otherwise %s",
			k.Read, k.Finished, k.Failed, k.Dropped, v.Text)}
	} else if lost := ratio(float64(k.Failed+k.Dropped), float64(k.Read)); exceeds(lost, invalidShare) {
		v = Verdict{VerdictInvalid, fmt.Sprintf("invalid: %.1f %% of the turns dropped or failed (%d dropped, %d failed of %d); otherwise %s",
			*lost*100, k.Dropped, k.Failed, k.Read, v.Text)}
	}
	if s.GatePolicy != "" && s.GatePolicy != "none" && s.Gate.Holds == 0 {
		v.Text += "; the gate never held a turn"
	}
	return v
}

func bottleneck(s *Summary) Verdict {
	w := s.Table()
	if w == nil {
		return Verdict{VerdictUnknown, "unknown: no turn finished"}
	}
	switch {
	case exceeds(w.GateShare, gateShare):
		return Verdict{VerdictGate, fmt.Sprintf("gate: waits at the gate are %.0f %% of turn latency", *w.GateShare*100)}
	case exceeds(w.Thrash, wasteShare):
		return Verdict{VerdictKV, fmt.Sprintf("kv: %.0f %% of computed prefill is recomputation", *w.Thrash*100)}
	case exceeds(w.Work.MaxMean, skewMaxMean):
		return Verdict{VerdictSkew, fmt.Sprintf("skew: the busiest replica computes %.2f times the mean", *w.Work.MaxMean)}
	case w.Busy == nil || s.Engine.PrefillBusy == nil || s.Engine.DecodeBusy == nil:
		return Verdict{VerdictUnknown, "unknown: busy time was not measured"}
	case *w.Busy < idleBusy:
		return Verdict{VerdictIdle, fmt.Sprintf("idle: replicas are busy %.0f %% of the time", *w.Busy*100)}
	case *s.Engine.PrefillBusy >= *s.Engine.DecodeBusy:
		return Verdict{VerdictPrefill, fmt.Sprintf("prefill: replicas are busy %.0f %% of the time, %.0f %% of it with prefill",
			*w.Busy*100, *s.Engine.PrefillBusy*100)}
	default:
		return Verdict{VerdictDecode, fmt.Sprintf("decode: replicas are busy %.0f %% of the time, %.0f %% of it with decode",
			*w.Busy*100, *s.Engine.DecodeBusy*100)}
	}
}

func exceeds(v *float64, limit float64) bool { return v != nil && *v > limit }
