package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/nearest"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
)

func policiesCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:     "policies [NAME]",
		Short:   "List the gates and routers, or the knobs of one",
		Example: "  sluice policies\n  sluice policies session\n  sluice policies smetric --json",
		Args:    argsNamed("[NAME]"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return policyNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return out.write(cmd.OutOrStdout(), policySheet())
			}
			return onePolicy(cmd, &out, args[0])
		},
	}
	out.register(cmd)
	return cmd
}

func policyNames() []string {
	var names []string
	for _, k := range policyKinds() {
		for _, d := range k.all {
			names = append(names, d.Name)
		}
	}
	return names
}

func policySheet() *sheet {
	s := &sheet{columns: []column{{Key: "kind"}, {Key: "name"}, {Key: "about"}, {Key: "knobs"}}}
	for _, k := range policyKinds() {
		for _, d := range k.all {
			s.add(k.name, d.Name, d.Doc, len(d.Knobs))
		}
	}
	return s
}

// policyKind is one part of a policy block. Where kinds share a name (none), the first one has it.
type policyKind struct {
	name string
	all  []policies.Declaration
}

func policyKinds() []policyKind {
	return []policyKind{{"gate", catalog.Gates()}, {"router", catalog.Routers()}, {"retention", catalog.Retentions()}}
}

func onePolicy(cmd *cobra.Command, out *outputFlags, name string) error {
	d, kind, ok := findPolicy(name)
	if !ok {
		message := fmt.Sprintf("no policy %q", name)
		if near := nearest.Name(name, policyNames()); near != "" {
			return usage(cmd, message+"; did you mean "+near+"?")
		}
		return usage(cmd, message+"; there are "+strings.Join(policyNames(), ", "))
	}
	s := &sheet{columns: []column{{Key: "knob"}, {Key: "default"}, {Key: "range"}, {Key: "unit"}, {Key: "about"}}}
	for _, k := range d.Knobs {
		s.add(k.Name, knobDefault(k), knobRange(k), k.Unit, k.Doc)
	}
	if !out.text() {
		return out.write(cmd.OutOrStdout(), s)
	}
	w := cmd.OutOrStdout()
	_, err := fmt.Fprintf(w, "%s (%s)\n%s\nsource: %s\nwhen a signal is missing: %s\n", d.Name, kind, d.Doc, d.Source, d.Missing)
	if err == nil && d.Omits != "" {
		_, err = fmt.Fprintf(w, "not as in the source: %s\n", d.Omits)
	}
	if err != nil || len(d.Knobs) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return s.writeText(w)
}

func findPolicy(name string) (d policies.Declaration, kind string, ok bool) {
	for _, k := range policyKinds() {
		for _, d := range k.all {
			if d.Name == name {
				return d, k.name, true
			}
		}
	}
	return d, "", false
}

func knobDefault(k policies.Knob) any {
	switch k.Kind {
	case policies.BoolKnob:
		return fmt.Sprint(k.Default.Bool)
	case policies.EnumKnob:
		return k.Default.Text
	}
	return fmt.Sprint(k.Default.Number)
}

func knobRange(k policies.Knob) string {
	switch k.Kind {
	case policies.BoolKnob:
		return "true, false"
	case policies.EnumKnob:
		return strings.Join(k.Enum, ", ")
	}
	return fmt.Sprintf("%v to %v", k.Min, k.Max)
}
