package kvevents

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// reader reads msgpack from a payload. It allocates nothing and never reads ahead of what is there: a length that the
// payload cannot hold is an error before anything is made of it.
type reader struct {
	b   []byte
	at  int
	err error
}

var errShort = errors.New("the payload is cut off")

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = errors.New("at byte " + strconv.Itoa(r.at) + ": " + what)
	}
}

// take returns the next n bytes.
func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b)-r.at {
		r.fail(errShort.Error())
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

// uint reads n bytes as a number.
func (r *reader) uint(n int) uint64 {
	b := r.take(n)
	if b == nil {
		return 0
	}
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

func (r *reader) peek() byte {
	if r.err == nil && r.at < len(r.b) {
		return r.b[r.at]
	}
	r.fail(errShort.Error())
	return 0xc1 // the code that msgpack never uses
}

// isNil takes a nil if that is next.
func (r *reader) isNil() bool {
	if r.peek() == 0xc0 {
		r.at++
		return true
	}
	return false
}

// length reads the head of an array or a map. Every element takes at least a byte.
func (r *reader) length(fix byte, mask byte, wide byte, each int) int {
	c := r.peek()
	n := uint64(0)
	switch {
	case c&^mask == fix:
		r.at++
		n = uint64(c & mask)
	case c == wide:
		r.at++
		n = r.uint(2)
	case c == wide+1:
		r.at++
		n = r.uint(4)
	default:
		r.fail("code 0x" + strconv.FormatUint(uint64(c), 16) + ", expected an array or a map")
	}
	if r.err == nil && n > uint64((len(r.b)-r.at)/each) {
		r.fail(errShort.Error())
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) array() int  { return r.length(0x90, 0x0f, 0xdc, 1) }
func (r *reader) object() int { return r.length(0x80, 0x0f, 0xde, 2) }

func (r *reader) isMap() bool { c := r.peek(); return c&0xf0 == 0x80 || c == 0xde || c == 0xdf }

// isBytes says whether a string or bytes are next.
func (r *reader) isBytes() bool {
	c := r.peek()
	return c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb || c >= 0xc4 && c <= 0xc6
}

// bytes reads a string or bytes.
func (r *reader) bytes() []byte {
	c := r.peek()
	r.at++
	switch {
	case r.err != nil:
		return nil
	case c&0xe0 == 0xa0:
		return r.take(int(c & 0x1f))
	case c == 0xd9 || c == 0xc4:
		return r.take(int(r.uint(1)))
	case c == 0xda || c == 0xc5:
		return r.take(int(r.uint(2)))
	case c == 0xdb || c == 0xc6:
		return r.take(int(r.uint(4)))
	}
	r.at--
	r.fail("code 0x" + strconv.FormatUint(uint64(c), 16) + ", expected text or bytes")
	return nil
}

// integer reads an integer; as a hash, it may use all 64 bits, which then read as negative.
func (r *reader) integer() (bits uint64, negative bool) {
	c := r.peek()
	r.at++
	switch {
	case r.err != nil:
	case c <= 0x7f:
		return uint64(c), false
	case c >= 0xe0:
		return uint64(int64(int8(c))), true
	case c >= 0xcc && c <= 0xcf:
		return r.uint(1 << (c - 0xcc)), false
	case c >= 0xd0 && c <= 0xd3:
		n := 1 << (c - 0xd0)
		v := int64(r.uint(n)<<(64-8*n)) >> (64 - 8*n)
		return uint64(v), v < 0
	default:
		r.at--
		r.fail("code 0x" + strconv.FormatUint(uint64(c), 16) + ", expected an integer")
	}
	return 0, false
}

// int32 reads an integer of at most 31 bits, not negative.
func (r *reader) int32() int32 {
	v, negative := r.integer()
	if r.err == nil && (negative || v > math.MaxInt32) {
		r.fail("a number out of range")
		return 0
	}
	return int32(v)
}

// float reads a number.
func (r *reader) float() float64 {
	switch r.peek() {
	case 0xca:
		r.at++
		return float64(math.Float32frombits(uint32(r.uint(4))))
	case 0xcb:
		r.at++
		return math.Float64frombits(r.uint(8))
	}
	v, negative := r.integer()
	if negative {
		return float64(int64(v))
	}
	return float64(v)
}

// skip passes over one value. It counts what is open instead of calling itself: nesting costs the payload a byte a level,
// and would cost a stack more.
func (r *reader) skip() {
	for open := 1; open > 0 && r.err == nil; open-- {
		c := r.peek()
		switch {
		case r.err != nil:
		case c&0xf0 == 0x90 || c == 0xdc || c == 0xdd:
			open += r.array()
		case c&0xf0 == 0x80 || c == 0xde || c == 0xdf:
			open += 2 * r.object()
		case r.isBytes():
			r.bytes()
		case c == 0xc0 || c == 0xc2 || c == 0xc3:
			r.at++
		case c == 0xca || c == 0xcb:
			r.float()
		case c >= 0xd4 && c <= 0xd8: // fixed extensions
			r.at++
			r.take(1 + 1<<(c-0xd4))
		case c >= 0xc7 && c <= 0xc9: // extensions
			r.at++
			n := r.uint(1 << (c - 0xc7))
			if r.err == nil && n >= uint64(len(r.b)-r.at) {
				r.fail(errShort.Error())
				return
			}
			r.take(1 + int(n))
		default:
			r.integer()
		}
	}
}

func appendArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendMap(b []byte, n int) []byte { return append(b, 0x80|byte(n)) } // n < 16

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendText(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

func appendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(f))
}
