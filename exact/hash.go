package exact

import "math/bits"

// Mix is a bijection of 64-bit words in which every input bit flips every
// output bit with probability close to one half. Mix(0) = 0. (The finalizer of
// SplitMix64 with Stafford's constants, "variant 13".)
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// golden is 2^64 over the golden ratio, made odd.
const golden = 0x9e3779b97f4a7c15

// Hash1 to Hash4 return a random-looking word for a seed and one to four keys:
// the counter form of a random number generator. The same arguments always give
// the same word, and one more draw elsewhere shifts nothing. The order of keys
// matters. The idea is to pass (purpose, entity, counter).

// Hash1 hashes one key.
func Hash1(seed, a uint64) uint64 { return absorb(Mix(seed+golden), a) }

// Hash2 hashes two keys.
func Hash2(seed, a, b uint64) uint64 { return absorb(Hash1(seed, a), b) }

// Hash3 hashes three keys.
func Hash3(seed, a, b, c uint64) uint64 { return absorb(Hash2(seed, a, b), c) }

// Hash4 hashes four keys.
func Hash4(seed, a, b, c, d uint64) uint64 { return absorb(Hash3(seed, a, b, c), d) }

func absorb(h, key uint64) uint64 { return Mix((h ^ key) + golden) }

// Uniform turns a random word into a number of the open interval (0, 1): the
// middles of 2^52 equal cells, so u and 1-u are equally likely and the
// quantile functions of this package are finite on it.
func Uniform(h uint64) float64 {
	return float64((float64(h>>12) + 0.5) * 0x1p-52)
}

// UniformInt turns a random word into a whole number in [0, n), n > 0. For n
// below 2^32 the chance of each value is 1/n to within 2^-32 relative.
func UniformInt(h uint64, n int64) int64 {
	if n <= 0 {
		panic("exact: UniformInt of an empty range")
	}
	hi, _ := bits.Mul64(h, uint64(n))
	return int64(hi)
}
