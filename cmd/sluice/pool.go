package main

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
)

// workloads loads each workload of a comparison once and forgets it after its last run.
type workloads struct {
	mu      sync.Mutex
	entries map[string]*workloadEntry
}

type workloadEntry struct {
	load sync.Once
	w    *workload
	err  error
	left int // runs that still need it
}

func newWorkloads(runs []plannedRun) *workloads {
	l := &workloads{entries: map[string]*workloadEntry{}}
	for _, r := range runs {
		key := r.scenario.WorkloadDigest()
		if l.entries[key] == nil {
			l.entries[key] = &workloadEntry{}
		}
		l.entries[key].left++
	}
	return l
}

func (l *workloads) get(ctx context.Context, sc *scenarios.Scenario) (*workload, error) {
	l.mu.Lock()
	e := l.entries[sc.WorkloadDigest()]
	l.mu.Unlock()
	e.load.Do(func() {
		e.w, e.err = interruptible(ctx, func() (*workload, error) { return loadWorkload(ctx, sc) })
	})
	return e.w, e.err
}

// release says that a run is done with its workload.
func (l *workloads) release(sc *scenarios.Scenario) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := sc.WorkloadDigest()
	if e := l.entries[key]; e.left > 1 {
		e.left--
		return
	}
	delete(l.entries, key)
}

// simulateAll runs the plan with a number of workers and returns the summaries ordered by arm and seed. The first error
// stops all.
func (p *plan) simulateAll(ctx context.Context, writer *results.CompareWriter, loads *workloads, m *meter) ([]*results.Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	summaries := make([]*results.Summary, len(p.runs))
	next := make(chan int)
	var workers sync.WaitGroup
	var failed sync.Once
	var failure error
	for range min(p.jobs, len(p.runs)) {
		workers.Go(func() {
			for i := range next {
				var err error
				if summaries[i], err = p.simulateRun(ctx, i, writer, loads, m); err != nil {
					failed.Do(func() { failure = err })
					cancel()
				}
			}
		})
	}
	for i := range p.runs {
		if ctx.Err() != nil {
			break
		}
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	if failure == nil {
		failure = ctx.Err()
	}
	if failure != nil {
		return nil, failure
	}
	order := make([]int, len(p.runs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return p.runs[a].index - p.runs[b].index })
	sorted := make([]*results.Summary, len(order))
	for i, at := range order {
		sorted[i] = summaries[at]
	}
	return sorted, nil
}

func (p *plan) simulateRun(ctx context.Context, i int, writer *results.CompareWriter, loads *workloads, m *meter) (*results.Summary, error) {
	r := &p.runs[i]
	w, err := loads.get(ctx, r.scenario)
	if err != nil {
		return nil, err
	}
	defer loads.release(r.scenario)
	out, err := writer.Run(r.index, runInfo(r.scenario, r.arm, r.digest, w))
	if err != nil {
		return nil, err
	}
	return simulate(ctx, r.scenario, w, p.mode, out, m.task(i))
}
