package plots

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sluice-sim/sluice/results"
)

// input is the arms of all folders, in the order given.
type input struct{ arms []arm }

// arm is one arm with access to the rows of its runs.
type arm struct {
	results.Arm
	name       string
	comparison *results.Comparison
	index      int
}

func load(dirs []string) (*input, error) {
	if len(dirs) == 0 {
		return nil, errors.New("no result folder given")
	}
	in := &input{}
	names := map[string]int{}
	for _, dir := range dirs {
		c, err := results.Load(dir)
		if err != nil {
			return nil, err
		}
		for i, a := range c.Arms {
			name := a.Name
			if name == "" {
				name = a.Runs[0].Run
			}
			if len(dirs) > 1 && len(c.Arms) > 1 {
				name = filepath.Base(dir) + ": " + name
			}
			if names[name]++; names[name] > 1 {
				name = fmt.Sprintf("%s (%d)", name, names[name])
			}
			in.arms = append(in.arms, arm{a, name, c, i})
		}
	}
	if len(in.arms) == 0 {
		return nil, errors.New("the result folders hold no runs")
	}
	return in, nil
}

// run opens the rows of one of the arm's runs.
func (a *arm) run(i int) (*results.Run, error) { return a.comparison.Run(a.index, i) }

// subtitle says what the figure was made of.
func (in *input) subtitle() string {
	s := in.arms[0].Runs[0]
	text := s.Run
	seeds := 0
	for _, a := range in.arms {
		seeds = max(seeds, len(a.Runs))
	}
	if seeds > 1 {
		return fmt.Sprintf("%s, %d seeds", text, seeds)
	}
	return fmt.Sprintf("%s, seed %d", text, s.Seed)
}

// mean averages a metric over the runs of the arm; ok is false where no run has it.
func (a *arm) mean(metric string) (v float64, ok bool, err error) {
	v, _, n, err := a.Interval(metric)
	return v, n > 0, err
}
