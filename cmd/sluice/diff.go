package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/results"
)

func diffCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:     "diff RESULT_A RESULT_B",
		Short:   "Compare two results folders",
		Example: "  sluice diff results/demo-0123456789ab results/demo-ba9876543210",
		Args:    argsNamed("RESULT_A", "RESULT_B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := results.Diff(args[0], args[1])
			if err != nil {
				return badInput(err)
			}
			return out.writeComparison(cmd.OutOrStdout(), t)
		},
	}
	out.registerAs(cmd, comparisonJSON)
	return cmd
}
