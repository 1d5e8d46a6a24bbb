package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version stands in every result. It changes when a run of the same inputs would give other numbers.
const version = "0.1.0"

func versionCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  sluice version --json",
		Args:    argsNamed(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := &sheet{columns: []column{{Key: "version"}, {Key: "commit"}, {Key: "go"}, {Key: "platform"}}}
			s.add(version, commit(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
			if !out.text() {
				return out.write(cmd.OutOrStdout(), s)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "sluice %s (%s, %s, %s/%s)\n", version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	out.register(cmd)
	return cmd
}

// commit is the revision that the binary was built from, as the Go tool recorded it.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown commit"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return "unknown commit"
}
