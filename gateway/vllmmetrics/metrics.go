// Package vllmmetrics reads what a vLLM server says of itself under /metrics, in old and new names, and writes the same
// (for the fake engine). A figure that is absent is unknown, which is not zero (spec: gateway 4.3).
package vllmmetrics

import (
	"math"
	"slices"
)

// Figure is one figure of Metrics.
type Figure uint8

// The figures that are read. Counters grow until the process restarts; gauges are as of the last engine step.
const (
	Running             Figure = iota // gauge: requests in the running list
	Waiting                           // gauge: requests waiting
	WaitingForCapacity                // gauge: of these, for want of room; newer versions only
	WaitingDeferred                   // gauge: of these, put off for another reason; newer versions only
	Usage                             // gauge: referenced blocks / usable blocks, 0 to 1
	QueryTokens                       // counter: prompt tokens looked up in the prefix cache
	HitTokens                         // counter: of these, found
	ExternalQueryTokens               // counter: looked up in an external cache
	ExternalHitTokens                 // counter: of these, found
	PromptLocalCompute                // counter: prompt tokens computed
	PromptLocalHit                    // counter: prompt tokens found in the replica's own cache
	PromptExternal                    // counter: prompt tokens that came by a KV transfer
	PromptTokens                      // counter
	GenerationTokens                  // counter
	Preemptions                       // counter
	Blocks                            // gauge: KV blocks of the GPU
	BlockTokens                       // gauge: tokens of a KV block
	QueueSeconds                      // counter: sum of the histogram; the count of each follows its sum
	QueueCount
	PrefillSeconds
	PrefillCount
	DecodeSeconds
	DecodeCount
	E2ESeconds
	E2ECount
	TTFTSeconds
	TTFTCount
	InterTokenSeconds
	InterTokenCount
	OffloadBytes   // counter
	OffloadSeconds // counter
	NumFigures
)

// Metrics is what one engine, or all engines of one server, say.
type Metrics struct {
	has     uint64
	refused uint64 // by the parser, for good
	value   [NumFigures]float64
}

// Has says whether f is known.
func (m *Metrics) Has(f Figure) bool { return m.has>>f&1 != 0 }

// Value returns f; ok is false if it is unknown.
func (m *Metrics) Value(f Figure) (v float64, ok bool) { return m.value[f], m.Has(f) }

// Set makes f known. A figure is finite and not negative; false, and no change, if v is not.
func (m *Metrics) Set(f Figure, v float64) bool {
	if !(v >= 0) || math.IsInf(v, 1) || f == Usage && v > 1 {
		return false
	}
	m.has |= 1 << f
	m.value[f] = v
	return true
}

// add adds v to f.
func (m *Metrics) add(f Figure, v float64) bool { return m.Set(f, m.value[f]+v) }

// Counter says whether f is a counter, which grows until the process restarts.
func (f Figure) Counter() bool {
	switch f {
	case Running, Waiting, WaitingForCapacity, WaitingDeferred, Usage, Blocks, BlockTokens:
		return false
	}
	return f < NumFigures
}

// Delta is how far counter f has grown from before to m. A counter that is smaller than before was reset, and has grown
// by what it is now. ok is false if f is unknown in one of them or no counter.
func (m *Metrics) Delta(before *Metrics, f Figure) (grown float64, ok bool) {
	if !f.Counter() || !m.Has(f) || !before.Has(f) {
		return 0, false
	}
	if m.value[f] < before.value[f] {
		return m.value[f], true
	}
	return m.value[f] - before.value[f], true
}

// Restarted says whether any counter is smaller than before: the process is a new one.
func (m *Metrics) Restarted(before *Metrics) bool {
	for f := range NumFigures {
		if f.Counter() && m.Has(f) && before.Has(f) && m.value[f] < before.value[f] {
			return true
		}
	}
	return false
}

// Engine is the metrics of one data-parallel rank.
type Engine struct {
	Label string // of the label "engine"; "" if there is none
	Metrics
}

// Scrape is what one server said.
type Scrape struct {
	Engines []Engine // by label
	Refused []string // names of figures that were not finite, negative or impossible; they are unknown
}

// Engine returns the metrics of the engine called label, nil if there is none.
func (s *Scrape) Engine(label string) *Metrics {
	for i := range s.Engines {
		if s.Engines[i].Label == label {
			return &s.Engines[i].Metrics
		}
	}
	return nil
}

// Total is the server as one: sums over the engines, the mean of Usage, and BlockTokens if all agree. A figure that an
// engine does not give while another does is unknown, since a sum without it would be too small.
func (s *Scrape) Total() Metrics {
	var t Metrics
	for f := range NumFigures {
		sum, known := 0.0, len(s.Engines) > 0
		for i := range s.Engines {
			e := &s.Engines[i].Metrics
			known = known && e.Has(f) && (f != BlockTokens || e.value[f] == s.Engines[0].value[f])
			sum += e.value[f]
		}
		if known && (f == Usage || f == BlockTokens) {
			sum /= float64(len(s.Engines))
		}
		if known {
			t.Set(f, sum)
		}
	}
	return t
}

// engine returns the metrics of the engine called label and makes them if there are none.
func (s *Scrape) engine(label string) *Metrics {
	i, ok := slices.BinarySearchFunc(s.Engines, label, func(e Engine, l string) int {
		if e.Label < l {
			return -1
		} else if e.Label > l {
			return 1
		}
		return 0
	})
	if !ok {
		s.Engines = slices.Insert(s.Engines, i, Engine{Label: label})
	}
	return &s.Engines[i].Metrics
}
