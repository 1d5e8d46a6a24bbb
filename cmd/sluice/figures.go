package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/figures"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
)

func figuresCommand() *cobra.Command {
	var out outputFlags
	var folder string
	var opt figures.Options
	cmd := &cobra.Command{
		Use:   "figures [SET]",
		Short: "Run a set of questions and draw its figures",
		Long: `figures simulates every arm of a set of questions and writes a folder with two files for each: NAME.csv, one row for each
arm with means over the seeds and changes paired by seed, and NAME.svg. Without an argument it lists the sets.`,
		Example: `  sluice figures
  sluice figures session-gate -o session-gate
  sluice figures session-gate --quick -o look`,
		Args: argsNamed("[SET]"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, s := range figures.Sets() {
				names = append(names, s.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return out.write(cmd.OutOrStdout(), listOfFigures())
			}
			set, err := figures.Find(args[0])
			if err != nil {
				return badInput(err)
			}
			if opt.Jobs < 1 {
				return usage(cmd, fmt.Sprintf("--jobs %d: expected at least 1", opt.Jobs))
			}
			if folder == "" {
				folder = filepath.Join("results", set.Name)
			}
			m := startMeter(cmd.ErrOrStderr(), "runs", 1)
			progress := m.task(0)
			opt.Progress = func(done, runs int) { progress(int64(done), int64(runs)) }
			err = set.Run(cmd.Context(), folder, simulateInto, opt)
			m.stop()
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "figures: %s\n", folder)
			}
			return err
		},
	}
	out.register(cmd)
	f := cmd.Flags()
	f.StringVarP(&folder, "output", "o", "", "`folder` to write to (default results/SET); files of the same names are replaced")
	f.BoolVar(&opt.Quick, "quick", false, "few sessions and one seed: to see the figures, not the numbers")
	f.IntVar(&opt.Jobs, "jobs", runtime.NumCPU(), "runs at a time")
	return cmd
}

func listOfFigures() *sheet {
	s := &sheet{columns: []column{{Key: "set"}, {Key: "figures"}, {Key: "about"}}}
	for _, set := range figures.Sets() {
		var names []string
		for _, f := range set.Figures {
			names = append(names, f.Name)
		}
		s.add(set.Name, strings.Join(names, " "), set.Doc)
	}
	return s
}

// simulateInto runs a scenario whose rows are wanted in memory only.
func simulateInto(ctx context.Context, sc *scenarios.Scenario, sink results.Sink) (*results.Totals, error) {
	w, err := loadWorkload(ctx, sc)
	if err != nil {
		return nil, err
	}
	return runArm(ctx, sc, w, modeFlags{}, sink, nil)
}
