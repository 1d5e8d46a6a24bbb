package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

// Names of the files of a run's folder.
const (
	SummaryFile  = "summary.json"
	TurnsFile    = "turns.parquet"
	SessionsFile = "sessions.parquet"
	ReplicasFile = "replicas.parquet"
	ScenarioFile = "scenario.yaml"
)

// Writer is a Sink that writes a run's folder: rows go to Parquet files as they come, and the summary is computed from
// the same rows. The folder has a temporary name until Finish; Abort removes it. The bytes depend on the rows only. Rows are
// written some at a time, so an error may be that of an earlier one.
type Writer struct {
	fs        FS
	dir       string
	stage     *stage // nil within a comparison, whose folder is renamed as a whole
	info      Info
	collector *Collector
	rows      struct {
		turns    batch[Turn]
		sessions batch[Session]
		samples  batch[Sample]
	}
	turns    *parquetFile
	sessions *parquetFile
	samples  *parquetFile
	attached []*attachment
}

// Create starts the folder of a run.
func Create(dir string, info Info, opts Options) (*Writer, error) {
	s, err := newStage(dir, opts)
	if err != nil {
		return nil, err
	}
	w, err := newWriter(s.fs, s.temp, info)
	if err != nil {
		s.abort()
		return nil, fmt.Errorf("result folder %s: %w", s.target, err)
	}
	w.stage = s
	return w, nil
}

func newWriter(fsys FS, dir string, info Info) (*Writer, error) {
	w := &Writer{fs: fsys, dir: dir, info: info, collector: NewCollector(info)}
	w.collector.attempts.open = func() (Scratch, error) { return fsys.Scratch(dir) }
	var err error
	if w.turns, err = newParquetFile[turnColumns](fsys, filepath.Join(dir, TurnsFile)); err != nil {
		return nil, err
	}
	if w.sessions, err = newParquetFile[sessionColumns](fsys, filepath.Join(dir, SessionsFile)); err != nil {
		w.close()
		return nil, err
	}
	if w.samples, err = newParquetFile[sampleColumns](fsys, filepath.Join(dir, ReplicasFile)); err != nil {
		w.close()
		return nil, err
	}
	w.rows.turns.write, w.rows.sessions.write, w.rows.samples.write = w.writeTurns, w.writeSessions, w.writeSamples
	return w, nil
}

// Turn writes an attempt.
func (w *Writer) Turn(t *Turn) error { return w.rows.turns.add(t) }

// Session writes a session.
func (w *Writer) Session(s *Session) error { return w.rows.sessions.add(s) }

// Sample writes an interval of a replica.
func (w *Writer) Sample(s *Sample) error { return w.rows.samples.add(s) }

func (w *Writer) writeTurns(rows []Turn) error {
	err := w.turns.turns(w.info.Run, w.info.Arm, rows)
	for i := 0; i < len(rows) && err == nil; i++ {
		err = w.collector.Turn(&rows[i])
	}
	return err
}

func (w *Writer) writeSessions(rows []Session) error {
	err := w.sessions.sessions(w.info.Run, w.info.Arm, rows)
	for i := 0; i < len(rows) && err == nil; i++ {
		err = w.collector.Session(&rows[i])
	}
	return err
}

func (w *Writer) writeSamples(rows []Sample) error {
	err := w.samples.samples(w.info.Run, w.info.Arm, rows)
	for i := 0; i < len(rows) && err == nil; i++ {
		err = w.collector.Sample(&rows[i])
	}
	return err
}

// Finish completes the folder, gives it its name and returns the summary. On error nothing is left behind.
func (w *Writer) Finish(totals *Totals) (*Summary, error) {
	summary, err := w.summary(totals)
	if err == nil {
		err = w.complete(summary)
	}
	if err != nil {
		w.Abort()
		return nil, fmt.Errorf("writing results: %w", err)
	}
	if w.stage != nil {
		if err := w.stage.commit(); err != nil {
			return nil, err
		}
	}
	return summary, nil
}

func (w *Writer) summary(totals *Totals) (*Summary, error) {
	if err := errors.Join(w.rows.turns.flush(), w.rows.sessions.flush(), w.rows.samples.flush()); err != nil {
		return nil, err
	}
	s, err := w.collector.summary(totals)
	if err != nil {
		return nil, err
	}
	return s, w.collector.attempts.close()
}

func (w *Writer) complete(summary *Summary) error {
	if err := errors.Join(w.turns.finish(), w.sessions.finish(), w.samples.finish()); err != nil {
		return err
	}
	for _, a := range w.attached {
		if err := a.finish(); err != nil {
			return err
		}
	}
	if err := writeJSON(w.fs, filepath.Join(w.dir, SummaryFile), summary); err != nil {
		return err
	}
	if err := writeFile(w.fs, filepath.Join(w.dir, ScenarioFile), w.info.Scenario); err != nil {
		return err
	}
	return w.fs.SyncDir(w.dir)
}

// Abort removes the folder. It does nothing after Finish.
func (w *Writer) Abort() {
	w.close()
	if w.stage != nil {
		w.stage.abort()
	}
}

func (w *Writer) close() {
	w.turns.close()
	w.sessions.close()
	w.samples.close()
	_ = w.collector.attempts.close()
	for _, a := range w.attached {
		a.close()
	}
}

func writeJSON(fsys FS, path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(fsys, path, append(data, '\n'))
}
