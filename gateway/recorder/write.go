package recorder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/sluice-sim/sluice/traces"
)

// writer writes traces into a folder, under ascending numbers.
type writer struct {
	dir  string
	keep int
	next int
}

var fileName = regexp.MustCompile(`^recorded-(\d{6,9})\.parquet$`)

func newWriter(cfg *Config) (*writer, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	w := &writer{dir: cfg.Dir, keep: cfg.Files, next: 1}
	numbers, err := w.numbers()
	if err != nil {
		return nil, err
	}
	if n := len(numbers); n > 0 {
		w.next = numbers[n-1] + 1
	}
	return w, nil
}

// numbers lists the files that are there, ascending.
func (w *writer) numbers() ([]int, error) {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	var list []int
	for _, e := range entries {
		if m := fileName.FindStringSubmatch(e.Name()); m != nil {
			n, _ := strconv.Atoi(m[1])
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

func (w *writer) path(n int) string {
	return filepath.Join(w.dir, fmt.Sprintf("recorded-%06d.parquet", n))
}

// write writes a trace to a new file, which appears only when it is complete, and removes the oldest beyond those that are
// kept.
func (w *writer) write(tr *traces.Trace) (name string, err error) {
	f, err := os.CreateTemp(w.dir, ".recorded-*")
	if err != nil {
		return "", fmt.Errorf("recorder: %w", err)
	}
	err = traces.WriteNative(f, tr)
	err = errors.Join(err, f.Sync(), f.Close())
	path := w.path(w.next)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("recorder: %w", err)
	}
	w.next++
	numbers, err := w.numbers()
	for i := 0; err == nil && i < len(numbers)-w.keep; i++ {
		err = os.Remove(w.path(numbers[i]))
	}
	return filepath.Base(path), err
}
