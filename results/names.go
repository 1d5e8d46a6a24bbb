package results

var outcomeNames = [...]string{"finished", "rejected", "timed_out", "superseded", "failed", "unstarted"}

// String is the outcome as files and tables write it.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

var causeNames = [NumCauses]string{"none", "preempted", "retry", "restarted", "evicted", "elsewhere", "cold"}

// String is the cause as files and tables write it.
func (c Cause) String() string {
	if c < NumCauses {
		return causeNames[c]
	}
	return "unknown"
}

func parseOutcome(s string) (Outcome, bool) {
	for i, name := range outcomeNames {
		if name == s {
			return Outcome(i), true
		}
	}
	return 0, false
}

func parseCause(s string) (Cause, bool) {
	for i, name := range causeNames {
		if name == s {
			return Cause(i), true
		}
	}
	return 0, false
}
