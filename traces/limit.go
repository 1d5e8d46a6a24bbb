package traces

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits bounds what a reader accepts, so that a damaged or hostile file costs an error and not the machine. A field of
// 0 takes the default of DefaultLimits.
type Limits struct {
	Bytes           int64 // of one import, after decompression
	Document        int64 // bytes, after decompression, of a file that is read whole: one JSON document, or Parquet
	Line            int64 // bytes of one line of a JSON lines file
	Rows            int64 // requests of one import
	Sessions        int64 // sessions of one import
	TurnsPerSession int64
	BlocksPerTurn   int64
	StringLen       int64 // bytes of one string
	Depth           int64 // nesting of JSON
}

// DefaultLimits is generous for recorded traces: the largest public sources stay below a tenth of it.
func DefaultLimits() Limits {
	return Limits{
		Bytes:           64 << 30,
		Document:        512 << 20,
		Line:            16 << 20,
		Rows:            50_000_000,
		Sessions:        20_000_000,
		TurnsPerSession: 1_000_000,
		BlocksPerTurn:   1 << 20,
		StringLen:       64 << 10,
		Depth:           64,
	}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ have, def *int64 }{
		{&l.Bytes, &d.Bytes}, {&l.Document, &d.Document}, {&l.Line, &d.Line}, {&l.Rows, &d.Rows},
		{&l.Sessions, &d.Sessions}, {&l.TurnsPerSession, &d.TurnsPerSession}, {&l.BlocksPerTurn, &d.BlocksPerTurn},
		{&l.StringLen, &d.StringLen}, {&l.Depth, &d.Depth},
	} {
		if *f.have <= 0 {
			*f.have = *f.def
		}
	}
	return l
}

// InputError is a fault of the input, as against one of the program or the machine. Empty parts are left out of the
// message.
type InputError struct {
	File     string
	Line     int64  // of a text file, or row of a table, from 1; 0 when there is none
	Key      string // path of the value, for example requests[4].in
	Found    string
	Expected string
	Do       string // what the user can do
	Err      error  // cause, nil when there is none
}

func (e *InputError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, ": %s", e.Key)
	}
	if e.Found != "" {
		fmt.Fprintf(&b, ": found %s", e.Found)
	}
	if e.Expected != "" {
		fmt.Fprintf(&b, ", expected %s", e.Expected)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, " (%v)", e.Err)
	}
	if e.Do != "" {
		fmt.Fprintf(&b, "; %s", e.Do)
	}
	return strings.TrimPrefix(b.String(), ": ")
}

func (e *InputError) Unwrap() error { return e.Err }

// at adds the file and line to an InputError that lacks them and passes every other error on.
func at(err error, file string, line int64) error {
	var in *InputError
	if errors.As(err, &in) {
		if in.File == "" {
			in.File = file
		}
		if in.Line == 0 {
			in.Line = line
		}
	}
	return err
}

func overLimit(what, name string, limit int64) *InputError {
	return &InputError{
		Found:    "more than " + fmt.Sprint(limit) + " " + what,
		Expected: fmt.Sprintf("at most that (limit %s)", name),
		Do:       "split the input",
	}
}

// countingReader counts the bytes that it hands on and fails once they exceed the limit, whatever the compressed size
// was.
type countingReader struct {
	r         io.Reader
	n         int64
	limit     int64
	limitName string
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n > c.limit {
		return 0, overLimit("bytes after decompression", c.limitName, c.limit)
	}
	return n, err
}
