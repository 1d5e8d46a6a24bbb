package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/sim"
)

// logDecisions has a run tell its decisions to w.
func logDecisions(cfg *sim.Config, w io.Writer) {
	h := decisionlog.Header{
		Sluice: version, Seed: cfg.Seed, Gate: decisionlog.Resolved(cfg.Gate, cfg.GateParams), Router: decisionlog.Resolved(cfg.Router, cfg.RouterParams),
		Retention: decisionlog.Resolved(cfg.Retention, cfg.RetentionParams),
		Signals:   cfg.Gate.Signals(cfg.GateParams) | cfg.Router.Signals(cfg.RouterParams), Instances: cfg.Routers, Capability: cfg.Capability,
	}
	for range cfg.Replicas {
		h.Capabilities = append(h.Capabilities, cfg.Capability)
	}
	r := decisionlog.NewRecorder(w, h)
	cfg.Router, cfg.Decisions = r.Router(cfg.Router), r
}

// checkDecisionsPath says early that a log could not be put at path.
func checkDecisionsPath(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return badInput(fmt.Errorf("--decisions %s: that is a folder, expected the name of a file", path))
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return badInput(fmt.Errorf("--decisions %s: there is no folder %s", path, filepath.Dir(path)))
	}
	return nil
}

// publishDecisions gives the log in a results folder another name: a link where the file system has them, else a copy.
func publishDecisions(dir, path string) error {
	from := filepath.Join(dir, results.DecisionsFile)
	if a, err := os.Stat(from); err != nil {
		return err
	} else if b, err := os.Stat(path); err == nil && os.SameFile(a, b) {
		return nil
	}
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.partial-%d", filepath.Base(path), os.Getpid()))
	if err := os.Link(from, temp); err == nil {
		if err := os.Rename(temp, path); err != nil {
			_ = os.Remove(temp)
			return fmt.Errorf("writing %s: %w", path, err)
		}
		return nil
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return writeOutput(path, nil, func(w io.Writer) error {
		_, err := io.Copy(w, f)
		return err
	})
}

// openDecisions finds the log at path, which may be a results folder of one run, and returns it line by line.
func openDecisions(path string) (name string, lines decisionlog.Lines, close func() error, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, results.DecisionsFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return path, nil, nil, badInput(err)
	}
	return path, readLines(f), f.Close, nil
}

// readLines reads lines of bounded length, each with its line feed; the last may lack it.
func readLines(r io.Reader) decisionlog.Lines {
	return func(yield func([]byte, error) bool) {
		b := bufio.NewReaderSize(r, 1<<16)
		var long []byte
		for {
			part, err := b.ReadSlice('\n')
			if err == bufio.ErrBufferFull && len(long)+len(part) <= decisionlog.MaxLineBytes {
				long = append(long, part...)
				continue
			}
			line := part
			if len(long) > 0 {
				long = append(long, part...)
				line = long
			}
			switch {
			case err != nil && !errors.Is(err, io.EOF) && err != bufio.ErrBufferFull:
				yield(nil, err)
				return
			case len(line) > 0 && !yield(line, nil), err != nil:
				return
			}
			long = long[:0]
		}
	}
}
