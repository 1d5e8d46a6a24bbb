package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/scenarios"
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

// completeSetting offers what can follow in "path=value" or "path=value,value": a path, or behind one whose value is a
// name the names.
func completeSetting(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	path, value, given := strings.Cut(typed, "=")
	var all []string
	if !given {
		for _, p := range scenarios.Paths() {
			all = append(all, p+"=")
		}
	} else {
		before := path + "=" + value[:strings.LastIndexByte(value, ',')+1]
		for _, name := range namesFor(strings.TrimSuffix(path, ".name")) {
			all = append(all, before+name)
		}
	}
	var found []string
	for _, candidate := range all {
		if strings.HasPrefix(candidate, typed) {
			found = append(found, candidate)
		}
	}
	return found, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// namesFor is the names that a key takes, none for a key with other values.
func namesFor(path string) []string {
	switch path {
	case "policy.gate":
		return declaredNames(catalog.Gates())
	case "policy.router":
		return declaredNames(catalog.Routers())
	case "policy.retention":
		return declaredNames(catalog.Retentions())
	case "cluster.model":
		return modelNames()
	case "cluster.gpu":
		return gpuNames()
	}
	return nil
}

func declaredNames(all []policies.Declaration) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// completeFlag gives a flag of the command its completion.
func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag exists
}
