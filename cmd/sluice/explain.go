package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/results/explain"
)

func explainCommand() *cobra.Command {
	var log string
	cmd := &cobra.Command{
		Use:   "explain RESULTS TURN",
		Short: "Say in words why a turn waited and went where it went",
		Long: `explain tells the story of one turn of a run: when it arrived, why and how long it waited, what was asked and answered,
where it went and how the replicas compared, what of its prompt was resident there, what was not and who evicted it, when its
first token came and when it ended. What the files do not say is said to be unknown.

RESULTS is the folder of a run, or of one arm of a comparison, that was made with --decisions. TURN is SESSION/TURN,
SESSION/THREAD/TURN or the number of a row of turns.parquet, from 1. A session is named or counted from 0.`,
		Example: `  sluice run demo --decisions d.jsonl --out results/today
  sluice explain results/today 3/2
  sluice explain results/arms/arms/02-lmetric-seed1 117`,
		Args: argsNamed("RESULTS", "TURN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := openArm(args[0])
			if err != nil {
				return badInput(err)
			}
			path := log
			if path == "" {
				path = filepath.Join(args[0], results.DecisionsFile)
			}
			f, err := os.Open(path)
			if errors.Is(err, fs.ErrNotExist) && log == "" {
				return badInput(fmt.Errorf("%s has no %s; run it again with --decisions, or name its log with --decisions", args[0], results.DecisionsFile))
			} else if err != nil {
				return badInput(err)
			}
			defer f.Close()
			text, err := interruptible(cmd.Context(), func() ([]string, error) {
				return explain.Turn(run, func() decisionlog.Lines { return fromStart(f) }, args[1])
			})
			if err != nil {
				return badInput(err)
			}
			for _, line := range text {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&log, "decisions", "", "decision log `file` of the run (default decisions.jsonl in its folder)")
	return cmd
}

// openArm opens the folder of a run; in a comparison it names the folders to choose from.
func openArm(dir string) (*results.Run, error) {
	if _, err := os.Stat(filepath.Join(dir, results.CompareFile)); err == nil {
		arms, _ := filepath.Glob(filepath.Join(dir, "arms", "*"))
		if len(arms) > 0 {
			return nil, fmt.Errorf("%s holds a comparison of %d runs; name the folder of one, such as %s", dir, len(arms), arms[0])
		}
	}
	return results.LoadRun(dir)
}

// fromStart reads a file from its start.
func fromStart(f *os.File) decisionlog.Lines {
	return func(yield func([]byte, error) bool) {
		if _, err := f.Seek(0, 0); err != nil {
			yield(nil, err)
			return
		}
		readLines(f)(yield)
	}
}
