package fakevllm

import "time"

// clock is the engine's time in picoseconds: real time, speed times faster. It runs for 106 days of its own time.
type clock struct {
	start time.Time
	speed float64
}

func (c *clock) now() int64 { return int64(float64(time.Since(c.start)) * c.speed * 1000) }

// until is how long to sleep for the clock to reach t.
func (c *clock) until(t int64) time.Duration {
	return time.Duration(float64(t)/1000/c.speed+1) - time.Since(c.start)
}

// seconds is a time or a duration of the clock in seconds.
func seconds(ps int64) float64 { return float64(ps) / 1e12 }
