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

// loadRow is what the metrics need of a Sample, sums and gauges, or of several in a row that are alike.
type loadRow struct {
	replica, n int32
	length     int64 // of each interval
	values     [numLoads]float64
}

// series holds the intervals of all replicas, those of each in order of time, in pieces that do not move.
type series struct {
	pieces [][]loadRow
	latest []latestLoad // by replica
}

type latestLoad struct {
	row *loadRow
	end int64
}

const loadPieceRows = 1024

func newSeries() *series { return &series{} }

func (s *series) add(sample *Sample) error {
	r := int(sample.Replica)
	if r < 0 || r >= maxReplicas {
		return fmt.Errorf("sample of replica %d: expected 0 to %d", r, maxReplicas-1)
	}
	for len(s.latest) <= r {
		s.latest = append(s.latest, latestLoad{})
	}
	last := &s.latest[r]
	if last.row != nil && sample.EndPS <= last.end {
		return fmt.Errorf("sample of replica %d at %g s: expected a time after the former sample's, %g s", r,
			Seconds(sample.EndPS), Seconds(last.end))
	}
	values := [numLoads]float64{
		loadComputed: float64(sample.ComputedTokens), loadOutput: float64(sample.OutputTokens),
		loadPrompt: float64(sample.PromptTokens), loadBusy: Seconds(sample.BusyPS), loadInFlight: float64(sample.InFlight),
		loadResident: float64(sample.ResidentTokens), loadUsage: sample.Usage}
	length := sample.EndPS - last.end
	last.end = sample.EndPS
	if last.row != nil && last.row.length == length && last.row.values == values {
		last.row.n++
		return nil
	}
	k := len(s.pieces) - 1
	if k < 0 || len(s.pieces[k]) == cap(s.pieces[k]) {
		s.pieces = append(s.pieces, make([]loadRow, 0, loadPieceRows))
		k++
	}
	s.pieces[k] = append(s.pieces[k], loadRow{sample.Replica, 1, length, values})
	last.row = &s.pieces[k][len(s.pieces[k])-1]
	return nil
}

// load is what the replicas did over a span, and in every 60 s of it.
type load struct {
	sampled    bool
	start, end int64
	replicas   []replicaLoad
	windows    [][numCompared]float64 // by window * replicas + replica
	seconds    []float64              // by window
	maxUsage   float64
}

type replicaLoad struct {
	total [numLoads]float64
	from  int64 // end of the interval that was added last
}

// over spreads the samples over the 60 s windows of a span, in proportion to the time they share.
func (s *series) over(start, end int64, replicas int) *load {
	n := int((end - start + imbalancePS - 1) / imbalancePS)
	l := &load{start: start, end: end, replicas: make([]replicaLoad, replicas), seconds: make([]float64, n),
		windows: make([][numCompared]float64, n*replicas)}
	for i := range l.seconds {
		lo := start + int64(i)*imbalancePS
		l.seconds[i] = Seconds(min(lo+imbalancePS, end) - lo)
	}
	for _, piece := range s.pieces {
		for i := range piece {
			if int(piece[i].replica) < replicas {
				l.add(&piece[i])
			}
		}
	}
	return l
}

// add spreads intervals over the windows that they meet.
func (l *load) add(row *loadRow) {
	r := &l.replicas[row.replica]
	from := r.from // of the interval at hand
	r.from += int64(row.n) * row.length
	if r.from <= l.start || from >= l.end {
		return
	}
	l.sampled = true
	l.maxUsage = max(l.maxUsage, row.values[loadUsage])
	if before := l.start - from; before > 0 {
		from += before / row.length * row.length
	}
	at, end := max(from, l.start), min(r.from, l.end)
	for window := (at - l.start) / imbalancePS; at < end; window++ {
		edge := min(l.start+(window+1)*imbalancePS, end)
		compared := &l.windows[int(window)*len(l.replicas)+int(row.replica)]
		for at < edge {
			to := min(from+row.length, edge)
			n := int64(1)
			if row.n > 1 && to-at == row.length { // so are those behind it
				n = (edge - at) / row.length
			}
			piece := row.during(to - at)
			for range n { // one by one, since sums are rounded
				add(&r.total, compared, &piece)
			}
			if to == from+row.length {
				from += n * row.length
				to = from
			}
			at = to
		}
	}
}

// add adds a piece to sums, spelt out because this takes most of the time.
func add(total *[numLoads]float64, compared *[numCompared]float64, piece *[numLoads]float64) {
	total[loadOutput] += piece[loadOutput]
	total[loadPrompt] += piece[loadPrompt]
	total[loadBusy] += piece[loadBusy]
	total[loadComputed] += piece[loadComputed]
	total[loadInFlight] += piece[loadInFlight]
	total[loadResident] += piece[loadResident]
	total[loadUsage] += piece[loadUsage]
	compared[loadComputed-firstCompared] += piece[loadComputed]
	compared[loadInFlight-firstCompared] += piece[loadInFlight]
	compared[loadResident-firstCompared] += piece[loadResident]
}

// during is what falls in a part of an interval, or all of it.
func (row *loadRow) during(part int64) [numLoads]float64 {
	piece := row.values
	if part != row.length {
		share := float64(part) / float64(row.length)
		for k := range loadInFlight {
			piece[k] = float64(piece[k] * share)
		}
	}
	seconds := Seconds(part)
	for k := loadInFlight; k < numLoads; k++ {
		piece[k] = float64(piece[k] * seconds)
	}
	return piece
}

func (l *load) sum(k loadKind) float64 {
	total := 0.0
	for i := range l.replicas {
		total += l.replicas[i].total[k]
	}
	return total
}

// imbalance compares the replicas in every window with load and averages over the windows, weighted by their length.
func (l *load) imbalance(k loadKind) Imbalance {
	var seconds, maxMean, cv, jain float64
	for w, length := range l.seconds {
		var sum, squares, largest float64
		for _, loads := range l.windows[w*len(l.replicas) : (w+1)*len(l.replicas)] {
			v := loads[k-firstCompared]
			sum += v
			squares += float64(v * v)
			largest = max(largest, v)
		}
		if sum <= 0 {
			continue
		}
		n := float64(len(l.replicas))
		mean := sum / n
		variance := max(squares/n-float64(mean*mean), 0)
		seconds += length
		maxMean += float64(length * largest / mean)
		cv += float64(length * math.Sqrt(variance) / mean)
		jain += float64(length * (float64(sum*sum) / float64(n*squares)))
	}
	return Imbalance{ratio(maxMean, seconds), ratio(cv, seconds), ratio(jain, seconds)}
}
