package traces

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/sluice-sim/sluice/prefix"
)

// ReadNative reads a file that WriteNative wrote and checks all that Validate checks. Damage anywhere in the file is an
// InputError.
func ReadNative(path string, limits Limits) (*Trace, error) {
	limits = limits.orDefault()
	var buf bytes.Buffer
	if err := readDocument(path, limits, &buf); err != nil {
		return nil, err
	}
	tr, err := parseNative(buf.Bytes(), limits)
	if err != nil {
		return nil, at(err, path, 0)
	}
	return tr, nil
}

// parseNative turns panics of the Parquet library into errors: the checksum keeps damaged files from it, but not files
// that somebody made to break it.
func parseNative(b []byte, limits Limits) (tr *Trace, err error) {
	defer func() {
		if p := recover(); p != nil {
			tr, err = nil, &InputError{Found: "Parquet that cannot be decoded", Expected: "a file written by sluice", Err: fmt.Errorf("%v", p)}
		}
	}()
	if err := checkNative(b); err != nil {
		return nil, err
	}
	file, err := openParquet(bytes.NewReader(b), int64(len(b)), limits)
	if err != nil {
		return nil, err
	}
	tr = &Trace{Tree: &prefix.Tree{}}
	n, err := newNativeReader(file, limits, &growth{tree: tr.Tree})
	if err != nil {
		return nil, err
	}
	defer n.Close()
	tr.Name, tr.Models, tr.Groups, tr.Report = n.about.Name, n.about.Models, n.about.Groups, n.about.Report
	for {
		s, err := n.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		tr.Sessions = append(tr.Sessions, *s)
	}
	if p := Validate(tr); len(p) > 0 {
		return nil, &InputError{Found: p[0].String(), Expected: "a valid trace"}
	}
	return tr, nil
}

// checkNative checks the magic, the footer length and the checksum.
func checkNative(b []byte) error {
	if len(b) < 12 || string(b[:4]) != parquetMagic {
		return &InputError{Found: "no Parquet file", Expected: "a file that begins with PAR1"}
	}
	damaged := &InputError{Found: "a damaged or truncated file", Expected: "a complete one", Do: "convert the source again"}
	if string(b[len(b)-4:]) != parquetMagic {
		return damaged
	}
	digits := checksumDigits(b)
	if digits == nil {
		damaged.Found, damaged.Expected = "no checksum of sluice's trace format", "a trace that sluice wrote"
		return damaged
	}
	var recorded [sha256.Size]byte
	if _, err := hex.Decode(recorded[:], digits); err != nil {
		return damaged
	}
	text := string(digits)
	for i := range digits {
		digits[i] = '0'
	}
	sum := sha256.Sum256(b)
	copy(digits, text)
	if sum != recorded {
		return damaged
	}
	return nil
}

// openParquet opens a file whose checksum is right.
func openParquet(r io.ReaderAt, size int64, limits Limits) (*parquet.File, error) {
	file, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, &InputError{Found: "a Parquet footer that cannot be decoded", Expected: "a file written by sluice", Err: err}
	}
	if v, _ := file.Lookup(keyVersion); v != nativeVersion {
		return nil, &InputError{Key: keyVersion, Found: shorten(v), Expected: nativeVersion, Do: "read it with the sluice that wrote it"}
	}
	if file.NumRows() > limits.Rows {
		return nil, overLimit("turns", "Rows", limits.Rows)
	}
	bytes := int64(0)
	for _, g := range file.Metadata().RowGroups {
		if bytes += max(0, g.TotalByteSize); bytes > limits.Bytes {
			return nil, overLimit("bytes after decompression", "Bytes", limits.Bytes)
		}
	}
	return file, nil
}

// nativeReader puts rows together to sessions; what Validate checks is left to it. It is a Cursor.
type nativeReader struct {
	limits  Limits
	streams *growth
	about   About // name, models, groups and report
	models  map[string]int32
	groups  map[string]int32

	file    *parquet.GenericReader[nativeTurn]
	rows    []nativeTurn
	read    int   // of rows, those that hold something
	used    int   // of these
	number  int64 // of the row at hand, from 1
	session int32 // of the session at hand
	ended   bool
}

func newNativeReader(file *parquet.File, limits Limits, s *growth) (*nativeReader, error) {
	n := &nativeReader{limits: limits, streams: s, rows: make([]nativeTurn, 256), session: -1}
	n.about.Name, _ = file.Lookup(keyName)
	for key, to := range map[string]any{keyModels: &n.about.Models, keyGroups: &n.about.Groups, keyReport: &n.about.Report} {
		text, _ := file.Lookup(key)
		if err := json.Unmarshal([]byte(text), to); err != nil {
			return nil, &InputError{Key: key, Found: shorten(text), Expected: "JSON", Err: err}
		}
	}
	n.models, n.groups = indexNames(n.about.Models), indexNames(n.about.Groups)
	n.file = parquet.NewGenericReader[nativeTurn](file)
	return n, nil
}

func indexNames(names []string) map[string]int32 {
	m := make(map[string]int32, len(names))
	for i, name := range names {
		m[name] = int32(i)
	}
	return m
}

