package policies

import "github.com/sluice-sim/sluice/exact"

// instanceDraw parts these draws from others with the same seed.
const instanceDraw = 1003

// InstanceOf is which of n router instances serves a session, drawn from the seed; a log's reader draws the same.
func InstanceOf(seed uint64, n int, s SessionID) int {
	return int(exact.UniformInt(exact.Hash2(seed, instanceDraw, uint64(s)), int64(n)))
}

// InstanceSeed is the seed of the policies of instance k: the first one has that of the run, the others have their own.
func InstanceSeed(seed uint64, k int) uint64 {
	if k == 0 {
		return seed
	}
	return exact.Hash2(seed, instanceDraw, ^uint64(k))
}
