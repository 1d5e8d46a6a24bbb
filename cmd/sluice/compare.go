package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
)

// compareFlags are the flags of compare beside those of run.
type compareFlags struct {
	varies []string
	arms   []string
	bounds bool
	seeds  int
	jobs   int
	mode   modeFlags
}

func compareCommand() *cobra.Command {
	var flags scenarioFlags
	var folder folderFlags
	var out outputFlags
	var profile profileFlags
	var compare compareFlags
	cmd := &cobra.Command{
		Use:   "compare SCENARIO --vary PATH=A,B,C",
		Short: "Simulate several arms of a scenario and compare them",
		Long: `compare simulates a scenario once for every value of the varied keys, with the same trace and the same draws, writes one
results folder and prints a table with one column for each arm and the differences to the first. Several --vary make a grid.

--arm adds one arm with a name and values of its own, so that every policy can have its own knobs.

--bounds adds two arms that say how far the others are from the best possible: the first arm's scenario under the oracle
router (exact residency, exact load, true output lengths; greedy), and the same with an infinite cache.
--seeds N repeats every arm with N seeds; differences are then paired by seed and printed with 95 % intervals.`,
		Example: `  sluice compare demo --vary policy.router=round-robin,sticky,lmetric,smetric
  sluice compare my.yaml --vary policy.gate=none,session --vary policy.gate.high_watermark=0.7,0.85 --seeds 5
  sluice compare my.yaml --vary arrivals.rate_per_s=0.1,0.2,0.4 --bounds --csv
  sluice compare demo --arm 'default: policy.router=llm-d' --arm 'tuned: policy.router=llm-d,policy.router.queue_weight=1'`,
		Args:              argsNamed("SCENARIO"),
		ValidArgsFunction: completeScenario,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			plan, err := planComparison(cmd, &flags, &compare, args[0])
			if err != nil {
				return err
			}
			stop, err := profile.start()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, stop()) }()
			c, err := plan.run(cmd, &folder)
			if err != nil {
				return err
			}
			return out.writeComparison(cmd.OutOrStdout(), c.Table())
		},
	}
	flags.register(cmd)
	folder.register(cmd)
	out.registerAs(cmd, comparisonJSON)
	profile.register(cmd)
	compare.mode.register(cmd)
	cmd.Flags().BoolVar(&compare.mode.decisions, "decisions", false, "write every decision of every arm to decisions.jsonl in the arm's folder")
	f := cmd.Flags()
	f.StringArrayVar(&compare.varies, "vary", nil, "one arm for each value of a key, `path=value,value`; repeatable")
	completeFlag(cmd, "vary", completeSetting)
	f.StringArrayVar(&compare.arms, "arm", nil, "one more arm, `name: path=value,path=value`; repeatable")
	f.BoolVar(&compare.bounds, "bounds", false, "add the arms oracle and infinite-cache")
	f.IntVar(&compare.seeds, "seeds", 1, "number of seeds, counted up from the scenario's")
	f.IntVar(&compare.jobs, "jobs", runtime.NumCPU(), "runs at a time")
	return cmd
}

// plan is a comparison that has been checked: every arm with every seed.
type plan struct {
	name   string
	digest string // of all runs
	runs   []plannedRun
	jobs   int
	mode   modeFlags
}

// plannedRun is one arm with one seed. Runs are ordered by seed, then arm.
type plannedRun struct {
	arm      scenarios.Arm
	index    int // of the arm
	scenario *scenarios.Scenario
	digest   string
}

