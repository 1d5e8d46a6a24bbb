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
	file, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, &InputError{Found: "a Parquet footer that cannot be decoded", Expected: "a file written by sluice", Err: err}
	}
	if v, _ := file.Lookup(keyVersion); v != nativeVersion {
		return nil, &InputError{Key: keyVersion, Found: shorten(v), Expected: nativeVersion, Do: "read it with the sluice that wrote it"}
	}
	if file.NumRows() > limits.Rows {
		return nil, overLimit("turns", "Rows", limits.Rows)
	}
	size := int64(0)
	for _, g := range file.Metadata().RowGroups {
		if size += max(0, g.TotalByteSize); size > limits.Bytes {
			return nil, overLimit("bytes after decompression", "Bytes", limits.Bytes)
		}
	}
	n := nativeReader{limits: limits, tr: &Trace{Tree: &prefix.Tree{}}}
	if err := n.metadata(file); err != nil {
		return nil, err
	}
	if err := n.rows(file); err != nil {
		return nil, err
	}
	if p := Validate(n.tr); len(p) > 0 {
		return nil, &InputError{Found: p[0].String(), Expected: "a valid trace"}
	}
	return n.tr, nil
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

type nativeReader struct {
	limits Limits
	tr     *Trace
	models map[string]int32
	groups map[string]int32
}

func (n *nativeReader) metadata(file *parquet.File) error {
	n.tr.Name, _ = file.Lookup(keyName)
	for key, to := range map[string]any{keyModels: &n.tr.Models, keyGroups: &n.tr.Groups, keyReport: &n.tr.Report} {
		text, _ := file.Lookup(key)
		if err := json.Unmarshal([]byte(text), to); err != nil {
			return &InputError{Key: key, Found: shorten(text), Expected: "JSON", Err: err}
		}
	}
	n.models, n.groups = indexNames(n.tr.Models), indexNames(n.tr.Groups)
	return nil
}

func indexNames(names []string) map[string]int32 {
	m := make(map[string]int32, len(names))
	for i, name := range names {
		m[name] = int32(i)
	}
	return m
}

func (n *nativeReader) rows(file *parquet.File) error {
	r := parquet.NewGenericReader[nativeTurn](file)
	defer r.Close()
	rows := make([]nativeTurn, 256)
	for number := int64(1); ; {
		clear(rows) // the reader appends to lists that it finds
		k, err := r.Read(rows)
		for i := range rows[:k] {
			if err := n.row(&rows[i]); err != nil {
				return at(err, "", number)
			}
			number++
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &InputError{Line: number, Found: "rows that cannot be decoded", Expected: "a file written by sluice", Err: err}
		}
	}
}

// row adds one turn; what Validate checks is left to it.
func (n *nativeReader) row(r *nativeTurn) error {
	tr := n.tr
	last := len(tr.Sessions) - 1
	if int(r.Session) == last+1 {
		if int64(len(tr.Sessions)) >= n.limits.Sessions {
			return overLimit("sessions", "Sessions", n.limits.Sessions)
		}
		s := Session{Name: r.SessionName, StartNS: unknownIfNil(r.SessionStartNS), Group: -1, Threads: r.SessionThreads}
		if r.Group != nil {
			g, ok := n.groups[*r.Group]
			if !ok {
				return &InputError{Key: "group", Found: shorten(*r.Group), Expected: "a name of " + keyGroups}
			}
			s.Group = g
		}
		tr.Sessions = append(tr.Sessions, s)
	} else if last < 0 || int(r.Session) != last {
		return &InputError{Key: "session", Found: fmt.Sprint(r.Session), Expected: fmt.Sprintf("%d or %d, sessions in order", last, last+1)}
	}
	s := &tr.Sessions[len(tr.Sessions)-1]
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
	if err := n.streams(r); err != nil {
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

// streams adds the streams that begin with a row.
func (n *nativeReader) streams(r *nativeTurn) error {
	if len(r.StreamParent) != len(r.StreamForkAt) {
		return &InputError{Key: "new_stream_parent", Found: "lists of different length", Expected: "new_stream_parent and new_stream_fork_at of one length"}
	}
	for i, parent := range r.StreamParent {
		tree, fork := n.tr.Tree, r.StreamForkAt[i]
		switch {
		case parent == int32(prefix.None) && fork == 0:
			tree.Root()
		case parent >= 0 && int(parent) < tree.Len() && fork > tree.Stream(prefix.StreamID(parent)).ForkAt:
			tree.Fork(prefix.Prefix{Stream: prefix.StreamID(parent), Tokens: fork})
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
