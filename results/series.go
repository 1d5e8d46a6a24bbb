package results

import (
	"fmt"
	"math"
)

// loadKind is a column of the replicas' series. Sums spread evenly over their interval; gauges hold over it.
type loadKind int

const (
	loadComputed loadKind = iota // tokens
	loadOutput                   // tokens
	loadPrompt                   // tokens
	loadBusy                     // seconds
	loadInFlight                 // attempts * seconds, from here on gauges
	loadResident                 // tokens * seconds
	loadUsage                    // share * seconds
	numLoads
)

// imbalancePS is the window over which replicas are compared.
const imbalancePS = 60_000_000_000_000

// maxReplicas bounds the replica number that a row may carry.
const maxReplicas = 1 << 16

// series holds the samples of every replica in order of time.
type series struct{ replicas [][]Sample }

func newSeries() *series { return &series{} }

func (s *series) add(sample *Sample) error {
	r := int(sample.Replica)
	if r < 0 || r >= maxReplicas {
		return fmt.Errorf("sample of replica %d: expected 0 to %d", r, maxReplicas-1)
	}
	for len(s.replicas) <= r {
		s.replicas = append(s.replicas, nil)
	}
	if rows := s.replicas[r]; len(rows) > 0 && sample.EndPS <= rows[len(rows)-1].EndPS {
		return fmt.Errorf("sample of replica %d at %g s: expected a time after the former sample's, %g s", r,
			Seconds(sample.EndPS), Seconds(rows[len(rows)-1].EndPS))
	}
	s.replicas[r] = append(s.replicas[r], *sample)
	return nil
}

// load is what the replicas did over a span, and in every 60 s of it.
type load struct {
	sampled  bool
	replicas int
	total    [numLoads][]float64 // by replica
	windows  [numLoads][]float64 // by window * replicas + replica
	seconds  []float64           // by window
	maxUsage float64
}

// over spreads the samples over the 60 s windows of a span, in proportion to the time they share.
func (s *series) over(start, end int64, replicas int) *load {
	n := int((end - start + imbalancePS - 1) / imbalancePS)
	l := &load{replicas: replicas, seconds: make([]float64, n)}
	for i := range l.seconds {
		lo := start + int64(i)*imbalancePS
		l.seconds[i] = Seconds(min(lo+imbalancePS, end) - lo)
	}
	for k := range numLoads {
		l.total[k], l.windows[k] = make([]float64, replicas), make([]float64, n*replicas)
	}
	for r := range min(replicas, len(s.replicas)) {
		from := int64(0)
		for i := range s.replicas[r] {
			sample := &s.replicas[r][i]
			l.add(sample, r, max(from, start), min(sample.EndPS, end), start, sample.EndPS-from)
			from = sample.EndPS
		}
	}
	return l
}

// add spreads the part of a sample's interval from lo to hi, which is length long in all.
func (l *load) add(s *Sample, r int, lo, hi, start, length int64) {
	if lo >= hi {
		return
	}
	l.sampled = true
	l.maxUsage = max(l.maxUsage, s.Usage)
	sums := [numLoads]float64{loadComputed: float64(s.ComputedTokens), loadOutput: float64(s.OutputTokens),
		loadPrompt: float64(s.PromptTokens), loadBusy: Seconds(s.BusyPS)}
	gauges := [numLoads]float64{loadInFlight: float64(s.InFlight), loadResident: float64(s.ResidentTokens),
		loadUsage: s.Usage}
	for lo < hi {
		window := (lo - start) / imbalancePS
		to := min(start+(window+1)*imbalancePS, hi)
		share := float64(to-lo) / float64(length)
		for k := range numLoads {
			v := float64(sums[k] * share)
			if k >= loadInFlight {
				v = float64(gauges[k] * Seconds(to-lo))
			}
			l.total[k][r] += v
			l.windows[k][int(window)*l.replicas+r] += v
		}
		lo = to
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
		for _, v := range l.windows[k][w*l.replicas : (w+1)*l.replicas] {
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
