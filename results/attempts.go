package results

import (
	"encoding/binary"
	"fmt"
)

// timeColumn is a column of times in picoseconds of the attempts.
type timeColumn int

const (
	timeArrival timeColumn = iota // of a last attempt that of the turn's first attempt
	timeSent
	timeScheduled
	timeFirst
	timeDone
	timeWait // at the gate
	timeToolGap
	numTimes
)

// countColumn is another column of the attempts.
type countColumn int

const (
	countFlags countColumn = iota
	countSession
	countTag    // buckets and index into Collector.classes, as fields of a sorter's tag
	countReason // index into Collector.reasons
	countPrompt
	countOutput
	countComputed
	countWasted
	countCeiling
	countHitGPU
	countHitCPU
	countHitGlobal
	numCounts
)

// Bits of countFlags.
const (
	flagFinal int32 = 1 << iota
	flagFinished
	flagScheduled
	flagHeld
	flagRejected
	flagMet // every bound of the SLO
	flagIdleKnown
	flagInfeasible
)

// columnSet is a set of columns.
type columnSet uint32

func (t timeColumn) set() columnSet  { return 1 << t }
func (c countColumn) set() columnSet { return 1 << (int(numTimes) + int(c)) }

// chunk is some attempts, column by column. Only columns that were asked for are filled in.
type chunk struct {
	rows   int
	times  [numTimes][]int64
	counts [numCounts][]int32
}

// resize makes room for that many rows.
func (ch *chunk) resize(rows int) {
	for i, column := range ch.times {
		ch.times[i] = make([]int64, rows)
		copy(ch.times[i], column)
	}
	for i, column := range ch.counts {
		ch.counts[i] = make([]int32, rows)
		copy(ch.counts[i], column)
	}
}

// full is the chunk without room for more rows.
func (ch *chunk) full() *chunk {
	c := *ch
	for i := range c.times {
		c.times[i] = c.times[i][:c.rows]
	}
	for i := range c.counts {
		c.counts[i] = c.counts[i][:c.rows]
	}
	return &c
}

// add adds an attempt, for which there is room.
func (ch *chunk) add(t *Turn, arrival, wait int64, flags, tag, reason int32) {
	i := ch.rows
	ch.rows++
	ps := &ch.times
	ps[timeArrival][i] = arrival
	ps[timeSent][i] = t.SentPS
	ps[timeScheduled][i] = t.ScheduledPS
	ps[timeFirst][i] = t.FirstTokenPS
	ps[timeDone][i] = t.DonePS
	ps[timeWait][i] = wait
	ps[timeToolGap][i] = t.ToolGapPS
	n := &ch.counts
	n[countFlags][i] = flags
	n[countSession][i] = t.Session
	n[countTag][i] = tag
	n[countReason][i] = reason
	n[countPrompt][i] = t.PromptTokens
	n[countOutput][i] = t.OutputTokens
	n[countComputed][i] = t.ComputedTokens
	n[countWasted][i] = t.WastedTokens
	n[countCeiling][i] = t.CeilingTokens
	n[countHitGPU][i] = t.HitGPU
	n[countHitCPU][i] = t.HitCPU
	n[countHitGlobal][i] = t.HitGlobal
}

// attempts keeps the attempts of a run. Beyond a number of chunks they go to a file, if there is one, from which they are
// read chunk by chunk, so that memory is bounded.
type attempts struct {
	chunks    []*chunk // the last one grows
	chunkRows int
	keep      int                     // chunks that stay in memory
	open      func() (Scratch, error) // nil: all stay in memory
	file      Scratch
	spilled   int // full chunks in the file
	buffer    []byte
	work      chunk // what was read last
}

const (
	firstChunkRows   = 64 // room in the first one to begin with
	defaultChunkRows = 4096
	defaultKeep      = 128 // half a million attempts, about 57 MB
)

// last is the chunk to add to, with room.
func (a *attempts) last() (*chunk, error) {
	if n := len(a.chunks); n > 0 {
		ch := a.chunks[n-1]
		if ch.rows == len(ch.times[0]) && ch.rows < a.chunkRows {
			ch.resize(min(2*ch.rows, a.chunkRows))
		}
		if ch.rows < a.chunkRows {
			return ch, nil
		}
	}
	if len(a.chunks) >= a.keep && a.open != nil {
		return a.spill()
	}
	ch, rows := new(chunk), a.chunkRows
	if len(a.chunks) == 0 { // the run may be a small one
		rows = min(firstChunkRows, rows)
	}
	ch.resize(rows)
	a.chunks = append(a.chunks, ch)
	return ch, nil
}

// spill writes all chunks to the file and keeps one, empty.
func (a *attempts) spill() (*chunk, error) {
	if a.file == nil {
		f, err := a.open()
		if err != nil {
			return nil, fmt.Errorf("scratch file for attempts: %w", err)
		}
		a.file = f
	}
	for _, ch := range a.chunks {
		b := a.buffer[:0]
		for _, column := range ch.times {
			for _, v := range column {
				b = binary.LittleEndian.AppendUint64(b, uint64(v))
			}
		}
		for _, column := range ch.counts {
			for _, v := range column {
				b = binary.LittleEndian.AppendUint32(b, uint32(v))
			}
		}
		a.buffer = b
		if _, err := a.file.Write(b); err != nil {
			return nil, fmt.Errorf("scratch file for attempts: %w", err)
		}
		a.spilled++
	}
	ch := a.chunks[0]
	ch.rows = 0
	clear(a.chunks)
	a.chunks, a.keep = append(a.chunks[:0], ch), 1
	return ch, nil
}

// each calls f for all attempts, of which it fills in these columns at least.
func (a *attempts) each(columns columnSet, f func(*chunk)) error {
	for i := range a.spilled {
		if err := a.read(i, columns); err != nil {
			return fmt.Errorf("scratch file for attempts: %w", err)
		}
		f(&a.work)
	}
	for _, ch := range a.chunks {
		f(ch.full())
	}
	return nil
}

// read fills in columns of chunk i of the file, every one of which has the same number of rows.
func (a *attempts) read(i int, columns columnSet) error {
	a.work.rows = a.chunkRows
	at := int64(i) * int64(a.chunkRows) * (8*int64(numTimes) + 4*int64(numCounts))
	buffer := a.buffer[:8*a.chunkRows]
	for k := range numTimes {
		if columns&k.set() != 0 {
			if _, err := a.file.ReadAt(buffer, at); err != nil {
				return err
			}
			column := grown(&a.work.times[k], a.chunkRows)
			for i := range column {
				column[i] = int64(binary.LittleEndian.Uint64(buffer[8*i:]))
			}
		}
		at += 8 * int64(a.chunkRows)
	}
	buffer = buffer[:4*a.chunkRows]
	for k := range numCounts {
		if columns&k.set() != 0 {
			if _, err := a.file.ReadAt(buffer, at); err != nil {
				return err
			}
			column := grown(&a.work.counts[k], a.chunkRows)
			for i := range column {
				column[i] = int32(binary.LittleEndian.Uint32(buffer[4*i:]))
			}
		}
		at += 4 * int64(a.chunkRows)
	}
	return nil
}

// grown makes a slice n long, whatever it holds.
func grown[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	*s = (*s)[:n]
	return *s
}

// close drops the file.
func (a *attempts) close() error {
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}
