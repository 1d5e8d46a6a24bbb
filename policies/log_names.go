package policies

var factNames = [...]string{
	"invalid", "turn_arrived", "attempt_superseded", "client_gone", "usage_probed", "prefix_probed", "dispatched", "first_token",
	"finished", "failed", "thread_finished", "session_finished", "metrics_sampled", "tokens_progressed", "blocks_stored",
	"blocks_evicted", "blocks_cleared", "replica_up", "replica_down", "replica_draining", "woke", "replica_restarted",
}

// String is the fact's name in logs; "invalid" for a kind that there is not.
func (k FactKind) String() string {
	if int(k) < len(factNames) {
		return factNames[k]
	}
	return factNames[0]
}

// ParseFactKind is the kind that String calls name.
func ParseFactKind(name string) (FactKind, bool) { return parseName[FactKind](factNames[:], 1, name) }

// ParseCommandKind is the kind that String calls name.
func ParseCommandKind(name string) (CommandKind, bool) {
	return parseName[CommandKind](commandNames[:], 1, name)
}

// ParseReason is the reason that String calls name; the empty name is NoReason.
func ParseReason(name string) (Reason, bool) { return parseName[Reason](reasonNames[:], 0, name) }

var outcomeNames = [...]string{"value", "timeout", "unsupported"}

// String is the outcome's name in logs.
func (o ProbeOutcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "invalid"
}

// ParseProbeOutcome is the outcome that String calls name.
func ParseProbeOutcome(name string) (ProbeOutcome, bool) {
	return parseName[ProbeOutcome](outcomeNames[:], 0, name)
}

var signalNames = [...]string{"samples", "kv_events", "progress", "probes", "oracle"}

// Names lists the names of the signals of s, in a fixed order.
func (s Signals) Names() []string {
	var names []string
	for i, n := range signalNames {
		if s&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// ParseSignal is the signal called name.
func ParseSignal(name string) (Signals, bool) {
	i, ok := parseName[uint8](signalNames[:], 0, name)
	return 1 << i, ok
}

// parseName finds name among names, from the index first on.
func parseName[T ~uint8](names []string, first int, name string) (T, bool) {
	for i := first; i < len(names); i++ {
		if names[i] == name {
			return T(i), true
		}
	}
	return 0, false
}
