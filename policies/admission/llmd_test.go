package admission

import (
	"math"
	"testing"

	"github.com/sluice-sim/sluice/policies"
)

func TestShedChance(t *testing.T) {
	// The figures of the original's documentation: 2.3 % at .15, 9.6 % at .2, 73 % at .3, all from .34 on.
	for _, c := range []struct{ saturation, want float64 }{{0, 0}, {.15, .0228}, {.2, .096}, {.3, .729}, {.34, 1}, {1, 1}, {2, 1}} {
		if got := shedChance(300, c.saturation); math.Abs(got-c.want) > .0001 {
			t.Errorf("at %v: %v, want %v", c.saturation, got, c.want)
		}
	}
	s, refused := shedding{seed: 5}, 0
	const turns = 4000
	for a := range policies.AttemptID(turns) {
		if s.draws(.096, a) {
			refused++
		}
	}
	if mean := .096 * turns; math.Abs(float64(refused)-mean) > 4*math.Sqrt(mean) {
		t.Errorf("%d of %d are refused with a chance of .096", refused, turns)
	}
}

func TestHoldbackCeilings(t *testing.T) {
	for _, c := range []struct {
		kind string
		n    int
		want []float64
	}{
		{ceilingStatic, 3, []float64{.9, .9, .9}},
		{ceilingHoldback, 1, []float64{.9}},
		{ceilingHoldback, 2, []float64{.9, .3}},
		{ceilingHoldback, 4, []float64{.9, .7, .5, .3}},
	} {
		x := ceilings{kind: c.kind, max: .9, min: .3}
		for rank, want := range c.want {
			if got := x.at(rank, c.n); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: band %d of %d: %v, want %v", c.kind, rank, c.n, got, want)
			}
		}
	}
}

// A band that is over its reflected ceiling opens once in round(s/(1-s)) cycles.
func TestReflectiveCeilings(t *testing.T) {
	const cycles = 3600
	for _, c := range []struct {
		saturation float64
		want       []int // openings of each band
	}{
		{.2, []int{cycles, cycles, cycles}},
		{.5, []int{cycles, cycles, cycles}},            // below .75 and at .5, where the third opens in every cycle
		{.7, []int{cycles, 1800, 1800}},                // over .65 and .3: round(2.33) is 2
		{.75, []int{cycles, 1200}},                     // over .25: 3
		{.9, []int{cycles, 400, 400, 400}},             // over .7, .4 and .1: 9
		{.75, []int{cycles, 1200, 1200, 1200}},         // at .75: the second is not below it
		{.99, []int{cycles, 36}},                       // 99 go 36 times into 3600
		{.95, []int{cycles}},                           // one band is the first
		{1, []int{cycles, 0}}, {1.5, []int{cycles, 0}}, // and no band is below 1 then
	} {
		x, n := ceilings{kind: ceilingReflective}, len(c.want)
		open := make([]int, n)
		for i := range policies.Time(cycles) {
			now := (i + 1) * cycleTime
			if !x.due(now, false) || x.due(now-1, false) || !x.due(now-1, true) {
				t.Fatalf("a cycle is due each millisecond and for each turn that is queued, not so at %d", now)
			}
			x.advance(now, c.saturation, n, false)
			for rank := range open {
				open[rank] += int(x.at(rank, n))
			}
		}
		for rank, want := range c.want {
			if open[rank] != want {
				t.Errorf("%v of %d bands: band %d opens %d times, want %d", c.saturation, n, rank, open[rank], want)
			}
		}
	}
}

// Cycles that are not run count all the same: who looks when a ceiling opens finds it open, as if every cycle were run.
func TestReflectiveCeilingsSkipCycles(t *testing.T) {
	for _, saturation := range []float64{.6, .8, .9, .97} {
		every, some := ceilings{kind: ceilingReflective}, ceilings{kind: ceilingReflective}
		some.advance(cycleTime, saturation, 3, false)
		next := some.opens()
		for ms := policies.Time(1); ms <= 500; ms++ {
			every.advance(ms*cycleTime, saturation, 3, false)
			if open := every.at(2, 3) == 1; ms > 1 && open != (next == ms*cycleTime) {
				t.Fatalf("at %v and %d ms the third band is open: %v; the next opening was to be at %d", saturation, ms, open, next)
			} else if ms > 1 && open {
				some.advance(ms*cycleTime, saturation, 3, false)
				if some.at(2, 3) != 1 || some.calls[2] != every.calls[2] {
					t.Fatalf("at %v and %d ms: %d cycles of %d", saturation, ms, some.calls[2], every.calls[2])
				}
				next = some.opens()
			}
		}
	}
}

func TestQueueLimits(t *testing.T) {
	l := queueLimits{turns: 3, bytes: 100, totalTurns: 4, totalBytes: 150, bytesPerToken: 2.5, scan: 10}
	if n := l.size(41); n != 102 {
		t.Errorf("41 tokens are %d bytes", n)
	}
	for _, c := range []struct {
		what      string
		band, all backlog
		bytes     int64
		want      bool
	}{
		{"empty", backlog{}, backlog{}, 100, false},
		{"larger than the limit alone", backlog{}, backlog{}, 101, true},
		{"a third turn", backlog{turns: 2}, backlog{turns: 2}, 1, false},
		{"a fourth", backlog{turns: 3}, backlog{turns: 3}, 1, true},
		{"bytes that just fit", backlog{bytes: 40}, backlog{bytes: 90}, 60, false},
		{"one more in the band", backlog{bytes: 41}, backlog{bytes: 41}, 60, true},
		{"one more in all", backlog{bytes: 40}, backlog{bytes: 91}, 60, true},
		{"a fifth turn in all", backlog{turns: 1}, backlog{turns: 4}, 1, true},
		{"what has left counts", backlog{turns: 1, goneTurns: 2, scanned: 2}, backlog{}, 1, true},
		{"as bytes too", backlog{goneBytes: 41, scanned: 2}, backlog{}, 60, true},
		{"until the next scan", backlog{goneTurns: 2, goneBytes: 90, scanned: 1}, backlog{}, 60, false},
		{"in all, too", backlog{}, backlog{goneTurns: 4, scanned: 2}, 1, true},
		{"likewise until then", backlog{}, backlog{goneTurns: 4, scanned: 1}, 1, false},
	} {
		if got := l.full(20, &c.band, &c.all, c.bytes); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	b := backlog{turns: 3, goneTurns: 2, goneBytes: 90, scanned: 1}
	l.lose(25, &b, 0) // those that left before the scan at 20 do not count; this one does
	if want := (backlog{turns: 2, goneTurns: 1, scanned: 2}); b != want {
		t.Errorf("after a loss %+v, want %+v", b, want)
	}
	free := queueLimits{}
	if b := (backlog{turns: 1e9, bytes: 1e15}); free.full(0, &b, &b, 1e15) {
		t.Error("0 limits")
	}
}
