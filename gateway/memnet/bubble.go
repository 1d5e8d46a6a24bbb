package memnet

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Bubble is synctest.Test. Under the race detector it keeps the process to one processor meanwhile: the timers of a bubble share
// one race context, and when two goroutines find tickers of theirs run off at the same moment, both use it and the race detector
// crashes (golang/go#78156, Go 1.26). Races are found without two running at once; what is unordered is unordered.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if raced {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, f)
}
