package decisionlog

import (
	"errors"
	"math"
	"strconv"
)

// cursor reads a line in the canonical form. The first error stays.
type cursor struct {
	line []byte
	at   int
	err  error
	buf  [32]byte
}

func (c *cursor) fail(want string) {
	if c.err != nil {
		return
	}
	found := "the end of the line"
	if c.at < len(c.line) && c.line[c.at] != '\n' {
		found = strconv.Quote(string(c.line[c.at:min(len(c.line), c.at+24)]))
	}
	c.err = errors.New("byte " + strconv.Itoa(c.at+1) + ": found " + found + ", expected " + want)
}

// try passes s if it is next.
func (c *cursor) try(s string) bool {
	if c.err != nil || len(c.line)-c.at < len(s) || string(c.line[c.at:c.at+len(s)]) != s {
		return false
	}
	c.at += len(s)
	return true
}

// want passes s, which must be next.
func (c *cursor) want(s string) {
	if !c.try(s) {
		if s == "\n" {
			s = "the end of the line"
		}
		c.fail(s)
	}
}

// more is whether a list that ends with end goes on; it passes the comma or the end. first says that no element has been
// read.
func (c *cursor) more(first bool, end string) bool {
	if c.err != nil || c.try(end) {
		return false
	}
	if !first {
		c.want(",")
	}
	return c.err == nil
}

func (c *cursor) token() []byte {
	end := c.at
	for end < len(c.line) && end-c.at < 400 {
		switch b := c.line[end]; {
		case b >= '0' && b <= '9', b == '-', b == '+', b == '.', b == 'e':
			end++
			continue
		}
		break
	}
	return c.line[c.at:end]
}

// integer reads a whole number from least to most.
func (c *cursor) integer(least, most int64) int64 {
	if c.err != nil {
		return 0
	}
	t := c.token()
	n, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil || n < least || n > most || string(strconv.AppendInt(c.buf[:0], n, 10)) != string(t) {
		c.fail("a whole number from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10))
		return 0
	}
	c.at += len(t)
	return n
}

func (c *cursor) unsigned() uint64 {
	if c.err != nil {
		return 0
	}
	t := c.token()
	n, err := strconv.ParseUint(string(t), 10, 64)
	if err != nil || string(strconv.AppendUint(c.buf[:0], n, 10)) != string(t) {
		c.fail("a whole number of 64 bits")
		return 0
	}
	c.at += len(t)
	return n
}

// float reads a number, null or an infinity.
func (c *cursor) float() float64 {
	switch {
	case c.err != nil:
		return 0
	case c.try("null"):
		return math.NaN()
	case c.try(`"inf"`):
		return math.Inf(1)
	case c.try(`"-inf"`):
		return math.Inf(-1)
	}
	t := c.token()
	x, err := strconv.ParseFloat(string(t), 64)
	if err != nil || string(appendFloat(c.buf[:0], x)) != string(t) {
		c.fail("a number in its shortest form")
		return 0
	}
	c.at += len(t)
	return x
}

// text reads a string of printable ASCII.
func (c *cursor) text() string {
	c.want(`"`)
	if c.err != nil {
		return ""
	}
	for end := c.at; end < len(c.line) && end-c.at <= maxText; end++ {
		if c.line[end] == '"' {
			s := string(c.line[c.at:end])
			if !plain(s) {
				break
			}
			c.at = end + 1
			return s
		}
	}
	c.fail("a string of at most " + strconv.Itoa(maxText) + " printable ASCII characters, and its end")
	return ""
}

// named reads a string that parse knows.
func named[T any](c *cursor, what string, parse func(string) (T, bool)) T {
	at := c.at
	v, ok := parse(c.text())
	if !ok && c.err == nil {
		c.at = at
		c.fail(what)
	}
	return v
}