func planComparison(cmd *cobra.Command, flags *scenarioFlags, compare *compareFlags, name string) (*plan, error) {
	const most = 10_000
	if compare.seeds < 1 || compare.seeds > most {
		return nil, usage(cmd, fmt.Sprintf("--seeds %d: expected 1 to %d", compare.seeds, most))
	}
	if compare.jobs < 1 {
		return nil, usage(cmd, fmt.Sprintf("--jobs %d: expected at least 1", compare.jobs))
	}
	if len(compare.varies) == 0 && len(compare.arms) == 0 && !compare.bounds {
		return nil, usage(cmd, "expected --vary path=value,value, --arm or --bounds; sluice run simulates a single arm")
	}
	base, err := flags.load(cmd, name)
	if err != nil {
		return nil, err
	}
	arms, err := compare.expand(base)
	if err != nil {
		return nil, badInput(err)
	}
	p := &plan{name: base.Name, jobs: compare.jobs, mode: compare.mode}
	h := sha256.New()
	for seed := range compare.seeds {
		for i, arm := range arms {
			r := plannedRun{arm: arm, index: i}
			if r.scenario, err = arm.Scenario.Apply([]string{fmt.Sprintf("seed=%d", arm.Scenario.Seed+int64(seed))}); err != nil {
				return nil, badInput(err)
			}
			if _, err := resolveCluster(r.scenario); err != nil {
				return nil, badInput(err)
			}
			if err := checkTrace(r.scenario); err != nil {
				return nil, err
			}
			if r.digest, err = runDigest(r.scenario); err != nil {
				return nil, err
			}
			fmt.Fprintf(h, "%q %s\n", arm.Name, r.digest)
			p.runs = append(p.runs, r)
		}
	}
	p.digest = hex.EncodeToString(h.Sum(nil)[:6])
	return p, nil
}

// expand is the arms of a comparison: the grid, then the named arms, then the bounds of the first of all these. A bound
// that is an arm already is not added.
func (f *compareFlags) expand(base *scenarios.Scenario) ([]scenarios.Arm, error) {
	named, err := scenarios.Named(base, f.arms)
	if err != nil {
		return nil, err
	}
	var arms []scenarios.Arm
	if len(f.varies) > 0 || len(named) == 0 {
		if arms, err = scenarios.Grid(base, f.varies); err != nil {
			return nil, err
		}
	}
	arms = append(arms, named...)
	if f.bounds {
		bounds, err := scenarios.Bounds(arms[0].Scenario)
		if err != nil {
			return nil, err
		}
		for _, bound := range bounds {
			if !slices.ContainsFunc(arms, func(a scenarios.Arm) bool { return a.Scenario.Digest() == bound.Scenario.Digest() }) {
				arms = append(arms, bound)
			}
		}
	}
	for i, arm := range arms {
		if slices.ContainsFunc(arms[:i], func(a scenarios.Arm) bool { return a.Name == arm.Name }) {
			return nil, fmt.Errorf("two arms are called %s; give one of them another name with --arm", arm.Name)
		}
	}
	return arms, nil
}

// run simulates the plan into its folder, or finds the results there.
func (p *plan) run(cmd *cobra.Command, folder *folderFlags) (*results.Comparison, error) {
	m := startMeter(cmd.ErrOrStderr(), "turns", len(p.runs))
	defer m.stop()
	loads := newWorkloads(p.runs)
	first, err := loads.get(cmd.Context(), p.runs[0].scenario)
	if err != nil {
		return nil, err
	}
	dir := folder.path(p.name, p.digest)
	found, err := folder.existing(dir, p.digest, first.traceDigest)
	if err != nil {
		return nil, err
	}
	if found != nil && !p.mode.given() {
		m.stop()
		sayWhere(cmd, dir, true)
		return found, nil
	}
	writer, err := results.CreateCompare(dir, p.digest, results.Options{Replace: folder.force || found != nil})
	if err != nil {
		return nil, badInput(err)
	}
	summaries, err := p.simulateAll(cmd.Context(), writer, loads, m)
	m.stop()
	if err != nil {
		writer.Abort()
		return nil, err
	}
	c, err := writer.Finish(summaries)
	if err == nil {
		sayWhere(cmd, dir, false)
	}
	return c, err
}
