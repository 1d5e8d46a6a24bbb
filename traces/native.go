package traces

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/sluice-sim/sluice/prefix"
)

// FormatNative names sluice's own trace file: Parquet, one row a turn. The page "trace formats" of the documentation
// describes it.
const FormatNative = "native"

const (
	parquetMagic  = "PAR1"
	nativeVersion = "1"

	keyVersion  = "sluice.trace.version"
	keyName     = "sluice.trace.name"
	keyModels   = "sluice.trace.models"
	keyGroups   = "sluice.trace.groups"
	keyReport   = "sluice.trace.report"
	keyChecksum = "sluice.trace.checksum"

	// The checksum covers the whole file with its own hex digits set to zero. It is checked before the Parquet library
	// sees a byte, for that library panics on damaged files.
	checksumPrefix = "sha256 of this file with these digits zero: "
)

// nativeTurn is a row: one turn, with the fields of its session and the streams that come into being with it.
type nativeTurn struct {
	Session        int32   `parquet:"session,delta"`
	SessionName    string  `parquet:"session_name"`
	SessionStartNS *int64  `parquet:"session_start_ns,optional"`
	SessionThreads int32   `parquet:"session_threads"`
	Group          *string `parquet:"group,optional"`
	Thread         int32   `parquet:"thread"`
	Turn           int32   `parquet:"turn,delta"`
	Model          string  `parquet:"model"`
	Stream         int32   `parquet:"stream,delta"`
	PromptTokens   int32   `parquet:"prompt_tokens,delta"`
	OutputTokens   int32   `parquet:"output_tokens,delta"`
	StartNS        int64   `parquet:"start_ns,delta"`
	DurationNS     *int64  `parquet:"duration_ns,optional"`
	DepTurn        []int32 `parquet:"dep_turn,list"`
	DepOnDispatch  []bool  `parquet:"dep_on_dispatch,list"`
	DepDelayNS     []int64 `parquet:"dep_delay_ns,list"`
	StreamParent   []int32 `parquet:"new_stream_parent,list"`
	StreamForkAt   []int32 `parquet:"new_stream_fork_at,list"`
}

// WriteNative writes a valid trace in the native format. Equal traces give equal bytes. Streams after the last one that
// a turn uses are left out. The file is put together in memory, some 20 bytes a turn.
func WriteNative(w io.Writer, src Source) error {
	a := src.About()
	v := validator{tr: &Trace{Tree: a.Tree, Models: a.Models, Groups: a.Groups}}
	if tr, ok := src.(*Trace); ok {
		v.problems = Validate(tr)
	}
	if len(v.problems) > 0 {
		return fmt.Errorf("trace %s cannot be written: %s", a.Name, v.problems[0])
	}
	if twice := firstTwice(a.Models) + firstTwice(a.Groups); twice != "" {
		return fmt.Errorf("trace %s cannot be written: %q names two models or groups", a.Name, twice)
	}
	var buf bytes.Buffer
	pw := parquet.NewGenericWriter[nativeTurn](&buf, parquet.Compression(&parquet.Zstd), parquet.CreatedBy("sluice", nativeVersion, ""))
	pw.SetKeyValueMetadata(keyVersion, nativeVersion)
	pw.SetKeyValueMetadata(keyName, a.Name)
	for _, m := range []struct {
		key   string
		value any
	}{{keyModels, a.Models}, {keyGroups, a.Groups}, {keyReport, a.Report}} {
		text, err := json.Marshal(m.value)
		if err != nil {
			return err
		}
		pw.SetKeyValueMetadata(m.key, string(text))
	}
	pw.SetKeyValueMetadata(keyChecksum, checksumPrefix+strings.Repeat("0", 2*sha256.Size))
	streams := 0
	err := Each(src, func(number int32, s *Session) error {
		v.written = v.written[:0]
		v.session(int(number), s)
		if v.outputs(); len(v.problems) > 0 {
			return errors.New(v.problems[0].String())
		}
		_, err := pw.Write(nativeRows(a, number, s, &streams))
		return err
	})
	if err := errors.Join(err, pw.Close()); err != nil {
		return fmt.Errorf("writing trace %s: %w", a.Name, err)
	}
	b := buf.Bytes()
	digits := checksumDigits(b)
	sum := sha256.Sum256(b)
	hex.Encode(digits, sum[:])
	_, err = w.Write(b)
	return err
}

func firstTwice(names []string) string {
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			return n
		}
		seen[n] = true
	}
	return ""
}

// checksumDigits finds the digits of the checksum in the footer of a Parquet file, nil when there are none.
func checksumDigits(b []byte) []byte {
	if len(b) < 12 || string(b[:4]) != parquetMagic || string(b[len(b)-4:]) != parquetMagic {
		return nil
	}
	length := int64(binary.LittleEndian.Uint32(b[len(b)-8:]))
	if length > int64(len(b)-12) {
		return nil
	}
	footer := b[int64(len(b)-8)-length : len(b)-8]
	i := bytes.LastIndex(footer, []byte(checksumPrefix))
	if i < 0 || len(footer)-i-len(checksumPrefix) < 2*sha256.Size {
		return nil
	}
	i += len(checksumPrefix)
	return footer[i : i+2*sha256.Size]
}

// nativeRows turns a session into rows; streams counts those written.
func nativeRows(a *About, session int32, s *Session, streams *int) []nativeTurn {
	rows := make([]nativeTurn, len(s.Turns))
	for i := range s.Turns {
		t := &s.Turns[i]
		r := nativeTurn{Session: session, SessionName: s.Name, SessionThreads: s.Threads,
			SessionStartNS: known(s.StartNS), DurationNS: known(t.DurationNS), StartNS: t.StartNS,
			Thread: t.Thread, Turn: t.Number, Model: a.Models[t.Model],
			Stream: int32(t.Prompt.Stream), PromptTokens: t.Prompt.Tokens, OutputTokens: t.OutputTokens}
		if s.Group >= 0 {
			r.Group = &a.Groups[s.Group]
		}
		for _, d := range s.Deps[t.DepLo:t.DepHi] {
			r.DepTurn = append(r.DepTurn, d.Turn)
			r.DepOnDispatch = append(r.DepOnDispatch, d.On == OnDispatch)
			r.DepDelayNS = append(r.DepDelayNS, d.DelayNS)
		}
		for ; *streams <= int(t.Prompt.Stream); *streams++ {
			st := a.Tree.Stream(prefix.StreamID(*streams))
			r.StreamParent = append(r.StreamParent, int32(st.Parent))
			r.StreamForkAt = append(r.StreamForkAt, st.ForkAt)
		}
		rows[i] = r
	}
	return rows
}

// known is nil for Unknown.
func known(ns int64) *int64 {
	if ns == Unknown {
		return nil
	}
	return &ns
}
