package figures

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
)

// Simulate runs one scenario into a sink.
type Simulate func(context.Context, *scenarios.Scenario, results.Sink) (*results.Totals, error)

// Options say how a set is run.
type Options struct {
	Quick    bool // few sessions and one seed: shows that everything works, and no more
	Jobs     int  // runs at a time
	Progress func(done, runs int)
}

// measured is an arm with what its runs showed, by seed; tuning is the extra seed's.
type measured struct {
	arm    scenarios.Arm
	runs   []observation
	tuning observation
}

// task is one run; the arms that several figures share are run once.
type task struct {
	scenario *scenarios.Scenario
	result   observation
}

// Run simulates every arm of the set and writes NAME.csv and NAME.svg of each figure into dir. The same set gives the same
// bytes, whatever Jobs is.
func (s *Set) Run(ctx context.Context, dir string, simulate Simulate, o Options) error {
	w := work{tasks: map[string]*task{}}
	seeds, overrides := s.Seeds, []string(nil)
	if o.Quick {
		seeds, overrides = 1, s.Quick
	}
	plans := make([]plan, len(s.Figures))
	for i := range s.Figures {
		var err error
		if plans[i], err = w.plan(s.Scenario, &s.Figures[i], overrides, seeds); err != nil {
			return fmt.Errorf("figure %s: %w", s.Figures[i].Name, err)
		}
	}
	if err := w.run(ctx, simulate, o); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for i := range plans {
		f := &s.Figures[i]
		arms := plans[i].measured()
		if err := f.writeCSV(filepath.Join(dir, f.Name+".csv"), arms); err != nil {
			return fmt.Errorf("figure %s: %w", f.Name, err)
		}
		if err := f.draw(filepath.Join(dir, f.Name+".svg"), arms); err != nil {
			return fmt.Errorf("figure %s: %w", f.Name, err)
		}
	}
	return nil
}

// plan is the arms of a figure and their tasks, by arm and seed; with Tune there is one seed more.
type plan struct {
	arms  []scenarios.Arm
	tasks [][]*task
	seeds int
}

type work struct {
	tasks map[string]*task
	order []*task
}

func (w *work) plan(name string, f *Figure, overrides []string, seeds int) (plan, error) {
	source, err := scenarios.Source(name)
	if err != nil {
		return plan{}, fmt.Errorf("%s: %w", name, err)
	}
	base, err := scenarios.Parse(name, source)
	if err != nil {
		return plan{}, err
	}
	if base, err = base.Apply(slices.Concat(f.Set, overrides)); err != nil {
		return plan{}, err
	}
	p := plan{seeds: seeds}
	if p.arms, err = scenarios.Grid(base, f.Vary); err != nil {
		return plan{}, err
	}
	count := seeds
	if f.Tune != "" {
		count++
	}
	for _, arm := range p.arms {
		var tasks []*task
		for seed := range count {
			sc, err := arm.Scenario.Apply([]string{fmt.Sprintf("seed=%d", arm.Scenario.Seed+int64(seed))})
			if err != nil {
				return plan{}, err
			}
			tasks = append(tasks, w.task(sc))
		}
		p.tasks = append(p.tasks, tasks)
	}
	return p, nil
}

func (w *work) task(sc *scenarios.Scenario) *task {
	digest := sc.Digest()
	t := w.tasks[digest]
	if t == nil {
		t = &task{scenario: sc}
		w.tasks[digest] = t
		w.order = append(w.order, t)
	}
	return t
}

func (p *plan) measured() []measured {
	out := make([]measured, len(p.arms))
	for i, arm := range p.arms {
		out[i].arm = arm
		for k, t := range p.tasks[i] {
			if k < p.seeds {
				out[i].runs = append(out[i].runs, t.result)
			} else {
				out[i].tuning = t.result
			}
		}
	}
	return out
}

// run carries the tasks out. The first error stops all.
func (w *work) run(ctx context.Context, simulate Simulate, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan *task)
	var workers sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range max(1, min(o.Jobs, len(w.order))) {
		workers.Go(func() {
			for t := range next {
				if err := t.run(ctx, simulate); err != nil {
					cancel(err)
				}
				mu.Lock()
				done++
				if o.Progress != nil {
					o.Progress(done, len(w.order))
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range w.order {
		if ctx.Err() != nil {
			break
		}
		select {
		case next <- t:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

func (t *task) run(ctx context.Context, simulate Simulate) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal fault: %v", p)
		}
	}()
	sc := t.scenario
	info := results.Info{Run: sc.Name, Seed: uint64(sc.Seed), Mode: sc.Replay, Gate: sc.Policy.Gate.Name}
	m := &measure{Collector: results.NewCollector(info)}
	totals, err := simulate(ctx, sc, m)
	if err != nil {
		return err
	}
	t.result, err = m.observe(totals)
	return err
}
