package traces

import (
	"errors"
	"io"
	"os"
	"strings"
)

// FormatAuto lets Open find the format out.
const FormatAuto = "auto"

// Formats lists the names that Open accepts, FormatAuto first.
func Formats() []string {
	return []string{FormatAuto, FormatKVCacheTester, FormatMooncake, FormatNative}
}

// Open reads a trace. With FormatAuto (or "") a folder, .json and .json.gz are kv-cache-tester, .jsonl and .jsonl.gz
// Mooncake, and .parquet the native format; other names are told by their first bytes. Faults of the input are
// InputErrors.
func Open(path, format string, opt Options) (*Trace, error) {
	format, err := resolveFormat(path, format)
	if err != nil {
		return nil, err
	}
	switch format {
	case FormatKVCacheTester:
		return ReadKVCacheTester(path, opt)
	case FormatMooncake:
		return ReadMooncake(path, opt)
	}
	tr, err := ReadNative(path, opt.Limits)
	if err != nil {
		return nil, err
	}
	src, err := opt.reread(path, tr)
	if err != nil {
		return nil, err
	}
	return Hold(src)
}

// largeFile is from how many bytes on, some 100,000 turns, the sessions of a native file are read when they are asked for.
const largeFile = 2 << 20

// OpenSource is Open for traces that need not fit in memory: the sessions of a native file of 2 MiB or more, not
// compressed once more, are read when they are asked for. Every other trace is a Trace.
func OpenSource(path, format string, opt Options) (Source, error) {
	format, err := resolveFormat(path, format)
	if err != nil {
		return nil, err
	}
	if format == FormatNative {
		if large, err := isLargeNative(path); err != nil {
			return nil, err
		} else if large {
			src, err := NativeSource(path, opt.Limits)
			if err != nil {
				return nil, err
			}
			return opt.reread(path, src)
		}
	}
	return Open(path, format, opt)
}

func isLargeNative(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, openError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < largeFile {
		return false, err
	}
	var magic [4]byte
	_, err = f.ReadAt(magic[:], 0)
	return string(magic[:]) == parquetMagic, err
}

// OpenStats describes a trace: kv-cache-tester and Mooncake files as recorded, others as Summarise does.
func OpenStats(path, format string, limits Limits) (*Stats, error) {
	format, err := resolveFormat(path, format)
	if err != nil {
		return nil, err
	}
	switch format {
	case FormatKVCacheTester:
		return StatsKVCacheTester(path, limits)
	case FormatMooncake:
		return StatsMooncake(path, limits)
	}
	src, err := OpenSource(path, format, Options{Limits: limits})
	if err != nil {
		return nil, err
	}
	return Summarise(src)
}

func resolveFormat(path, format string) (string, error) {
	switch format {
	case FormatKVCacheTester, FormatMooncake, FormatNative:
		return format, nil
	case "", FormatAuto:
		return detectFormat(path)
	}
	return "", &InputError{Key: "format", Found: shorten(format), Expected: "one of " + strings.Join(Formats(), ", ")}
}

func detectFormat(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", openError(path, err)
	}
	name := strings.TrimSuffix(info.Name(), ".gz")
	switch {
	case info.IsDir(), strings.HasSuffix(name, ".json"):
		return FormatKVCacheTester, nil
	case strings.HasSuffix(name, ".jsonl"):
		return FormatMooncake, nil
	case strings.HasSuffix(name, ".parquet"):
		return FormatNative, nil
	}
	s, err := openSource(path, 1<<20)
	if err != nil {
		return "", err
	}
	defer s.Close()
	head := make([]byte, 4096)
	n, err := io.ReadFull(s, head)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	start := string(head[:n])
	switch {
	case strings.HasPrefix(start, parquetMagic):
		return FormatNative, nil
	case strings.Contains(start, `"input_length"`):
		return FormatMooncake, nil
	case strings.Contains(start, `"hash_id_scope"`), strings.Contains(start, `"requests"`):
		return FormatKVCacheTester, nil
	}
	return "", &InputError{File: path, Found: "a file of unknown format", Expected: "kv-cache-tester, mooncake or native",
		Do: "name the format"}
}
