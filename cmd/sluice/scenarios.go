package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/scenarios"
)

func scenariosCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "scenarios [NAME]",
		Short: "List the bundled scenarios, or print one to edit",
		Example: `  sluice scenarios
  sluice scenarios demo > my.yaml
  sluice scenarios schema > scenario.schema.json`,
		Args:              argsNamed("[NAME]"),
		ValidArgsFunction: completeScenario,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listScenarios(cmd, &out)
			}
			source, err := scenarios.Source(args[0])
			if err != nil {
				return badInput(unknownScenario(args[0]))
			}
			_, err = cmd.OutOrStdout().Write(source)
			return err
		},
	}
	out.register(cmd)
	cmd.AddCommand(&cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the scenario file, for editors",
		Example: "  sluice scenarios schema > scenario.schema.json",
		Args:    argsNamed(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := scenarios.Schema()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	})
	return cmd
}

func listScenarios(cmd *cobra.Command, out *outputFlags) error {
	s := &sheet{columns: []column{{Key: "name"}, {Key: "about"}}}
	for _, name := range scenarios.Bundled() {
		source, err := scenarios.Source(name)
		if err != nil {
			return err
		}
		s.add(name, scenarios.Title(source))
	}
	return out.write(cmd.OutOrStdout(), s)
}
