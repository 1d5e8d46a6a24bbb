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
	last, unused := values[0], uint(64-size)
	dst = binary.AppendVarint(dst, int64(last))
	var packed [deltaBlock]uint64
	for values = values[1:]; len(values) > 0; {
		block := values[:min(len(values), deltaBlock)]
		values = values[len(block):]
		smallest, largest := differences(last, block)
		if smallest == largest { // constant, or an even climb: no bits for each
			dst = append(binary.AppendVarint(dst, int64(smallest)), make([]byte, deltaBlock/deltaMiniblock)...)
			last = block[len(block)-1]
			continue
		}
		for i, v := range block {
			packed[i] = uint64(v-last-smallest) << (unused & 63) >> (unused & 63)
			last = v
		}
		clear(packed[len(block):])
		dst = appendDeltaBlock(dst, int64(smallest), &packed, (len(block)+deltaMiniblock-1)/deltaMiniblock)
	}
	return dst
}

// differences is the smallest and the largest difference between neighbours. Every other one is looked at apart, so that
// the processor does not wait for the last one.
func differences[T int32 | int64](last T, values []T) (smallest, largest T) {
	smallest = values[0] - last
	largest = smallest
	smallest2, largest2 := smallest, largest
	for ; len(values) >= 2; values = values[2:] {
		d, d2 := values[0]-last, values[1]-values[0]
		smallest, largest = min(smallest, d), max(largest, d)
		smallest2, largest2 = min(smallest2, d2), max(largest2, d2)
		last = values[1]
	}
	if len(values) > 0 {
		d := values[0] - last
		smallest, largest = min(smallest, d), max(largest, d)
	}
	return min(smallest, smallest2), max(largest, largest2)
}

// appendDeltaBlock appends the miniblocks that hold a value; those behind them have width 0.
func appendDeltaBlock(dst []byte, smallest int64, packed *[deltaBlock]uint64, miniblocks int) []byte {
	dst = binary.AppendVarint(dst, smallest)
	at := len(dst)
	dst = append(dst, make([]byte, deltaBlock/deltaMiniblock)...)
	for i := range miniblocks {
		miniblock := (*[deltaMiniblock]uint64)(packed[i*deltaMiniblock:])
		all := uint64(0)
		for _, v := range miniblock {
			all |= v
		}
		width := bits.Len64(all)
		dst[at+i] = byte(width)
		dst = appendMiniblock(dst, miniblock, width)
	}
	return dst
}

// appendMiniblock is appendPacked for a miniblock.
func appendMiniblock(dst []byte, values *[deltaMiniblock]uint64, width int) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, deltaMiniblock/8*width)...)
	out := dst[at:]
	word, used := uint64(0), uint(0)
	for _, v := range values {
		word |= v << (used & 63)
		if used += uint(width); used >= 64 {
			binary.LittleEndian.PutUint64(out, word)
			out = out[8:]
			used -= 64
			word = v >> ((uint(width) - used - 1) & 63) >> 1 // in two steps, as width-used is up to 64
		}
	}
	if used > 0 { // half a word
		binary.LittleEndian.PutUint32(out, uint32(word))
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

// leastRun is how many equal values appendHybrid makes a run.
const leastRun = 8

// appendHybrid appends levels or dictionary indexes in the hybrid of runs and packed groups of eight.
func appendHybrid[T uint8 | uint32](dst []byte, values []T, width int) []byte {
	start, i := 0, 0
	for i < len(values) {
		run := 1
		for i+run < len(values) && values[i+run] == values[i] {
			run++
		}
		if run < leastRun {
			i = min(i+leastRun, len(values))
			continue
		}
		dst = appendGroups(dst, values[start:i], width)
		dst = appendRun(dst, values[i], run, width)
		i += run
		start = i
	}
	return appendGroups(dst, values[start:], width)
}

// appendRun appends n times the same value.
func appendRun[T uint8 | uint32](dst []byte, v T, n, width int) []byte {
	dst = binary.AppendUvarint(dst, uint64(n)<<1)
	for k := 0; k < width; k += 8 {
		dst = append(dst, byte(uint64(v)>>k))
	}
	return dst
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
	n, at := len(values), len(dst)
	dst = append(dst, make([]byte, 8*n)...)
	out := dst[at:]
	i := 0
	for ; i+8 <= n; i += 8 {
		v := (*[8]uint64)(values[i:])
		transpose(v, out[i:], n)
	}
	for ; i < n; i++ {
		for k := range 8 {
			out[k*n+i] = byte(values[i] >> (8 * k))
		}
	}
	return dst
}

// transpose writes the first bytes of eight doubles, n bytes behind them the second ones, and so on.
func transpose(v *[8]uint64, out []byte, n int) {
	// Quarters of 4 by 4 bytes change places, then in each of them those of 2 by 2, then single bytes.
	const low32, low16, low8 = 0x00000000ffffffff, 0x0000ffff0000ffff, 0x00ff00ff00ff00ff
	a, b, c, d, e, f, g, h := v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
	a, e = a&low32|e<<32, a>>32|e&^low32
	b, f = b&low32|f<<32, b>>32|f&^low32
	c, g = c&low32|g<<32, c>>32|g&^low32
	d, h = d&low32|h<<32, d>>32|h&^low32
	a, c = a&low16|c&low16<<16, a>>16&low16|c&^low16
	b, d = b&low16|d&low16<<16, b>>16&low16|d&^low16
	e, g = e&low16|g&low16<<16, e>>16&low16|g&^low16
	f, h = f&low16|h&low16<<16, f>>16&low16|h&^low16
	a, b = a&low8|b&low8<<8, a>>8&low8|b&^low8
	c, d = c&low8|d&low8<<8, c>>8&low8|d&^low8
	e, f = e&low8|f&low8<<8, e>>8&low8|f&^low8
	g, h = g&low8|h&low8<<8, g>>8&low8|h&^low8
	for k, w := range [8]uint64{a, b, c, d, e, f, g, h} {
		binary.LittleEndian.PutUint64(out[k*n:], w)
	}
}
