package traces

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sluice-sim/sluice/prefix"
)

// nativeFile is a Source whose sessions are read from a native file when they are asked for.
type nativeFile struct {
	path   string
	limits Limits
	about  About
}

// NativeSource is ReadNative for traces that need not fit in memory. It reads the file twice, for the checksum and to
// check every session, and again whenever it is read. What it holds is the tree of content, 8 bytes for each stream. Of
// what ReadNative checks, outputs of different sessions that write over each other go unnoticed.
func NativeSource(path string, limits Limits) (Source, error) {
	x := &nativeFile{path: path, limits: limits.orDefault()}
	tree := &prefix.Tree{}
	c, err := x.open(&growth{tree: tree}, true)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	x.about = c.rows.about
	x.about.Tree = tree
	v := validator{tr: &Trace{Tree: tree, Models: x.about.Models, Groups: x.about.Groups}}
	for {
		s, err := c.Next()
		if errors.Is(err, io.EOF) {
			return x, nil
		}
		if err != nil {
			return nil, err
		}
		v.written = v.written[:0]
		v.session(x.about.Sessions, s)
		if v.outputs(); len(v.problems) > 0 {
			return nil, &InputError{File: path, Found: v.problems[0].String(), Expected: "a valid trace"}
		}
		x.about.count(s)
	}
}

func (x *nativeFile) About() *About { return &x.about }

func (x *nativeFile) Open() (Cursor, error) {
	return x.open(&growth{tree: x.about.Tree, again: true}, false)
}

func (x *nativeFile) open(s *growth, check bool) (c *nativeCursor, err error) {
	f, err := os.Open(x.path)
	if err != nil {
		return nil, openError(x.path, err)
	}
	c = &nativeCursor{path: x.path, file: f}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	defer c.recovered(&err)
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if check {
		if err := checkNativeFile(f, info.Size(), x.limits); err != nil {
			return nil, at(err, x.path, 0)
		}
	}
	file, err := openParquet(f, info.Size(), x.limits)
	if err == nil {
		c.rows, err = newNativeReader(file, x.limits, s)
	}
	return c, at(err, x.path, 0)
}

// nativeCursor turns panics of the Parquet library into errors, as parseNative does.
type nativeCursor struct {
	path string
	file *os.File
	rows *nativeReader
}

func (c *nativeCursor) Next() (s *Session, err error) {
	defer c.recovered(&err)
	s, err = c.rows.Next()
	if err != nil && !errors.Is(err, io.EOF) {
		err = at(err, c.path, 0)
	}
	return s, err
}

func (c *nativeCursor) recovered(err *error) {
	if p := recover(); p != nil {
		*err = &InputError{File: c.path, Found: "Parquet that cannot be decoded", Expected: "a file written by sluice", Err: fmt.Errorf("%v", p)}
	}
}

func (c *nativeCursor) Close() error { return errors.Join(c.rows.Close(), c.file.Close()) }

// checkNativeFile is checkNative without the file in memory.
func checkNativeFile(f *os.File, size int64, limits Limits) error {
	damaged := &InputError{Found: "a damaged or truncated file", Expected: "a complete one", Do: "convert the source again"}
	var head, tail [8]byte
	if size < 12 {
		return damaged
	}
	if _, err := f.ReadAt(head[:4], 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(tail[:], size-8); err != nil {
		return err
	}
	footer := int64(binary.LittleEndian.Uint32(tail[:]))
	if string(head[:4]) != parquetMagic || string(tail[4:]) != parquetMagic || footer > size-12 || footer > limits.Document {
		return damaged
	}
	// The footer with what checksumDigits wants around it.
	end := append([]byte(parquetMagic), make([]byte, footer+8)...)
	if _, err := f.ReadAt(end[4:], size-footer-8); err != nil {
		return err
	}
	digits := checksumDigits(end)
	var recorded [sha256.Size]byte
	if digits == nil {
		damaged.Found, damaged.Expected = "no checksum of sluice's trace format", "a trace that sluice wrote"
		return damaged
	}
	if _, err := hex.Decode(recorded[:], digits); err != nil {
		return damaged
	}
	for i := range digits {
		digits[i] = '0'
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size-footer-8)); err != nil {
		return err
	}
	h.Write(end[4:])
	if !bytes.Equal(h.Sum(nil), recorded[:]) {
		return damaged
	}
	return nil
}
