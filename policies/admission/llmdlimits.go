package admission

import "github.com/sluice-sim/sluice/policies"

// queueLimits bounds what may wait. A figure of 0 is no limit.
type queueLimits struct {
	turns, bytes           int64 // of one band
	totalTurns, totalBytes int64 // of all bands
	bytesPerToken          float64
	scan                   policies.Time // between two removals of what has left
}

// backlog is what waits, and what has left and is not removed yet, which counts as well.
type backlog struct {
	turns, bytes         int64
	goneTurns, goneBytes int64
	scanned              policies.Time // number of the scan at which the gone were counted last
}

// size is the bytes of a request whose prompt has so many tokens.
func (l *queueLimits) size(tokens int32) int64 {
	return int64(float64(l.bytesPerToken * float64(tokens)))
}

// sweep drops the gone once a scan has passed since they left.
func (l *queueLimits) sweep(now policies.Time, b *backlog) {
	if l.scan <= 0 {
		b.goneTurns, b.goneBytes = 0, 0
	} else if n := now / l.scan; n > b.scanned {
		b.scanned, b.goneTurns, b.goneBytes = n, 0, 0
	}
}

func (l *queueLimits) add(b *backlog, bytes int64) {
	b.turns++
	b.bytes += bytes
}

// take removes a turn that goes.
func (l *queueLimits) take(b *backlog, bytes int64) {
	b.turns--
	b.bytes -= bytes
}

// lose turns one that waits into one that has left.
func (l *queueLimits) lose(now policies.Time, b *backlog, bytes int64) {
	l.take(b, bytes)
	l.sweep(now, b)
	if l.scan > 0 {
		b.goneTurns++
		b.goneBytes += bytes
	}
}

// full says whether a request of so many bytes is one too many for a band, or for all together.
func (l *queueLimits) full(now policies.Time, band, all *backlog, bytes int64) bool {
	l.sweep(now, band)
	l.sweep(now, all)
	return band.exceeds(bytes, l.turns, l.bytes) || all.exceeds(bytes, l.totalTurns, l.totalBytes)
}

func (b *backlog) exceeds(bytes, maxTurns, maxBytes int64) bool {
	return maxTurns > 0 && b.turns+b.goneTurns+1 > maxTurns || maxBytes > 0 && b.bytes+b.goneBytes+bytes > maxBytes
}
