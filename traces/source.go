package traces

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// source is one input file, decompressed on the way when its first bytes say gzip.
type source struct {
	*countingReader
	name string
	file *os.File
}

func openSource(path string, limit int64) (*source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, openError(path, err)
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		f.Close()
		if err == nil {
			err = &InputError{File: path, Found: "a folder", Expected: "a file"}
		}
		return nil, err
	}
	var r io.Reader = f
	var magic [2]byte
	n, err := io.ReadFull(f, magic[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	if n == 2 && magic == [2]byte{0x1f, 0x8b} {
		z, err := gzip.NewReader(f)
		if err != nil {
			f.Close()
			return nil, gzipError(path, err)
		}
		r = z
	}
	return &source{countingReader: &countingReader{r: r, limit: limit, limitName: "Bytes"}, name: path, file: f}, nil
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.countingReader.Read(p)
	if err != nil && err != io.EOF {
		var in *InputError
		if !errors.As(err, &in) {
			err = gzipError(s.name, err)
		}
		err = at(err, s.name, 0)
	}
	return n, err
}

func (s *source) Close() error { return s.file.Close() }

func openError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &InputError{File: path, Found: "no such file or folder", Do: "check the path"}
	}
	return err
}

func gzipError(path string, err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return err
	}
	return &InputError{File: path, Found: "a damaged or truncated gzip stream", Expected: "a complete one",
		Do: "fetch the file again", Err: err}
}

// readDocument reads a whole file, at most limits.Document bytes after decompression, into buf, which it grows as needed.
// A file that is too large as it lies is not read at all.
func readDocument(path string, limits Limits, buf *bytes.Buffer) error {
	limit, name := limits.Document, "Document"
	if limits.Bytes < limit {
		limit, name = limits.Bytes, "Bytes"
	}
	s, err := openSource(path, limit)
	if err != nil {
		return err
	}
	defer s.Close()
	s.limitName = name
	if info, err := s.file.Stat(); err != nil {
		return err
	} else if info.Size() > limit {
		return at(overLimit("bytes", name, limit), path, 0)
	}
	buf.Reset()
	_, err = buf.ReadFrom(s)
	return err
}

// listFolder returns the files of a folder whose names end in one of the suffixes, in order of name.
func listFolder(path string, suffixes ...string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, openError(path, err)
	}
	var files []string
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		for _, s := range suffixes {
			if strings.HasSuffix(e.Name(), s) {
				files = append(files, filepath.Join(path, e.Name()))
				break
			}
		}
	}
	return files, nil
}
