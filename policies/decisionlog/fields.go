package decisionlog

import (
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// field is one value of a fact.
type field uint8

const (
	fAttempt field = iota
	fReplica
	fSession
	fThread
	fTurnAttempt
	fTurnSession
	fTurnThread
	fTurnNumber
	fTurnRetry
	fTurnStream
	fTurnPrompt
	fTurnMaxTokens
	fTurnClass
	fTurnGroup
	fTurnKey // left out where it is 0
	fPrompt
	fOutput
	fHit
	fPreemptions
	fStream
	fLo
	fHi
	fBlockTokens
	fSampledAt
	fRunning
	fWaiting
	fQueryTokens
	fSampleHits
	// These are no integers.
	fOutcome
	fUsage
	fSampleUsage
)

var fieldNames = [...]string{
	fAttempt: "attempt", fReplica: "replica", fSession: "session", fThread: "thread",
	fTurnAttempt: "attempt", fTurnSession: "session", fTurnThread: "thread", fTurnNumber: "turn", fTurnRetry: "retry",
	fTurnStream: "stream", fTurnPrompt: "prompt_tokens", fTurnMaxTokens: "max_tokens", fTurnClass: "class", fTurnGroup: "group", fTurnKey: "key",
	fPrompt: "prompt_tokens", fOutput: "output_tokens", fHit: "hit_tokens", fPreemptions: "preemptions",
	fStream: "stream", fLo: "lo", fHi: "hi", fBlockTokens: "block_tokens",
	fSampledAt: "at_ns", fRunning: "running", fWaiting: "waiting", fQueryTokens: "query_tokens", fSampleHits: "hit_tokens",
	fOutcome: "outcome", fUsage: "usage", fSampleUsage: "usage",
}

// factFields says which fields of a fact of each kind are written, in which order. Those of a sample come only where
// its Has bit is set.
var factFields = [...][]field{
	policies.TurnArrived: {fTurnAttempt, fTurnSession, fTurnThread, fTurnNumber, fTurnRetry, fTurnStream, fTurnPrompt, fTurnMaxTokens,
		fTurnClass, fTurnGroup, fTurnKey},
	policies.AttemptSuperseded: {fAttempt},
	policies.ClientGone:        {fAttempt},
	policies.UsageProbed:       {fAttempt, fReplica, fOutcome, fUsage},
	policies.PrefixProbed:      {fAttempt, fReplica, fOutcome, fHit, fPrompt},
	policies.Dispatched:        {fAttempt, fReplica},
	policies.FirstToken:        {fAttempt, fReplica, fPrompt, fHit},
	policies.Finished:          {fAttempt, fReplica, fPrompt, fOutput, fHit, fPreemptions},
	policies.Failed:            {fAttempt, fReplica},
	policies.ThreadFinished:    {fThread, fSession},
	policies.SessionFinished:   {fSession},
	policies.MetricsSampled:    {fReplica, fSampledAt, fRunning, fWaiting, fSampleUsage, fQueryTokens, fSampleHits},
	policies.TokensProgressed:  {fAttempt, fOutput},
	policies.BlocksStored:      {fReplica, fStream, fLo, fHi, fBlockTokens},
	policies.BlocksEvicted:     {fReplica, fStream, fLo, fHi, fBlockTokens},
	policies.BlocksCleared:     {fReplica},
	policies.ReplicaUp:         {fReplica},
	policies.ReplicaDown:       {fReplica},
	policies.ReplicaDraining:   {fReplica},
	policies.Woke:              {},
	policies.ReplicaRestarted:  {fReplica},
}

// sampleBit is the bit of Sample.Has that says whether a field of a sample is known; 0 for other fields.
func (f field) sampleBit() policies.SampleField {
	switch f {
	case fRunning:
		return policies.HasRunning
	case fWaiting:
		return policies.HasWaiting
	case fSampleUsage:
		return policies.HasUsage
	case fQueryTokens, fSampleHits:
		return policies.HasPrefixCounters
	}
	return 0
}

// wide says whether an integer field has 64 bits.
func (f field) wide() bool {
	switch f {
	case fAttempt, fTurnAttempt, fTurnKey, fSampledAt, fQueryTokens, fSampleHits:
		return true
	}
	return false
}

// integer is the value of an integer field of x.
func (f field) integer(x *policies.Fact) int64 {
	switch f {
	case fAttempt:
		return int64(x.Attempt)
	case fReplica:
		return int64(x.Replica)
	case fSession:
		return int64(x.Session)
	case fThread:
		return int64(x.Thread)
	case fPrompt:
		return int64(x.PromptTokens)
	case fOutput:
		return int64(x.OutputTokens)
	case fHit:
		return int64(x.HitTokens)
	case fPreemptions:
		return int64(x.Preemptions)
	case fStream:
		return int64(x.Stream)
	case fLo:
		return int64(x.Lo)
	case fHi:
		return int64(x.Hi)
	case fBlockTokens:
		return int64(x.BlockTokens)
	case fSampledAt:
		return int64(x.Sample.At)
	case fRunning:
		return int64(x.Sample.Running)
	case fWaiting:
		return int64(x.Sample.Waiting)
	case fQueryTokens:
		return x.Sample.QueryTokens
	case fSampleHits:
		return x.Sample.HitTokens
	}
	return f.ofTurn(&x.Turn)
}

func (f field) ofTurn(t *policies.Turn) int64 {
	switch f {
	case fTurnAttempt:
		return int64(t.Attempt)
	case fTurnSession:
		return int64(t.Session)
	case fTurnThread:
		return int64(t.Thread)
	case fTurnNumber:
		return int64(t.Number)
	case fTurnRetry:
		return int64(t.Retry)
	case fTurnStream:
		return int64(t.Prompt.Stream)
	case fTurnPrompt:
		return int64(t.Prompt.Tokens)
	case fTurnMaxTokens:
		return int64(t.MaxTokens)
	case fTurnClass:
		return int64(t.Class)
	case fTurnKey:
		return t.Key
	}
	return int64(t.Group)
}

// setInteger sets an integer field of x; n fits.
func (f field) setInteger(x *policies.Fact, n int64) {
	switch f {
	case fAttempt:
		x.Attempt = policies.AttemptID(n)
	case fReplica:
		x.Replica = policies.ReplicaID(n)
	case fSession:
		x.Session = policies.SessionID(n)
	case fThread:
		x.Thread = policies.ThreadID(n)
	case fPrompt:
		x.PromptTokens = int32(n)
	case fOutput:
		x.OutputTokens = int32(n)
	case fHit:
		x.HitTokens = int32(n)
	case fPreemptions:
		x.Preemptions = int32(n)
	case fStream:
		x.Stream = prefix.StreamID(n)
	case fLo:
		x.Lo = int32(n)
	case fHi:
		x.Hi = int32(n)
	case fBlockTokens:
		x.BlockTokens = int32(n)
	case fSampledAt:
		x.Sample.At = policies.Time(n)
	case fRunning:
		x.Sample.Running = int32(n)
	case fWaiting:
		x.Sample.Waiting = int32(n)
	case fQueryTokens:
		x.Sample.QueryTokens = n
	case fSampleHits:
		x.Sample.HitTokens = n
	default:
		f.setOfTurn(&x.Turn, n)
	}
}

func (f field) setOfTurn(t *policies.Turn, n int64) {
	switch f {
	case fTurnAttempt:
		t.Attempt = policies.AttemptID(n)
	case fTurnSession:
		t.Session = policies.SessionID(n)
	case fTurnThread:
		t.Thread = policies.ThreadID(n)
	case fTurnNumber:
		t.Number = int32(n)
	case fTurnRetry:
		t.Retry = int32(n)
	case fTurnStream:
		t.Prompt.Stream = prefix.StreamID(n)
	case fTurnPrompt:
		t.Prompt.Tokens = int32(n)
	case fTurnMaxTokens:
		t.MaxTokens = int32(n)
	case fTurnClass:
		t.Class = int32(n)
	case fTurnGroup:
		t.Group = int32(n)
	case fTurnKey:
		t.Key = n
	}
}
