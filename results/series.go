package results

import (
	"fmt"
	"math"
)

// loadKind is a column of the replicas' series. Sums spread evenly over their interval; gauges hold over it.
type loadKind int

const (
	loadOutput   loadKind = iota // tokens
	loadPrompt                   // tokens
	loadBusy                     // seconds
	loadComputed                 // tokens
	loadInFlight                 // attempts * seconds, from here on gauges
	loadResident                 // tokens * seconds
	loadUsage                    // share * seconds
	numLoads
)

// Loads that are compared in every window.
const (
	firstCompared = loadComputed
	numCompared   = loadResident - loadComputed + 1
)

// imbalancePS is the window over which replicas are compared.
const imbalancePS = 60_000_000_000_000

// maxReplicas bounds the replica number that a row may carry.
const maxReplicas = 1 << 16

// loadRow is what the metrics need of a Sample: sums and gauges.
type loadRow struct {
	end    int64
	values [numLoads]float64
}

// series holds the intervals of every replica in order of time.
type series struct{ replicas [][]loadRow }

func newSeries() *series { return &series{} }

func (s *series) add(sample *Sample) error {
	r := int(sample.Replica)
	if r < 0 || r >= maxReplicas {
		return fmt.Errorf("sample of replica %d: expected 0 to %d", r, maxReplicas-1)
	}
	for len(s.replicas) <= r {
		s.replicas = append(s.replicas, nil)
	}
	if rows := s.replicas[r]; len(rows) > 0 && sample.EndPS <= rows[len(rows)-1].end {
		return fmt.Errorf("sample of replica %d at %g s: expected a time after the former sample's, %g s", r,
			Seconds(sample.EndPS), Seconds(rows[len(rows)-1].end))
	}
	s.replicas[r] = append(s.replicas[r], loadRow{sample.EndPS, [numLoads]float64{
		loadComputed: float64(sample.ComputedTokens), loadOutput: float64(sample.OutputTokens),
		loadPrompt: float64(sample.PromptTokens), loadBusy: Seconds(sample.BusyPS), loadInFlight: float64(sample.InFlight),
		loadResident: float64(sample.ResidentTokens), loadUsage: sample.Usage}})
	return nil
}

// load is what the replicas did over a span, and in every 60 s of it.
type load struct {
	sampled  bool
	replicas int
	total    [numLoads][]float64    // by replica
	windows  [][numCompared]float64 // by window * replicas + replica
	seconds  []float64              // by window
	maxUsage float64
}

// over spreads the samples over the 60 s windows of a span, in proportion to the time they share.
func (s *series) over(start, end int64, replicas int) *load {
	n := int((end - start + imbalancePS - 1) / imbalancePS)
	l := &load{replicas: replicas, seconds: make([]float64, n), windows: make([][numCompared]float64, n*replicas)}
	for i := range l.seconds {
		lo := start + int64(i)*imbalancePS
		l.seconds[i] = Seconds(min(lo+imbalancePS, end) - lo)
	}
	for k := range numLoads {
		l.total[k] = make([]float64, replicas)
	}
	for r := range min(replicas, len(s.replicas)) {
		l.add(s.replicas[r], r, start, end)
	}
	return l
}

// add spreads the intervals of a replica, each over the windows that it meets.
func (l *load) add(rows []loadRow, r int, start, end int64) {
	var total [numLoads]float64
	var pieceLength int64
	var seconds float64 // of a piece of that length
	from := int64(0)
	for i := range rows {
		row := &rows[i]
		lo, hi, length := max(from, start), min(row.end, end), row.end-from
		from = row.end
		if lo >= hi {
			continue
		}
		l.sampled = true
		l.maxUsage = max(l.maxUsage, row.values[loadUsage])
		for window := int((lo - start) / imbalancePS); lo < hi; window++ {
			to := min(start+int64(window+1)*imbalancePS, hi)
			if to-lo != pieceLength {
				pieceLength = to - lo
				seconds = Seconds(pieceLength)
			}
			piece := row.values
			if pieceLength != length {
				share := float64(pieceLength) / float64(length)
				for k := range loadInFlight {
					piece[k] = float64(piece[k] * share)
				}
			}
			for k := loadInFlight; k < numLoads; k++ {
				piece[k] = float64(piece[k] * seconds)
			}
			for k := range numLoads {
				total[k] += piece[k]
			}
			compared := &l.windows[window*l.replicas+r]
			for k := range numCompared {
				compared[k] += piece[firstCompared+k]
			}
			lo = to
		}
	}
	for k := range numLoads {
		l.total[k][r] = total[k]
	}
}

func (l *load) sum(k loadKind) float64 {
	total := 0.0
	for _, v := range l.total[k] {
		total += v
	}
	return total
}

// imbalance compares the replicas in every window with load and averages over the windows, weighted by their length.
func (l *load) imbalance(k loadKind) Imbalance {
	var seconds, maxMean, cv, jain float64
	for w, length := range l.seconds {
		var sum, squares, largest float64
		for _, loads := range l.windows[w*l.replicas : (w+1)*l.replicas] {
			v := loads[k-firstCompared]
			sum += v
			squares += float64(v * v)
			largest = max(largest, v)
		}
		if sum <= 0 {
			continue
		}
		n := float64(l.replicas)
		mean := sum / n
		variance := max(squares/n-float64(mean*mean), 0)
		seconds += length
		maxMean += float64(length * largest / mean)
		cv += float64(length * math.Sqrt(variance) / mean)
		jain += float64(length * (float64(sum*sum) / float64(n*squares)))
	}
	return Imbalance{ratio(maxMean, seconds), ratio(cv, seconds), ratio(jain, seconds)}
}
