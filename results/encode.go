package results

import (
	"encoding/binary"
	"math/bits"
)

// These are encodings of Parquet as its specification defines them, in plain Go, so that the bytes are the same on every
// processor.

// A block of DELTA_BINARY_PACKED has its own smallest difference, a miniblock its own width.
const (
	deltaBlock     = 128
	deltaMiniblock = 32
)

// appendDelta appends integers as DELTA_BINARY_PACKED: the first value, then the differences less the smallest of their
// block in as many bits as the largest of their miniblock needs. Differences wrap around as the type of size bits does.
func appendDelta[T int32 | int64](dst []byte, values []T, size int) []byte {
	dst = binary.AppendUvarint(dst, deltaBlock)
	dst = binary.AppendUvarint(dst, deltaBlock/deltaMiniblock)
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	if len(values) == 0 {
		return binary.AppendVarint(dst, 0)
	}
	last, unused := values[0], 64-size
	dst = binary.AppendVarint(dst, int64(last))
	var deltas [deltaBlock]T
	var packed [deltaBlock]uint64
	for values = values[1:]; len(values) > 0; {
		n := min(len(values), deltaBlock)
		smallest := values[0] - last
		largest := smallest
		for i, v := range values[:n] {
			d := v - last
			deltas[i] = d
			smallest, largest = min(smallest, d), max(largest, d)
			last = v
		}
		values = values[n:]
		if smallest == largest { // constant, or an even climb: no bits for each
			dst = append(binary.AppendVarint(dst, int64(smallest)), make([]byte, deltaBlock/deltaMiniblock)...)
			continue
		}
		for i, d := range deltas[:n] {
			packed[i] = uint64(d-smallest) << unused >> unused
		}
		clear(packed[n:])
		dst = appendDeltaBlock(dst, int64(smallest), packed[:(n+deltaMiniblock-1)/deltaMiniblock*deltaMiniblock])
	}
	return dst
}

// appendDeltaBlock appends the miniblocks that hold a value; those behind them have width 0.
func appendDeltaBlock(dst []byte, smallest int64, packed []uint64) []byte {
	dst = binary.AppendVarint(dst, smallest)
	var widths [deltaBlock / deltaMiniblock]byte
	for i := range len(packed) / deltaMiniblock {
		all := uint64(0)
		for _, v := range packed[i*deltaMiniblock : (i+1)*deltaMiniblock] {
			all |= v
		}
		widths[i] = byte(bits.Len64(all))
	}
	dst = append(dst, widths[:]...)
	for i := range len(packed) / deltaMiniblock {
		dst = appendPacked(dst, packed[i*deltaMiniblock:(i+1)*deltaMiniblock], int(widths[i]))
	}
	return dst
}

// appendPacked appends a multiple of eight values in width bits each, the first in the lowest bits.
func appendPacked[T uint8 | uint32 | uint64](dst []byte, values []T, width int) []byte {
	if width == 0 {
		return dst
	}
	word, used := uint64(0), 0
	for _, v := range values {
		word |= uint64(v) << used
		if used += width; used >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, word)
			used -= 64
			word = uint64(v) >> (width - used) // 0 when nothing is left, as width-used is 64 at most
		}
	}
	for ; used > 0; used -= 8 {
		dst = append(dst, byte(word))
		word >>= 8
	}
	return dst
}

// appendHybrid appends levels or dictionary indexes in the hybrid of runs and packed groups of eight.
func appendHybrid[T uint8 | uint32](dst []byte, values []T, width int) []byte {
	start, i := 0, 0
	for i < len(values) {
		run := 1
		for i+run < len(values) && values[i+run] == values[i] {
			run++
		}
		if run < 8 {
			i = min(i+8, len(values))
			continue
		}
		dst = appendGroups(dst, values[start:i], width)
		dst = binary.AppendUvarint(dst, uint64(run)<<1)
		for v, k := uint64(values[i]), 0; k < width; k += 8 {
			dst = append(dst, byte(v>>k))
		}
		i += run
		start = i
	}
	return appendGroups(dst, values[start:], width)
}

// appendGroups appends values in packed groups of eight, the last one filled up with zeros.
func appendGroups[T uint8 | uint32](dst []byte, values []T, width int) []byte {
	if len(values) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(values)+7)/8<<1|1)
	whole := len(values) &^ 7
	dst = appendPacked(dst, values[:whole], width)
	if whole < len(values) {
		var last [8]T
		copy(last[:], values[whole:])
		dst = appendPacked(dst, last[:], width)
	}
	return dst
}

// appendSplit appends doubles as BYTE_STREAM_SPLIT: the first bytes of all, the second bytes of all, and so on. Times that
// are near each other share their high bytes, which then compress.
func appendSplit(dst []byte, values []uint64) []byte {
	n := len(values)
	at := len(dst)
	dst = append(dst, make([]byte, 8*n)...)
	out := dst[at:]
	for i, v := range values {
		out[i] = byte(v)
		out[n+i] = byte(v >> 8)
		out[2*n+i] = byte(v >> 16)
		out[3*n+i] = byte(v >> 24)
		out[4*n+i] = byte(v >> 32)
		out[5*n+i] = byte(v >> 40)
		out[6*n+i] = byte(v >> 48)
		out[7*n+i] = byte(v >> 56)
	}
	return dst
}
