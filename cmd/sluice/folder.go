package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
)

// folderFlags are --out and --force.
type folderFlags struct {
	out   string
	force bool
}

func (f *folderFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.out, "out", "", "results `folder` (default results/NAME-DIGEST); a complete one of the same run is reused")
	cmd.Flags().BoolVar(&f.force, "force", false, "run again and replace the folder")
}

// path is where the results go.
func (f *folderFlags) path(name, digest string) string {
	if f.out != "" {
		return filepath.Clean(f.out)
	}
	return filepath.Join("results", name+"-"+digest)
}

// existing is the complete results of the same run when the folder holds them, nil when the folder is free to write. A
// folder with anything else is an error.
func (f *folderFlags) existing(dir, scenarioDigest, traceDigest string) (*results.Comparison, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) || f.force && err == nil {
		return nil, nil
	} else if err != nil {
		return nil, badInput(err)
	}
	c, err := results.Load(dir)
	switch {
	case err != nil:
		return nil, badInput(fmt.Errorf("%s exists and does not hold complete results (%w); choose another folder with --out, or replace it with --force", dir, err))
	case c.ScenarioDigest != scenarioDigest:
		return nil, badInput(fmt.Errorf("%s holds results of another scenario; choose another folder with --out, or replace it with --force", dir))
	case c.TraceDigest != traceDigest:
		return nil, badInput(fmt.Errorf("%s holds results of another state of the trace; choose another folder with --out, or replace it with --force", dir))
	case c.Version != version:
		return nil, badInput(fmt.Errorf("%s holds results of sluice %s, this is %s; choose another folder with --out, or replace it with --force", dir, c.Version, version))
	}
	return c, nil
}

// runInfo identifies a run in its results.
func runInfo(sc *scenarios.Scenario, arm scenarios.Arm, digest string, w *workload) results.Info {
	info := results.Info{Run: sc.Name, Arm: arm.Name, Seed: uint64(sc.Seed), Version: version, ScenarioDigest: digest, TraceDigest: w.traceDigest,
		Scenario: sc.Resolved(), Mode: sc.Replay, Gate: sc.Policy.Gate.Name}
	if sc.Arrivals.Process == "rollout" {
		info.Mode = results.ModeRollout
	}
	for _, v := range arm.Varied {
		info.Varied = append(info.Varied, results.Setting{Path: v.Path, Value: v.Value})
	}
	if sc.SLO != (scenarios.SLO{}) {
		info.SLO = &results.SLO{TTFTS: sc.SLO.TTFTS, TTFTPer1KPromptS: sc.SLO.TTFTPer1kPromptS, TPOTS: sc.SLO.TPOTS}
	}
	return info
}

// sayWhere names the results folder on stderr.
func sayWhere(cmd *cobra.Command, dir string, reused bool) {
	switch {
	case reused && olderThanProgram(dir):
		fmt.Fprintf(cmd.ErrOrStderr(), "results: %s (complete already, but older than this program; --force runs again)\n", dir)
		return
	case reused:
		fmt.Fprintf(cmd.ErrOrStderr(), "results: %s (complete already; --force runs again)\n", dir)
		return
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "results: %s\n", dir)
}

// olderThanProgram tells whether the program was built after the results were written, so that it may give other numbers
// under the same version.
func olderThanProgram(dir string) bool {
	path, err := os.Executable()
	if err != nil {
		return false
	}
	program, err := os.Stat(path)
	if err != nil {
		return false
	}
	for _, name := range []string{results.SummaryFile, results.CompareFile} {
		if written, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return written.ModTime().Before(program.ModTime())
		}
	}
	return false
}
