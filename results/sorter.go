package results

import "math"

// sorter orders values that belong to groups, several ways at once: it sorts all of them once, and each group is then taken
// out in order. Durations are integers of picoseconds, other values float64; keys have their order.
type sorter struct {
	seconds  bool     // keys are durations
	keys     []uint64 // once sorted the bits of the values
	tags     []uint32 // of the keys: fields that name groups
	keys2    []uint64 // room for as many
	tags2    []uint32
	counts   [8][256]int
	groupEnd []int
}

const signBit = 1 << 63

// reset empties the sorter for durations or other values.
func (s *sorter) reset(seconds bool) {
	s.seconds, s.keys, s.tags = seconds, s.keys[:0], s.tags[:0]
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

// order sorts by the bytes of the keys, the lowest first; bytes that all keys share are skipped.
func (s *sorter) order() {
	n := len(s.keys)
	if n == 0 {
		return
	}
	if len(s.keys2) < n {
		s.keys2, s.tags2 = make([]uint64, n), make([]uint32, n)
	}
	clear(s.counts[:])
	sorted := true
	last := s.keys[0]
	for _, k := range s.keys {
		sorted = sorted && last <= k
		last = k
		s.counts[0][byte(k)]++
		s.counts[1][byte(k>>8)]++
		s.counts[2][byte(k>>16)]++
		s.counts[3][byte(k>>24)]++
		s.counts[4][byte(k>>32)]++
		s.counts[5][byte(k>>40)]++
		s.counts[6][byte(k>>48)]++
		s.counts[7][byte(k>>56)]++
	}
	if sorted {
		return
	}
	keys, tags, keys2, tags2 := s.keys, s.tags, s.keys2[:n], s.tags2[:n]
	for b := range s.counts {
		count, shift := &s.counts[b], 8*b
		if count[byte(keys[0]>>shift)] == n {
			continue
		}
		at := 0
		for i, c := range count {
			count[i] = at
			at += c
		}
		for i, k := range keys {
			to := &count[byte(k>>shift)]
			keys2[*to], tags2[*to] = k, tags[i]
			*to++
		}
		keys, tags, keys2, tags2 = keys2, tags2, keys, tags
	}
	s.keys, s.tags, s.keys2, s.tags2 = keys, tags, keys2[:cap(keys2)], tags2[:cap(tags2)]
}

// field is some bits of a tag, the number of a group.
type field struct{ shift, bits int }

func (f field) of(tag uint32) int     { return int(tag >> f.shift & (1<<f.bits - 1)) }
func (f field) tag(number int) uint32 { return uint32(number) << f.shift }

// everyone is the field of a single group.
var everyone = field{}

// groups takes out, of the sorted values whose tags have all the bits of sel, those of each of n groups of a field. It
// calls each with the bits of the values of a group, ascending.
func (s *sorter) groups(sel uint32, f field, n int, each func(group int, bits []uint64)) {
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
