package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
)

func runCommand() *cobra.Command {
	var flags scenarioFlags
	var folder folderFlags
	var out outputFlags
	var profile profileFlags
	var mode modeFlags
	var decisions string
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Simulate one scenario",
		Long: `run simulates one scenario (a file, a bundled name, or standard input as "-"), writes a results folder and prints the
summary.`,
		Example: `  sluice run demo
  sluice run my.yaml --set policy.router=smetric --set cluster.replicas=8
  sluice run my.yaml --out results/today --json
  sluice run demo --decisions d.jsonl && sluice replay-decisions d.jsonl`,
		Args:              argsNamed("SCENARIO"),
		ValidArgsFunction: completeScenario,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			sc, err := flags.load(cmd, args[0])
			if err != nil {
				return err
			}
			mode.decisions = decisions != ""
			if err := checkDecisionsPath(decisions); err != nil {
				return err
			}
			stop, err := profile.start()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, stop()) }()
			c, dir, err := runOne(cmd, sc, &folder, mode)
			if err != nil {
				return err
			}
			if mode.decisions {
				if err := publishDecisions(dir, decisions); err != nil {
					return err
				}
			}
			return out.writeComparison(cmd.OutOrStdout(), c.Table())
		},
	}
	flags.register(cmd)
	folder.register(cmd)
	out.registerAs(cmd, comparisonJSON)
	profile.register(cmd)
	mode.register(cmd)
	cmd.Flags().StringVar(&decisions, "decisions", "", "write every decision, what it was based on and how each replica scored, to this `file` and to decisions.jsonl in the folder")
	return cmd
}

// runOne simulates one scenario into its folder, or finds the results there. It returns the name of the folder too.
func runOne(cmd *cobra.Command, sc *scenarios.Scenario, folder *folderFlags, mode modeFlags) (*results.Comparison, string, error) {
	ctx := cmd.Context()
	if _, err := resolveCluster(sc); err != nil {
		return nil, "", badInput(err)
	}
	if err := checkTrace(sc); err != nil {
		return nil, "", err
	}
	digest, err := runDigest(sc)
	if err != nil {
		return nil, "", err
	}
	m := startMeter(cmd.ErrOrStderr(), "turns", 1)
	defer m.stop()
	w, err := interruptible(ctx, func() (*workload, error) { return loadWorkload(ctx, sc) })
	if err != nil {
		return nil, "", err
	}
	dir := folder.path(sc.Name, digest)
	found, err := folder.existing(dir, digest, w.traceDigest)
	if err != nil {
		return nil, "", err
	}
	if found != nil && !mode.given() {
		m.stop()
		sayWhere(cmd, dir, true)
		return found, dir, nil
	}
	arms, err := scenarios.Grid(sc, nil)
	if err != nil {
		return nil, "", err
	}
	writer, err := results.Create(dir, runInfo(sc, arms[0], digest, w), results.Options{Replace: folder.force || found != nil})
	if err != nil {
		return nil, "", badInput(err)
	}
	summary, err := simulate(ctx, sc, w, mode, writer, m.task(0))
	m.stop()
	if err != nil {
		return nil, "", err
	}
	sayWhere(cmd, dir, false)
	return results.NewComparison([]*results.Summary{summary}), dir, nil
}

// simulate runs one arm into a writer. On error, and after a panic, nothing is left of it.
func simulate(ctx context.Context, sc *scenarios.Scenario, w *workload, mode modeFlags, writer *results.Writer, progress func(done, total int64)) (summary *results.Summary, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
		if err != nil {
			writer.Abort()
		}
	}()
	if mode.decisions {
		if mode.log, err = writer.Attach(results.DecisionsFile); err != nil {
			return nil, err
		}
	}
	totals, err := runArm(ctx, sc, w, mode, writer, progress)
	if err != nil {
		return nil, err
	}
	if summary, err = writer.Finish(totals); err != nil {
		return nil, err
	}
	return summary, mode.verdict(summary)
}
