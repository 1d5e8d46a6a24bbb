package results

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// FS is the part of a file system that writing a result folder needs. Tests replace it to make single calls fail.
type FS interface {
	Exists(path string) (bool, error)
	ReadDir(path string) ([]string, error) // names in a folder
	Mkdir(path string) error               // fails with fs.ErrExist when path exists
	Create(path string) (File, error)
	Scratch(dir string) (Scratch, error) // a new file that is gone when it is closed, or the program ends
	Rename(from, to string) error
	Remove(path string) error // a file or an empty folder
	RemoveAll(path string) error
	SyncDir(path string) error
}

// File is a file being written.
type File interface {
	io.WriteCloser
	Sync() error
}

// Scratch is a file that only its opener sees.
type Scratch interface {
	io.WriteCloser
	io.ReaderAt
}

// OS is the operating system's file system.
type OS struct{}

// Exists reports whether path names anything.
func (OS) Exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadDir lists the names in a folder.
func (OS) ReadDir(path string) ([]string, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// Mkdir makes one folder.
func (OS) Mkdir(path string) error { return os.Mkdir(path, 0o777) }

// Create makes a new file; an existing one is an error.
func (OS) Create(path string) (File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
}

// Scratch makes a file and takes its name away; where that does not work with an open file, Close does it. An empty dir is
// the system's folder for temporary files.
func (OS) Scratch(dir string) (Scratch, error) {
	f, err := os.CreateTemp(dir, ".scratch-")
	if err != nil {
		return nil, err
	}
	if os.Remove(f.Name()) != nil {
		return named{f}, nil
	}
	return f, nil
}

// named is a scratch file that still has its name.
type named struct{ *os.File }

// Close drops the file and its name.
func (n named) Close() error { return errors.Join(n.File.Close(), os.Remove(n.Name())) }

// Rename moves a file or folder within its file system.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes a file or an empty folder.
func (OS) Remove(path string) error { return os.Remove(path) }

// RemoveAll removes path with everything below it.
func (OS) RemoveAll(path string) error { return os.RemoveAll(path) }

// SyncDir makes the names in a folder durable.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Options say how a result folder is written.
type Options struct {
	FS      FS   // nil: the operating system's
	Replace bool // an existing result folder is replaced once the new one is complete; otherwise it is an error
}

// ErrExists is returned when the target folder exists, is not empty and may not be replaced.
var ErrExists = errors.New("the folder exists already")

// ErrForeign is returned when the folder to replace holds something else than results.
var ErrForeign = errors.New("the folder holds no " + SummaryFile + " or " + CompareFile + ", so it is not replaced")

// ErrForeignFile is returned when the folder to replace holds results and a file that is none of theirs.
var ErrForeignFile = errors.New("the folder also holds what sluice did not write, so it is not replaced")

// stage is a folder being built under a temporary name beside its target.
type stage struct {
	fs      FS
	target  string
	temp    string
	parents []string // folders made for it, outermost first
	replace bool
	closed  bool
}

func newStage(target string, opts Options) (*stage, error) {
	s := &stage{fs: opts.FS, target: filepath.Clean(target), replace: opts.Replace}
	if s.fs == nil {
		s.fs = OS{}
	}
	_, err := s.occupied()
	if err != nil {
		return nil, fmt.Errorf("result folder %s: %w", s.target, err)
	}
	parent, name := filepath.Split(s.target)
	if parent = filepath.Clean(parent); name == "" || name == ".." || name == "." {
		return nil, fmt.Errorf("result folder %q: expected the name of a folder to make", target)
	}
	if err := s.makeParents(parent); err != nil {
		s.removeParents()
		return nil, fmt.Errorf("result folder %s: %w", s.target, err)
	}
	for try := 0; ; try++ {
		s.temp = filepath.Join(parent, "."+name+".partial-"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(try))
		if err = s.fs.Mkdir(s.temp); !errors.Is(err, fs.ErrExist) || try == 1000 {
			break
		}
	}
	if err != nil {
		s.removeParents()
		return nil, fmt.Errorf("result folder %s: %w", s.target, err)
	}
	return s, nil
}

// occupied reports whether the target exists; where it must stay, the error says why.
func (s *stage) occupied() (bool, error) {
	exists, err := s.fs.Exists(s.target)
	if err != nil || !exists {
		return false, err
	}
	names, err := s.fs.ReadDir(s.target)
	switch {
	case err != nil:
		return true, err
	case len(names) == 0:
		return true, nil
	case !s.replace:
		return true, ErrExists
	case !slices.Contains(names, SummaryFile) && !slices.Contains(names, CompareFile):
		return true, ErrForeign
	}
	foreign, err := foreignFile(s.fs, s.target, names)
	if err == nil && foreign != "" {
		err = fmt.Errorf("%w: %s; move it away, or choose another folder", ErrForeignFile, foreign)
	}
	return true, err
}

func (s *stage) makeParents(dir string) error {
	exists, err := s.fs.Exists(dir)
	if err != nil || exists {
		return err
	}
	if up := filepath.Dir(dir); up != dir {
		if err := s.makeParents(up); err != nil {
			return err
		}
	}
	if err := s.fs.Mkdir(dir); err != nil {
		if errors.Is(err, fs.ErrExist) { // somebody else was faster
			return nil
		}
		return err
	}
	s.parents = append(s.parents, dir)
	return nil
}

func (s *stage) removeParents() {
	for i := len(s.parents) - 1; i >= 0; i-- {
		_ = s.fs.Remove(s.parents[i]) // fails when others use it by now, which is right
	}
}

// commit gives the folder its name. On error everything is removed and a folder that was to be replaced stays.
func (s *stage) commit() error {
	err := s.rename()
	if err != nil {
		s.abort()
		return fmt.Errorf("result folder %s: %w", s.target, err)
	}
	s.closed = true
	return nil
}

func (s *stage) rename() error {
	if err := s.fs.SyncDir(s.temp); err != nil {
		return err
	}
	old := ""
	exists, err := s.occupied()
	if err != nil {
		return err
	}
	if exists {
		old = s.temp + "-old"
		if err := s.fs.Rename(s.target, old); err != nil {
			return err
		}
	}
	err = s.fs.Rename(s.temp, s.target)
	if err == nil {
		if err = s.fs.SyncDir(filepath.Dir(s.target)); err != nil {
			_ = s.fs.RemoveAll(s.target)
		}
	}
	if old == "" {
		return err
	}
	if err != nil {
		return errors.Join(err, s.fs.Rename(old, s.target))
	}
	_ = s.fs.RemoveAll(old) // the new folder is complete; a leftover is hidden and harmless
	return nil
}

// abort removes what was written. It does nothing after commit or abort.
func (s *stage) abort() {
	if s.closed {
		return
	}
	s.closed = true
	_ = s.fs.RemoveAll(s.temp)
	s.removeParents()
}

// writeFile writes a whole file durably.
func writeFile(fsys FS, path string, data []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
