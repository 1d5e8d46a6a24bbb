package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/model/golden"
)

func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "verify",
		Short:   "Check the model against recordings of the real thing",
		Example: "  sluice verify vllm golden/*.json*",
	}
	cmd.AddCommand(verifyVLLMCommand())
	group(cmd)
	return cmd
}

func verifyVLLMCommand() *cobra.Command {
	var out outputFlags
	var pool string
	cmd := &cobra.Command{
		Use:   "vllm FILE...",
		Short: "Replay recordings of vLLM's scheduler and report the first difference",
		Long: `vllm replays golden files (inputs and outputs of every step of vLLM's scheduler) through the replica model and compares
every recorded field. The exit code is 1 when a file differs.`,
		Example: "  sluice verify vllm golden/*.json*\n  sluice verify vllm --pool extent golden/a01-async-single-multiblock.json --json",
		Args:    argsNamed("FILE..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := &sheet{columns: []column{{Key: "file"}, {Key: "steps"}, {Key: "fields"}, {Key: "step"}, {Key: "field"}, {Key: "expected"}, {Key: "got"}}}
			if pool != "reference" && pool != "extent" {
				return usage(cmd, fmt.Sprintf("--pool %q: expected reference or extent", pool))
			}
			opt := golden.Options{Extent: pool == "extent"}
			differ := 0
			for _, path := range args {
				res, err := interruptible(cmd.Context(), func() (golden.Result, error) { return golden.VerifyFile(path, opt) })
				if err != nil {
					return badInput(err)
				}
				if d := res.Difference; d != nil {
					differ++
					s.add(path, res.Steps, res.Fields, d.Step, d.Field, clipText(d.Expected), clipText(d.Got))
					continue
				}
				s.add(path, res.Steps, res.Fields, nil, nil, nil, nil)
			}
			if err := out.write(cmd.OutOrStdout(), s); err != nil {
				return err
			}
			if differ > 0 {
				return fmt.Errorf("%d of %d files differ", differ, len(args))
			}
			return nil
		},
	}
	out.register(cmd)
	cmd.Flags().StringVar(&pool, "pool", "reference", "block pool: reference, or extent, which has no block ids to compare")
	return cmd
}

func clipText(s string) string {
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return s
}
