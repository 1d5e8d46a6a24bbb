package decisionlog

import (
	"math"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Step is one Step of a core.
type Step struct {
	Number int64 // from 1
	policies.Entry
	Answers []Answer // what the oracle said, in the order in which it was asked
	Scores  []Scores // of the dispatches that the router judged, in their order
}

// Answer is what an oracle said.
type Answer struct {
	Attempt    policies.AttemptID
	Replica    policies.ReplicaID
	Completion policies.Time
}

// Scores is how the router judged the replicas for an attempt.
type Scores struct {
	Attempt policies.AttemptID
	Of      []policies.ReplicaScore
}

// Append appends the header's line.
func (h *Header) Append(b []byte) []byte {
	b = append(b, `{"decision_log":`...)
	b = strconv.AppendInt(b, Format, 10)
	b = appendText(append(b, `,"sluice":`...), h.Sluice)
	b = strconv.AppendUint(append(b, `,"seed":`...), h.Seed, 10)
	b = h.Gate.append(append(b, `,"gate":`...))
	b = h.Router.append(append(b, `,"router":`...))
	b = h.Retention.append(append(b, `,"retention":`...))
	if h.Scores.Scored {
		best := "highest"
		if h.Scores.Lowest {
			best = "lowest"
		}
		b = appendText(append(b, `,"scores":{"best":`...), best)
		b = append(appendTexts(append(b, `,"terms":`...), h.Scores.Terms), '}')
	}
	b = appendTexts(append(b, `,"signals":`...), h.Signals.Names())
	b = appendInt(b, `,"instances":`, int64(max(h.Instances, 1)))
	b = appendCapability(append(b, `,"capability":`...), &h.Capability)
	b = append(b, `,"replicas":[`...)
	for i := range h.Capabilities {
		b = appendCapability(comma(b, i), &h.Capabilities[i])
	}
	return append(b, "]}\n"...)
}

func (p *Policy) append(b []byte) []byte {
	b = appendText(append(b, `{"name":`...), p.Name)
	b = append(b, `,"knobs":{`...)
	for i := range p.Knobs {
		k := &p.Knobs[i]
		b = append(appendText(comma(b, i), k.Name), ':')
		switch k.Kind {
		case policies.BoolKnob:
			b = strconv.AppendBool(b, k.Value.Bool)
		case policies.EnumKnob:
			b = appendText(b, k.Value.Text)
		default:
			b = appendFloat(b, k.Value.Number)
		}
	}
	return append(b, "}}"...)
}

func appendCapability(b []byte, c *policies.Capability) []byte {
	b = appendInt(b, `{"kv_tokens":`, c.KVTokens)
	b = appendInt(b, `,"block_tokens":`, int64(c.BlockTokens))
	b = appendFloat(append(b, `,"prefill_tokens_per_s":`...), c.PrefillTokensPerSec)
	b = appendFloat(append(b, `,"attention_doubling_tokens":`...), c.AttentionDoubling)
	return append(appendInt(b, `,"max_batched_tokens":`, int64(c.MaxBatchedTokens)), '}')
}

// streamsPerLine bounds the lines that tell of new streams.
const streamsPerLine = 4096

// AppendStreams appends lines for the streams of tree from first on, of which nothing was released.
func AppendStreams(b []byte, tree *prefix.Tree, first int) []byte {
	return appendStreams(b, tree, first, func(prefix.StreamID) bool { return false })
}

// appendStreams writes those that are later as roots: another line says what they are.
func appendStreams(b []byte, tree *prefix.Tree, first int, later func(prefix.StreamID) bool) []byte {
	for first < tree.Len() {
		b = appendInt(b, `{"first_stream":`, int64(first))
		b = append(b, `,"streams":[`...)
		last := min(tree.Len(), first+streamsPerLine)
		for i := first; i < last; i++ {
			s := tree.Stream(prefix.StreamID(i))
			if later(prefix.StreamID(i)) {
				s = prefix.Stream{Parent: prefix.None}
			}
			b = appendInt(comma(b, i-first), "[", int64(s.Parent))
			b = append(appendInt(b, ",", int64(s.ForkAt)), ']')
		}
		b = append(b, "]}\n"...)
		first = last
	}
	return b
}

// Append appends the step's line. form is that of the log's header.
func (s *Step) Append(b []byte, form *ScoreForm) []byte {
	b = appendInt(b, `{"step":`, s.Number)
	b = appendInt(b, `,"now_ns":`, int64(s.Now))
	b = append(b, `,"facts":[`...)
	for i := range s.Facts {
		b = appendFact(comma(b, i), &s.Facts[i])
	}
	b = append(b, ']')
	if len(s.Answers) > 0 {
		b = append(b, `,"oracle":[`...)
		for i, a := range s.Answers {
			b = appendInt(comma(b, i), "[", int64(a.Attempt))
			b = appendInt(b, ",", int64(a.Replica))
			b = append(appendInt(b, ",", int64(a.Completion)), ']')
		}
		b = append(b, ']')
	}
	b = append(b, `,"commands":[`...)
	scores := s.Scores
	for i := range s.Commands {
		c := &s.Commands[i]
		b = appendCommand(comma(b, i), c)
		if c.Kind == policies.Dispatch && len(scores) > 0 && scores[0].Attempt == c.Attempt {
			b = appendScores(b, scores[0].Of, form)
			scores = scores[1:]
		}
		b = append(b, '}')
	}
	return append(b, "]}\n"...)
}

func appendFact(b []byte, f *policies.Fact) []byte {
	b = appendText(append(b, `{"fact":`...), f.Kind.String())
	if int(f.Kind) >= len(factFields) {
		return append(b, '}')
	}
	for _, x := range factFields[f.Kind] {
		if bit := x.sampleBit(); bit != 0 && f.Sample.Has&bit == 0 || x == fTurnKey && f.Turn.Key == 0 {
			continue
		}
		b = append(append(append(b, `,"`...), fieldNames[x]...), `":`...)
		switch x {
		case fOutcome:
			b = appendText(b, f.Outcome.String())
		case fUsage:
			b = appendFloat(b, f.Usage)
		case fSampleUsage:
			b = appendFloat(b, f.Sample.Usage)
		default:
			b = strconv.AppendInt(b, x.integer(f), 10)
		}
	}
	return append(b, '}')
}

// appendCommand leaves the closing brace out. Fields at their zero (for replicas, none) are left out.
func appendCommand(b []byte, c *policies.Command) []byte {
	b = appendText(append(b, `{"command":`...), c.Kind.String())
	b = appendInt(b, `,"attempt":`, int64(c.Attempt))
	if c.Replica != policies.NoReplica {
		b = appendInt(b, `,"replica":`, int64(c.Replica))
	}
	if c.Reason != policies.NoReason {
		b = appendText(append(b, `,"reason":`...), c.Reason.String())
	}
	if c.RetryAfter != 0 {
		b = appendInt(b, `,"retry_after_ns":`, int64(c.RetryAfter))
	}
	if c.Until != 0 {
		b = appendInt(b, `,"until_ns":`, int64(c.Until))
	}
	return b
}

func appendScores(b []byte, of []policies.ReplicaScore, form *ScoreForm) []byte {
	b = append(b, `,"scores":[`...)
	for i := range of {
		b = appendInt(comma(b, i), `{"replica":`, int64(of[i].Replica))
		b = appendFloat(append(b, `,"score":`...), of[i].Score)
		for k, name := range form.Terms {
			b = append(appendText(append(b, ','), name), ':')
			b = appendFloat(b, of[i].Terms[k])
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

func appendInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(b, key...), n, 10)
}

func appendText(b []byte, s string) []byte { return append(append(append(b, '"'), s...), '"') }

func appendTexts(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		b = appendText(comma(b, i), s)
	}
	return append(b, ']')
}

// appendFloat writes the shortest number that reads back as x; what is not a number is null, infinities are text.
func appendFloat(b []byte, x float64) []byte {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return append(b, "null"...)
	case math.IsInf(x, 0):
		if x > 0 {
			return append(b, `"inf"`...)
		}
		return append(b, `"-inf"`...)
	case a != 0 && (a < 1e-6 || a >= 1e21):
		return strconv.AppendFloat(b, x, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, x, 'f', -1, 64)
}
