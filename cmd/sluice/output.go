package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// writeOutput writes a file as a whole: under a temporary name in the same folder, renamed when complete. "-" is standard
// output.
func writeOutput(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "-" {
		return write(stdout)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-*")
	if err != nil {
		return badInput(fmt.Errorf("cannot write %s: %w", path, errors.Unwrap(err)))
	}
	buffer := bufio.NewWriterSize(f, 1<<16)
	if err = write(buffer); err == nil {
		err = buffer.Flush()
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// interruptible returns when work is done or ctx ends, whichever is first; work that goes on then ends with the program.
// A panic in work becomes an error.
func interruptible[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = panicError(p)
			}
			done <- r
		}()
		r.value, r.err = work()
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
