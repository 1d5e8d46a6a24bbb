package results

import (
	"math"
	"math/bits"
)

// sorter orders values that belong to groups, several ways at once: it sorts all of them once, and each group is then taken
// out in order. Durations are integers of picoseconds, other values float64; keys have their order.
type sorter struct {
	seconds  bool     // keys are durations
	keys     []uint64 // once sorted the bits of the values
	tags     []uint32 // of the keys: fields that name groups
	common   uint32   // bits that all tags have
	keys2    []uint64 // room for as many
	tags2    []uint32
	counts   [radixDigits][1 << radixBits]int32
	groupEnd []int
}

const signBit = 1 << 63

// Keys are sorted by as many digits of so many bits at once.
const (
	radixDigits = 3
	radixBits   = 11
	radixMask   = 1<<radixBits - 1
)

// reset empties the sorter for durations or other values.
func (s *sorter) reset(seconds bool) {
	s.seconds, s.keys, s.tags, s.common = seconds, s.keys[:0], s.tags[:0], ^uint32(0)
}

func (s *sorter) reserve(n int) {
	if cap(s.keys) < n {
		s.keys, s.tags = make([]uint64, 0, n), make([]uint32, 0, n)
		s.keys2, s.tags2 = make([]uint64, n), make([]uint32, n)
	}
}

func (s *sorter) add(key uint64, tag uint32) {
	s.keys = append(s.keys, key)
	s.tags = append(s.tags, tag)
	s.common &= tag
}

func keyOfPS(ps int64) uint64 { return uint64(ps) ^ signBit }

func psOfKey(key uint64) int64 { return int64(key ^ signBit) }

func keyOf(v float64) uint64 {
	if b := math.Float64bits(v); b < signBit {
		return b | signBit
	} else {
		return ^b
	}
}

// bitsOf is the bits of the duration in seconds, or of the other value.
func (s *sorter) bitsOf(key uint64) uint64 {
	switch {
	case s.seconds:
		return math.Float64bits(Seconds(psOfKey(key)))
	case key >= signBit:
		return key ^ signBit
	default:
		return ^key
	}
}

// sort orders the keys and replaces them by the values.
func (s *sorter) sort() {
	s.order()
	for i, k := range s.keys {
		s.keys[i] = s.bitsOf(k)
	}
}

// order sorts by the digits of the upper half of the bits in which keys differ, which leaves few out of order, and moves
// these. Where they are many, the lower half of the digits comes first.
func (s *sorter) order() {
	n := len(s.keys)
	if n == 0 {
		return
	}
	if len(s.keys2) < n {
		s.keys2, s.tags2 = make([]uint64, n), make([]uint32, n)
	}
	sorted, differ := true, uint64(0)
	first, last := s.keys[0], s.keys[0]
	for _, k := range s.keys {
		sorted = sorted && last <= k
		last = k
		differ |= k ^ first
	}
	if sorted {
		return
	}
	upper := uint(max(bits.Len64(differ)-radixDigits*radixBits, 0))
	s.radix(upper)
	if upper > 0 && !s.insert(8*n) {
		s.radix(0)
		s.radix(upper)
	}
}

// radix sorts by the digits from a bit on, the lowest first, and leaves others as they are. Digits that all keys share are
// skipped.
func (s *sorter) radix(from uint) {
	clear(s.counts[:])
	for _, k := range s.keys {
		k >>= from & 63
		s.counts[0][k&radixMask]++
		s.counts[1][k>>radixBits&radixMask]++
		s.counts[2][k>>(2*radixBits)&radixMask]++
	}
	n := len(s.keys)
	keys, tags, keys2, tags2 := s.keys, s.tags, s.keys2[:n], s.tags2[:n]
	for d := range s.counts {
		count, shift := &s.counts[d], (from+uint(d)*radixBits)&63
		if int(count[keys[0]>>shift&radixMask]) == n {
			continue
		}
		at := int32(0)
		for i, c := range count {
			count[i] = at
			at += c
		}
		for i, k := range keys {
			to := &count[k>>shift&radixMask]
			keys2[*to], tags2[*to] = k, tags[i]
			*to++
		}
		keys, tags, keys2, tags2 = keys2, tags2, keys, tags
	}
	s.keys, s.tags, s.keys2, s.tags2 = keys, tags, keys2[:cap(keys2)], tags2[:cap(tags2)]
}

// insert moves keys that come too late to their places, and gives up when it moved more than most.
func (s *sorter) insert(most int) bool {
	keys, tags := s.keys, s.tags
	for i := 1; i < len(keys); i++ {
		k, t, j := keys[i], tags[i], i
		for ; j > 0 && keys[j-1] > k; j-- {
			keys[j], tags[j] = keys[j-1], tags[j-1]
		}
		keys[j], tags[j] = k, t
		if most -= i - j; most < 0 {
			return false
		}
	}
	return true
}

// field is some bits of a tag, the number of a group.
type field struct {
	shift uint
	mask  uint32 // above it
}

func (f field) of(tag uint32) int     { return int(tag >> (f.shift & 31) & f.mask) }
func (f field) tag(number int) uint32 { return uint32(number) << f.shift }

// selected takes out, of the sorted values, those whose tags have all the bits of sel.
func (s *sorter) selected(sel uint32) []uint64 {
	if s.common&sel == sel {
		return s.keys
	}
	out, n := s.keys2, 0
	for i, t := range s.tags {
		out[n] = s.keys[i]
		if t&sel == sel {
			n++
		}
	}
	return out[:n]
}

// groups takes out, of the sorted values whose tags have all the bits of sel, those of each of n groups of a field. It
// calls each with the bits of the values of a group, ascending.
func (s *sorter) groups(sel uint32, f field, n int, each func(group int, values []uint64)) {
	if len(s.groupEnd) < n {
		s.groupEnd = make([]int, n)
	}
	ends := s.groupEnd[:n]
	clear(ends)
	for _, t := range s.tags {
		if t&sel == sel {
			ends[f.of(t)]++
		}
	}
	at := 0
	for g, n := range ends {
		ends[g] = at
		at += n
	}
	out := s.keys2
	for i, t := range s.tags {
		if t&sel == sel {
			g := f.of(t)
			out[ends[g]] = s.keys[i]
			ends[g]++
		}
	}
	at = 0
	for g, end := range ends {
		each(g, out[at:end])
		at = end
	}
}

// dist summarises all sorted values.
func (s *sorter) dist() Dist { return distOfBits(s.keys) }

// distOfBits summarises ascending values, given by their bits.
func distOfBits(bits []uint64) Dist {
	sum := 0.0
	for _, b := range bits {
		sum += math.Float64frombits(b)
	}
	return summarise(len(bits), sum, func(i int) float64 { return math.Float64frombits(bits[i]) })
}
