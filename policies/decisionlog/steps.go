package decisionlog

import (
	"math"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
)

// readStep takes in the rest of a step's line, after {"step":.
func (d *Decoder) readStep(c *cursor) {
	s := &d.step
	s.Facts, s.Commands, s.Answers, s.Scores = s.Facts[:0], s.Commands[:0], s.Answers[:0], s.Scores[:0]
	s.Number = c.integer(d.steps+1, d.steps+1)
	c.want(`,"now_ns":`)
	s.Now = policies.Time(c.integer(int64(d.now), math.MaxInt64))
	c.want(`,"facts":[`)
	for c.more(len(s.Facts) == 0, "]") {
		s.Facts = append(s.Facts, policies.Fact{Replica: policies.NoReplica})
		d.readFact(c, &s.Facts[len(s.Facts)-1])
	}
	if c.try(`,"oracle":[`) {
		for c.more(len(s.Answers) == 0, "]") {
			s.Answers = append(s.Answers, readAnswer(c))
		}
		if len(s.Answers) == 0 {
			c.fail("an answer")
		}
	}
	c.want(`,"commands":[`)
	for c.more(len(s.Commands) == 0, "]") {
		s.Commands = append(s.Commands, policies.Command{Replica: policies.NoReplica})
		d.readCommand(c, &s.Commands[len(s.Commands)-1])
	}
	c.want("}")
	if c.err == nil {
		d.steps, d.now = s.Number, s.Now
	}
}

func readAnswer(c *cursor) (a Answer) {
	c.want("[")
	a.Attempt = policies.AttemptID(c.integer(math.MinInt64, math.MaxInt64))
	c.want(",")
	a.Replica = policies.ReplicaID(c.integer(math.MinInt32, math.MaxInt32))
	c.want(",")
	a.Completion = policies.Time(c.integer(math.MinInt64, math.MaxInt64))
	c.want("]")
	return a
}

func (d *Decoder) readFact(c *cursor, f *policies.Fact) {
	c.want(`{"fact":`)
	f.Kind = named(c, "the name of a fact", policies.ParseFactKind)
	for _, x := range factFields[f.Kind] {
		key := `,"` + fieldNames[x] + `":`
		if x == fTurnKey {
			if c.try(key) {
				if f.Turn.Key = c.integer(math.MinInt64, math.MaxInt64); f.Turn.Key == 0 {
					c.fail("no key 0, which is left out")
				}
			}
			continue
		}
		if bit := x.sampleBit(); bit == 0 || x == fSampleHits && f.Sample.Has&bit != 0 {
			c.want(key)
		} else if x == fSampleHits || !c.try(key) {
			continue
		} else {
			f.Sample.Has |= bit
		}
		switch x {
		case fOutcome:
			f.Outcome = named(c, "value, timeout or unsupported", policies.ParseProbeOutcome)
		case fUsage:
			f.Usage = c.float()
		case fSampleUsage:
			f.Sample.Usage = c.float()
		default:
			least, most := d.bounds(x)
			x.setInteger(f, c.integer(least, most))
		}
	}
	c.want("}")
}

// bounds are what an integer field may hold. The core keeps memory for every stream, session and thread up to the largest, so
// these are bounded beyond their type.
func (d *Decoder) bounds(x field) (least, most int64) {
	switch x {
	case fStream, fTurnStream:
		return -1, int64(d.Tree.Len()) - 1
	case fSession, fThread, fTurnSession, fTurnThread:
		return math.MinInt32, maxIDs
	}
	if x.wide() {
		return math.MinInt64, math.MaxInt64
	}
	return math.MinInt32, math.MaxInt32
}

func (d *Decoder) readCommand(c *cursor, x *policies.Command) {
	c.want(`{"command":`)
	x.Kind = named(c, "the name of a command", policies.ParseCommandKind)
	c.want(`,"attempt":`)
	x.Attempt = policies.AttemptID(c.integer(math.MinInt64, math.MaxInt64))
	if c.try(`,"replica":`) {
		x.Replica = policies.ReplicaID(c.integer(math.MinInt32, math.MaxInt32))
		if x.Replica == policies.NoReplica {
			c.fail("no replica -1: a command without a replica names none")
		}
	}
	if c.try(`,"reason":`) {
		x.Reason = named(c, "the name of a reason", policies.ParseReason)
		if x.Reason == policies.NoReason {
			c.fail("no empty reason: a command without a reason names none")
		}
	}
	x.RetryAfter = optionalTime(c, `,"retry_after_ns":`)
	x.Until = optionalTime(c, `,"until_ns":`)
	if x.Kind == policies.Dispatch && d.Header.Scores.Scored && c.try(`,"scores":[`) {
		d.step.Scores = append(d.step.Scores, Scores{Attempt: x.Attempt, Of: d.readScores(c)})
	}
	c.want("}")
}

func optionalTime(c *cursor, key string) policies.Time {
	if !c.try(key) {
		return 0
	}
	n := c.integer(math.MinInt64, math.MaxInt64)
	if n == 0 {
		c.fail("no 0, which is left out")
	}
	return policies.Time(n)
}

func (d *Decoder) readScores(c *cursor) []policies.ReplicaScore {
	var list []policies.ReplicaScore
	for c.more(len(list) == 0, "]") {
		if len(list) == len(d.Header.Capabilities) {
			c.fail("at most " + strconv.Itoa(len(list)) + " scores, one for each replica")
			return list
		}
		var s policies.ReplicaScore
		c.want(`{"replica":`)
		s.Replica = policies.ReplicaID(c.integer(0, int64(len(d.Header.Capabilities))-1))
		c.want(`,"score":`)
		s.Score = c.float()
		for k, name := range d.Header.Scores.Terms {
			c.want(`,"` + name + `":`)
			s.Terms[k] = c.float()
		}
		c.want("}")
		list = append(list, s)
	}
	return list
}