func (n *nativeReader) Close() error { return n.file.Close() }

// Next implements Cursor.
func (n *nativeReader) Next() (*Session, error) {
	var s *Session
	for {
		if n.used == n.read {
			if err := n.fill(); err != nil {
				return nil, err
			}
		}
		if n.read == 0 || s != nil && n.rows[n.used].Session != n.session {
			break
		}
		r := &n.rows[n.used]
		if s == nil {
			var err error
			if s, err = n.begin(r); err != nil {
				return nil, at(err, "", n.number+1)
			}
		}
		if err := n.row(s, r); err != nil {
			return nil, at(err, "", n.number+1)
		}
		n.used++
		n.number++
	}
	if s == nil {
		return nil, io.EOF
	}
	return s, nil
}

// fill reads on; read is 0 at the end.
func (n *nativeReader) fill() error {
	n.used, n.read = 0, 0
	for !n.ended && n.read == 0 {
		clear(n.rows) // the reader appends to lists that it finds
		k, err := n.file.Read(n.rows)
		n.read = k
		if errors.Is(err, io.EOF) {
			n.ended = true
		} else if err != nil {
			return &InputError{Line: n.number + 1, Found: "rows that cannot be decoded", Expected: "a file written by sluice", Err: err}
		}
	}
	return nil
}

// begin is the session whose first turn is r.
func (n *nativeReader) begin(r *nativeTurn) (*Session, error) {
	if r.Session != n.session+1 {
		return nil, &InputError{Key: "session", Found: fmt.Sprint(r.Session), Expected: fmt.Sprintf("%d or %d, sessions in order", n.session, n.session+1)}
	}
	n.session++
	if int64(n.session) >= n.limits.Sessions {
		return nil, overLimit("sessions", "Sessions", n.limits.Sessions)
	}
	s := &Session{Name: r.SessionName, StartNS: unknownIfNil(r.SessionStartNS), Group: -1, Threads: r.SessionThreads}
	if r.Group != nil {
		g, ok := n.groups[*r.Group]
		if !ok {
			return nil, &InputError{Key: "group", Found: shorten(*r.Group), Expected: "a name of " + keyGroups}
		}
		s.Group = g
	}
	return s, nil
}

// row adds one turn.
func (n *nativeReader) row(s *Session, r *nativeTurn) error {
	if int64(len(s.Turns)) >= n.limits.TurnsPerSession {
		return overLimit("turns in one session", "TurnsPerSession", n.limits.TurnsPerSession)
	}
	if int64(len(r.SessionName)) > n.limits.StringLen || int64(len(r.Model)) > n.limits.StringLen {
		return overLimit("bytes in a name", "StringLen", n.limits.StringLen)
	}
	model, ok := n.models[r.Model]
	if !ok {
		return &InputError{Key: "model", Found: shorten(r.Model), Expected: "a name of " + keyModels}
	}
	if err := n.newStreams(r); err != nil {
		return err
	}
	if len(r.DepTurn) != len(r.DepDelayNS) || len(r.DepTurn) != len(r.DepOnDispatch) {
		return &InputError{Key: "dep_turn", Found: "lists of different length", Expected: "dep_turn, dep_on_dispatch and dep_delay_ns of one length"}
	}
	t := Turn{Thread: r.Thread, Number: r.Turn, Model: model, OutputTokens: r.OutputTokens,
		Prompt:  prefix.Prefix{Stream: prefix.StreamID(r.Stream), Tokens: r.PromptTokens},
		StartNS: r.StartNS, DurationNS: unknownIfNil(r.DurationNS), DepLo: int32(len(s.Deps))}
	for i := range r.DepTurn {
		d := Dep{Turn: r.DepTurn[i], DelayNS: r.DepDelayNS[i]}
		if r.DepOnDispatch[i] {
			d.On = OnDispatch
		}
		s.Deps = append(s.Deps, d)
	}
	t.DepHi = int32(len(s.Deps))
	s.Turns = append(s.Turns, t)
	return nil
}

// newStreams adds the streams that begin with a row.
func (n *nativeReader) newStreams(r *nativeTurn) error {
	if len(r.StreamParent) != len(r.StreamForkAt) {
		return &InputError{Key: "new_stream_parent", Found: "lists of different length", Expected: "new_stream_parent and new_stream_fork_at of one length"}
	}
	for i, parent := range r.StreamParent {
		tree, fork := n.streams.tree, r.StreamForkAt[i]
		switch {
		case parent == int32(prefix.None) && fork == 0:
			n.streams.root()
		case parent >= 0 && int(parent) < tree.Len() && fork > tree.Stream(prefix.StreamID(parent)).ForkAt:
			n.streams.fork(prefix.Prefix{Stream: prefix.StreamID(parent), Tokens: fork})
		default:
			return &InputError{Key: "new_stream_parent", Found: fmt.Sprintf("%d, forked at token %d", parent, fork),
				Expected: "-1 and 0, or an earlier stream that owns the token"}
		}
	}
	return nil
}

func unknownIfNil(ns *int64) int64 {
	if ns == nil {
		return Unknown
	}
	return *ns
}
