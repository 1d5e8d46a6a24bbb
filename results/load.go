package results

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Limits on what is read back.
const (
	maxJSONBytes    = 256 << 20
	maxParquetBytes = 16 << 30
	maxRows         = 50_000_000
)

// tableBatch is the number of rows read from a Parquet file at once.
const tableBatch = 512

// Run is a run's folder, complete on disk.
type Run struct {
	Dir     string
	Summary *Summary
}

// LoadRun opens the folder of a run. Rows are read when asked for.
func LoadRun(dir string) (*Run, error) {
	s := new(Summary)
	if err := readJSON(filepath.Join(dir, SummaryFile), s); err != nil {
		return nil, fmt.Errorf("result folder %s: %w", dir, err)
	}
	if s.SchemaVersion != SchemaVersion {
		return nil, schemaError(dir, s.SchemaVersion)
	}
	return &Run{dir, s}, nil
}

func schemaError(dir string, found int) error {
	return fmt.Errorf("result folder %s: schema version %d, expected %d: run it again with this version", dir, found,
		SchemaVersion)
}

// Load opens the folder of a run or of a comparison; a run is a comparison with one arm.
func Load(dir string) (*Comparison, error) {
	path := filepath.Join(dir, CompareFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		run, err := LoadRun(dir)
		if err != nil {
			return nil, err
		}
		c := NewComparison([]*Summary{run.Summary})
		c.dir, c.single = dir, true
		return c, nil
	}
	c := new(Comparison)
	if err := readJSON(path, c); err != nil {
		return nil, fmt.Errorf("result folder %s: %w", dir, err)
	}
	if c.SchemaVersion != SchemaVersion {
		return nil, schemaError(dir, c.SchemaVersion)
	}
	for i, arm := range c.Arms {
		if len(arm.Runs) == 0 || slices.Contains(arm.Runs, nil) {
			return nil, fmt.Errorf("result folder %s: %s: arm %d (%q) has no runs", dir, CompareFile, i+1, arm.Name)
		}
	}
	c.dir = dir
	return c, nil
}

func readJSON(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJSONBytes+1))
	if err != nil {
		return err
	}
	if len(data) > maxJSONBytes {
		return fmt.Errorf("%s: larger than %d bytes", path, maxJSONBytes)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Turns calls f for every attempt, in the order of the run. The pointer is valid only during the call.
func (r *Run) Turns(f func(*Turn) error) error {
	return readRows(filepath.Join(r.Dir, TurnsFile), func(c *turnColumns) error {
		t, err := c.turn()
		if err != nil {
			return err
		}
		return f(&t)
	})
}

// Sessions calls f for every session.
func (r *Run) Sessions(f func(*Session) error) error {
	return readRows(filepath.Join(r.Dir, SessionsFile), func(c *sessionColumns) error {
		s, err := c.session()
		if err != nil {
			return err
		}
		return f(&s)
	})
}

// Samples calls f for every interval of every replica.
func (r *Run) Samples(f func(*Sample) error) error {
	return readRows(filepath.Join(r.Dir, ReplicasFile), func(c *sampleColumns) error {
		s, err := c.sample()
		if err != nil {
			return err
		}
		return f(&s)
	})
}

// readRows reads a Parquet file with the columns of T. A damaged file is an error, also where the library panics.
func readRows[T any](path string, each func(*T) error) (err error) {
	row := int64(0)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: damaged Parquet file near row %d: %v", path, row+1, p)
		} else if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := checkParquet(f)
	if err != nil {
		return err
	}
	file, err := parquet.OpenFile(f, size, parquet.SkipBloomFilters(true))
	if err != nil {
		return err
	}
	if err := checkColumns[T](file); err != nil {
		return err
	}
	if file.NumRows() > maxRows {
		return fmt.Errorf("%d rows: at most %d are read", file.NumRows(), maxRows)
	}
	reader := parquet.NewGenericReader[T](file)
	defer reader.Close()
	batch := make([]T, tableBatch)
	for {
		clear(batch) // a null leaves the pointer of the batch before
		n, readErr := reader.Read(batch)
		for i := range batch[:n] {
			if err := each(&batch[i]); err != nil {
				return fmt.Errorf("row %d: %w", row+1, err)
			}
			row++
		}
		if readErr == io.EOF {
			break
		}
		if readErr != nil {
			return readErr
		}
		if n == 0 {
			return errors.New("the file ends early")
		}
	}
	if row != file.NumRows() {
		return fmt.Errorf("found %d rows, expected %d", row, file.NumRows())
	}
	return nil
}

// checkParquet checks the frame of the file: magic numbers at both ends and a footer that fits.
func checkParquet(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size = info.Size()
	if size < 12 || size > maxParquetBytes {
		return 0, fmt.Errorf("%d bytes: not a Parquet file of 12 to %d bytes", size, int64(maxParquetBytes))
	}
	var head, tail [8]byte
	if _, err := f.ReadAt(head[:4], 0); err != nil {
		return 0, err
	}
	if _, err := f.ReadAt(tail[:], size-8); err != nil {
		return 0, err
	}
	if string(head[:4]) != "PAR1" || string(tail[4:]) != "PAR1" {
		return 0, errors.New("not a Parquet file: PAR1 missing at an end (truncated?)")
	}
	if footer := int64(binary.LittleEndian.Uint32(tail[:4])); footer > size-12 {
		return 0, fmt.Errorf("a footer of %d bytes in a file of %d: damaged", footer, size)
	}
	return size, nil
}

// checkColumns refuses a file that lacks a column, which would read as zero.
func checkColumns[T any](file *parquet.File) error {
	have := map[string]bool{}
	for _, field := range file.Schema().Fields() {
		have[field.Name()] = true
	}
	for _, field := range parquet.SchemaOf(new(T)).Fields() {
		if !have[field.Name()] {
			return fmt.Errorf("no column %s", field.Name())
		}
	}
	return nil
}
