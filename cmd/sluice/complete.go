package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/model/latency"
)

// completeModel offers the embedded model cards.
func completeModel(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return modelNames(), cobra.ShellCompDirectiveNoFileComp
}

// completeGPU offers the embedded GPU cards.
func completeGPU(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return gpuNames(), cobra.ShellCompDirectiveNoFileComp
}

func modelNames() []string {
	var names []string
	for _, m := range latency.Models() {
		names = append(names, m.Name)
	}
	return names
}

func gpuNames() []string {
	var names []string
	for _, g := range latency.GPUs() {
		names = append(names, g.Name)
	}
	return names
}
