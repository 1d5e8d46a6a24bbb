package gateway

import (
	"time"

	"github.com/sluice-sim/sluice/policies"
)

// Clock is the time of a Driver. Tests have one of their own.
type Clock interface {
	// Now is the time since the epoch. It never goes back.
	Now() policies.Time
	// AfterFunc calls f once, d from now, on a goroutine of its own. stop keeps a call that has not begun from
	// happening.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// wallClock counts from its epoch on the monotonic clock.
type wallClock struct{ epoch time.Time }

// NewClock returns the machine's monotonic clock, with the present as its epoch.
func NewClock() Clock { return wallClock{time.Now()} }

// Now implements Clock.
func (c wallClock) Now() policies.Time { return policies.Time(time.Since(c.epoch)) }

// AfterFunc implements Clock.
func (c wallClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
