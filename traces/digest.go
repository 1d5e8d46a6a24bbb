package traces

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"

	"github.com/sluice-sim/sluice/prefix"
)

// Digest names a trace by what it holds: two traces with the same sessions, turns, dependencies and content have the
// same digest, wherever they came from. It is 12 hexadecimal digits.
func (t *Trace) Digest() string {
	d, _ := Digest(t) // memory can be read
	return d
}

// Digest is the digest of the trace that a source would be in memory.
func Digest(src Source) (string, error) {
	a := src.About()
	d := digester{h: sha256.New()}
	d.numbers(int64(a.Tree.Len()), int64(a.Sessions))
	for i := range a.Tree.Len() {
		s := a.Tree.Stream(prefix.StreamID(i))
		d.numbers(int64(s.Parent), int64(s.ForkAt))
	}
	for _, m := range a.Models {
		d.text(m)
	}
	err := Each(src, func(_ int32, s *Session) error {
		d.text(s.Name)
		d.numbers(s.StartNS, int64(s.Group), int64(s.Threads), int64(len(s.Turns)), int64(len(s.Deps)))
		for j := range s.Turns {
			u := &s.Turns[j]
			d.numbers(int64(u.Thread), int64(u.Number), int64(u.Model), int64(u.Prompt.Stream), int64(u.Prompt.Tokens),
				int64(u.OutputTokens), u.StartNS, u.DurationNS, int64(u.DepLo), int64(u.DepHi))
		}
		for _, x := range s.Deps {
			d.numbers(int64(x.Turn), int64(x.On), x.DelayNS)
		}
		return nil
	})
	return hex.EncodeToString(d.h.Sum(nil)[:6]), err
}

type digester struct {
	h   hash.Hash
	buf []byte
}

func (d *digester) numbers(v ...int64) {
	d.buf = d.buf[:0]
	for _, x := range v {
		d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(x))
	}
	d.h.Write(d.buf)
}

func (d *digester) text(s string) {
	d.numbers(int64(len(s)))
	_, _ = io.WriteString(d.h, s) // a hash never fails
}
