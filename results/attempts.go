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
	countClass   // index into Collector.classes
	countReason  // index into Collector.reasons
	countBuckets // bucketsOf
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

func (ch *chunk) add(t *Turn, arrival, wait int64, flags, class, reason, buckets int32) {
	ch.rows++
	ps := &ch.times
	ps[timeArrival] = append(ps[timeArrival], arrival)
	ps[timeSent] = append(ps[timeSent], t.SentPS)
	ps[timeScheduled] = append(ps[timeScheduled], t.ScheduledPS)
	ps[timeFirst] = append(ps[timeFirst], t.FirstTokenPS)
	ps[timeDone] = append(ps[timeDone], t.DonePS)
	ps[timeWait] = append(ps[timeWait], wait)
	ps[timeToolGap] = append(ps[timeToolGap], t.ToolGapPS)
	n := &ch.counts
	n[countFlags] = append(n[countFlags], flags)
	n[countSession] = append(n[countSession], t.Session)
	n[countClass] = append(n[countClass], class)
	n[countReason] = append(n[countReason], reason)
	n[countBuckets] = append(n[countBuckets], buckets)
	n[countPrompt] = append(n[countPrompt], t.PromptTokens)
	n[countOutput] = append(n[countOutput], t.OutputTokens)
	n[countComputed] = append(n[countComputed], t.ComputedTokens)
	n[countWasted] = append(n[countWasted], t.WastedTokens)
	n[countCeiling] = append(n[countCeiling], t.CeilingTokens)
	n[countHitGPU] = append(n[countHitGPU], t.HitGPU)
	n[countHitCPU] = append(n[countHitCPU], t.HitCPU)
	n[countHitGlobal] = append(n[countHitGlobal], t.HitGlobal)
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
	defaultChunkRows = 4096
	defaultKeep      = 128 // half a million attempts, about 57 MB
)

// last is the chunk to append to.
func (a *attempts) last() (*chunk, error) {
	if n := len(a.chunks); n > 0 && a.chunks[n-1].rows < a.chunkRows {
		return a.chunks[n-1], nil
	}
	if len(a.chunks) >= a.keep && a.open != nil {
		return a.spill()
	}
	ch := new(chunk)
	if n := len(a.chunks); n > 0 { // the run is not a small one
		for i := range ch.times {
			ch.times[i] = make([]int64, 0, a.chunkRows)
		}
		for i := range ch.counts {
			ch.counts[i] = make([]int32, 0, a.chunkRows)
		}
	}
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
	for i := range ch.times {
		ch.times[i] = ch.times[i][:0]
	}
	for i := range ch.counts {
		ch.counts[i] = ch.counts[i][:0]
	}
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
		f(ch)
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
