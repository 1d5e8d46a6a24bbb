package decisionlog

import (
	"errors"
	"math"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Decoder takes the lines of a log in order. Its tree grows with them.
type Decoder struct {
	Header Header
	Tree   *prefix.Tree
	lines  int
	steps  int64
	now    policies.Time
	step   Step

	changed bool // the last line was a header that changes knobs

	children []int32 // by stream: how many fork from it
}

// NewDecoder returns a decoder that expects the header.
func NewDecoder() *Decoder { return &Decoder{Tree: &prefix.Tree{}} }

// Line is the number of the line that was taken last, from 1.
func (d *Decoder) Line() int { return d.lines }

// Steps is the number of steps taken.
func (d *Decoder) Steps() int64 { return d.steps }

// Take takes the next line, with its line feed. It returns the step of the line, nil if the line tells of something else; the
// step is valid until the next call. The error names the line.
func (d *Decoder) Take(line []byte) (*Step, error) {
	d.lines++
	s, err := d.take(line)
	if err != nil {
		return nil, errors.New("line " + strconv.Itoa(d.lines) + ": " + err.Error())
	}
	return s, nil
}

// End is called after the last line; it is an error if there was none.
func (d *Decoder) End() error {
	if d.lines == 0 {
		return errors.New("line 1: the file is empty, expected the first line of a decision log")
	}
	return nil
}

func (d *Decoder) take(line []byte) (*Step, error) {
	if len(line) > MaxLineBytes {
		return nil, errors.New("longer than " + strconv.Itoa(MaxLineBytes) + " bytes")
	}
	if n := len(line); n == 0 || line[n-1] != '\n' {
		return nil, errors.New("the line is cut off after " + strconv.Itoa(n) + " bytes: expected a line feed at its end (was the writer stopped?)")
	}
	c := &cursor{line: line}
	var step *Step
	d.changed = false
	switch {
	case d.lines == 1:
		d.Header = readHeader(c)
	case bytesBegin(line, changeMark):
		d.change(c)
	case c.try(`{"step":`):
		d.readStep(c)
		step = &d.step
	case c.try(`{"first_stream":`):
		d.streams(c)
	case c.try(`{"streams_again":[`):
		d.streamsAgain(c)
	default:
		c.fail(`{"step":, {"first_stream":, {"streams_again": or {"decision_log":`)
	}
	c.want("\n")
	if c.err == nil && c.at != len(line) {
		c.fail("the end of the line")
	}
	if c.err != nil {
		return nil, c.err
	}
	return step, nil
}

// bytesBegin says whether line begins with a text.
func bytesBegin(line []byte, with string) bool {
	return len(line) >= len(with) && string(line[:len(with)]) == with
}

func readHeader(c *cursor) (h Header) {
	if !c.try(changeMark) {
		c.fail(`the first line of a decision log, {"decision_log":` + strconv.Itoa(Format))
		return h
	}
	if v := c.integer(0, math.MaxInt32); c.err == nil && v != Format {
		c.err = errors.New("a decision log of version " + strconv.FormatInt(v, 10) + ", expected " + strconv.Itoa(Format) + "; write it again with this version of sluice")
		return h
	}
	c.want(`,"sluice":`)
	h.Sluice = c.text()
	c.want(`,"seed":`)
	h.Seed = c.unsigned()
	c.want(`,"gate":`)
	h.Gate = readPolicy(c)
	c.want(`,"router":`)
	h.Router = readPolicy(c)
	c.want(`,"retention":`)
	h.Retention = readPolicy(c)
	if c.try(`,"scores":{"best":`) {
		h.Scores.Scored = true
		h.Scores.Lowest = named(c, `"lowest" or "highest"`, func(s string) (bool, bool) { return s == "lowest", s == "lowest" || s == "highest" })
		c.want(`,"terms":`)
		h.Scores.Terms = readTexts(c, policies.MaxScoreTerms)
		c.want("}")
	}
	c.want(`,"signals":`)
	h.readSignals(c)
	c.want(`,"instances":`)
	h.Instances = int(c.integer(1, maxInstances))
	c.want(`,"capability":`)
	h.Capability = readCapability(c)
	c.want(`,"replicas":[`)
	for c.more(len(h.Capabilities) == 0, "]") {
		if len(h.Capabilities) == MaxReplicas {
			c.fail("at most " + strconv.Itoa(MaxReplicas) + " replicas")
			return h
		}
		h.Capabilities = append(h.Capabilities, readCapability(c))
	}
	if len(h.Capabilities) == 0 {
		c.fail("at least one replica")
	}
	c.want("}")
	return h
}

func (h *Header) readSignals(c *cursor) {
	c.want("[")
	for first := true; c.more(first, "]"); first = false {
		s := named(c, "the name of a signal, in the order of the documentation", policies.ParseSignal)
		if s <= h.Signals {
			c.fail("signals in the order of the documentation")
		}
		h.Signals |= s
	}
}

func readTexts(c *cursor, most int) []string {
	var list []string
	c.want("[")
	for c.more(len(list) == 0, "]") {
		if len(list) == most {
			c.fail("at most " + strconv.Itoa(most) + " names")
			return list
		}
		list = append(list, c.text())
	}
	return list
}

func readPolicy(c *cursor) Policy {
	var p Policy
	c.want(`{"name":`)
	p.Name = c.text()
	c.want(`,"knobs":{`)
	for c.more(len(p.Knobs) == 0, "}") {
		if len(p.Knobs) == maxKnobs {
			c.fail("at most " + strconv.Itoa(maxKnobs) + " knobs")
			return p
		}
		s := Setting{Name: c.text()}
		c.want(":")
		switch {
		case c.try("true"):
			s.Kind, s.Value.Bool = policies.BoolKnob, true
		case c.try("false"):
			s.Kind = policies.BoolKnob
		case c.at < len(c.line) && c.line[c.at] == '"':
			s.Kind, s.Value.Text = policies.EnumKnob, c.text()
		default:
			s.Kind, s.Value.Number = policies.FloatKnob, c.float()
		}
		p.Knobs = append(p.Knobs, s)
	}
	c.want("}")
	return p
}

func readCapability(c *cursor) (x policies.Capability) {
	c.want(`{"kv_tokens":`)
	x.KVTokens = c.integer(0, math.MaxInt64)
	c.want(`,"block_tokens":`)
	x.BlockTokens = int32(c.integer(0, math.MaxInt32))
	c.want(`,"prefill_tokens_per_s":`)
	x.PrefillTokensPerSec = c.float()
	c.want(`,"attention_doubling_tokens":`)
	x.AttentionDoubling = c.float()
	c.want(`,"max_batched_tokens":`)
	x.MaxBatchedTokens = int32(c.integer(0, math.MaxInt32))
	c.want("}")
	return x
}

// streams takes in new streams. Fork offsets grow along every path.
func (d *Decoder) streams(c *cursor) {
	n := int64(d.Tree.Len())
	c.integer(n, n)
	c.want(`,"streams":[`)
	for first := true; c.more(first, "]"); first = false {
		c.want("[")
		st := d.readStream(c)
		c.want("]")
		if c.err == nil {
			d.forked(st.Parent, 1)
			d.Tree.Fork(prefix.Prefix{Stream: st.Parent, Tokens: st.ForkAt})
		}
	}
	if c.err == nil && int64(d.Tree.Len()) == n || int64(d.Tree.Len()) > n+streamsPerLine {
		c.fail("1 to " + strconv.Itoa(streamsPerLine) + " streams")
	}
	c.want("}")
}
