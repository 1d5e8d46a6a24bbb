package routing

import (
	"math"

	"github.com/sluice-sim/sluice/policies"
)

// llmdLoads is what the scorers read of samples and ledger, by replica that is up, gathered once for each decision.
type llmdLoads struct {
	waiting, running figures // requests; without a sample the turns in flight
	inFlight         figures
	free             []int64 // 1 - usage as a score; without a sample unknownScore
}

func (l *llmdLoads) read(v *policies.View) {
	for len(l.free) < v.Replicas() {
		l.free = append(l.free, 0)
	}
	for _, f := range []*figures{&l.waiting, &l.running, &l.inFlight} {
		f.reset(v.Replicas())
	}
	for _, r := range v.Up() {
		s, inFlight := v.Sample(r), int64(v.InFlight(r))
		waiting, running, free := inFlight, inFlight, int64(unknownScore)
		if s.Has&policies.HasWaiting != 0 {
			waiting = int64(s.Waiting)
		}
		if s.Has&policies.HasRunning != 0 {
			running = int64(s.Running)
		}
		if s.Has&policies.HasUsage != 0 {
			free = freeScore(s.Usage)
		}
		l.waiting.put(r, waiting)
		l.running.put(r, running)
		l.inFlight.put(r, inFlight)
		l.free[r] = free
	}
}

// figures is one whole number for each replica that is up.
type figures struct {
	of          []int64 // by replica
	least, most int64
}

func (f *figures) reset(replicas int) {
	for len(f.of) < replicas {
		f.of = append(f.of, 0)
	}
	f.least, f.most = math.MaxInt64, math.MinInt64
}

func (f *figures) put(r policies.ReplicaID, x int64) {
	f.of[r], f.least, f.most = x, min(f.least, x), max(f.most, x)
}

// score writes the score of each figure into dst. Where they lie close together, the score of each is found once, not for each
// replica.
func (f *figures) score(v *policies.View, dst []int64, of func(x int64) int64) {
	var scores [64]int64 // of the figures from the least on
	if len(v.Up()) == 0 || f.most-f.least >= int64(len(scores)) {
		for _, r := range v.Up() {
			dst[r] = of(f.of[r])
		}
		return
	}
	for i := range f.most - f.least + 1 {
		scores[i] = of(f.least + i)
	}
	for _, r := range v.Up() {
		dst[r] = scores[f.of[r]-f.least]
	}
}
