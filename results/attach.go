package results

import (
	"bufio"
	"errors"
	"path/filepath"
)

// DecisionsFile is the decision log of a run, where one was asked for.
const DecisionsFile = "decisions.jsonl"

// attachment is one more file of a run's folder.
type attachment struct {
	file   File
	buffer *bufio.Writer
}

// Attach starts one more file in the folder, which is completed with it. The caller writes to it until Finish or Abort.
func (w *Writer) Attach(name string) (*bufio.Writer, error) {
	f, err := w.fs.Create(filepath.Join(w.dir, name))
	if err != nil {
		return nil, err
	}
	a := &attachment{f, bufio.NewWriterSize(f, 1<<16)}
	w.attached = append(w.attached, a)
	return a.buffer, nil
}

func (a *attachment) finish() error {
	if err := a.buffer.Flush(); err != nil {
		return err
	}
	err := errors.Join(a.file.Sync(), a.file.Close())
	a.file = nil
	return err
}

// close drops the file; the folder it is in is removed by the caller.
func (a *attachment) close() {
	if a.file != nil {
		_ = a.file.Close()
		a.file = nil
	}
}
