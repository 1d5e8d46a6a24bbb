package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/nearest"
	"github.com/sluice-sim/sluice/traces"
)

func traceGenerateCommand() *cobra.Command {
	var out outputFlags
	var file string
	var seed uint64
	var sets []string
	cmd := &cobra.Command{
		Use:   "generate [PRESET] -o FILE",
		Short: "Generate a trace, or list the presets and their knobs",
		Long: `generate writes a trace made by a preset of the generator. Without -o it lists the presets, or the knobs of one.
A scenario can also generate its sessions itself (workload.generate).`,
		Example: `  sluice trace generate
  sluice trace generate claude-code
  sluice trace generate claude-code --set sessions=200 --seed 7 -o sessions.parquet`,
		Args:              argsNamed("[PRESET]"),
		ValidArgsFunction: cobra.FixedCompletions(presetNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if file != "" || len(sets) > 0 {
					return usage(cmd, "expected a preset: one of "+strings.Join(presetNames(), ", "))
				}
				return out.write(cmd.OutOrStdout(), presetSheet())
			}
			preset, err := traces.FindPreset(args[0])
			if err != nil {
				return usage(cmd, err.Error())
			}
			if file == "" {
				if len(sets) > 0 {
					return usage(cmd, "expected -o FILE")
				}
				return printPreset(cmd, &out, preset)
			}
			params, err := presetParams(preset, sets)
			if err != nil {
				return usage(cmd, err.Error())
			}
			src, err := interruptible(cmd.Context(), func() (traces.Source, error) { return traces.GenerateSource(preset.Name, seed, params) })
			if err != nil {
				return badInput(err)
			}
			return writeTrace(cmd, file, src)
		},
	}
	out.register(cmd)
	cmd.Flags().StringVarP(&file, "output", "o", "", "`file` to write (- for standard output)")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of all draws")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "value of a knob, `knob=value`; repeatable")
	return cmd
}

func presetNames() []string {
	var names []string
	for _, p := range traces.Presets() {
		names = append(names, p.Name)
	}
	return names
}

func presetSheet() *sheet {
	s := &sheet{columns: []column{{Key: "preset"}, {Key: "about"}, {Key: "knobs"}}}
	for _, p := range traces.Presets() {
		s.add(p.Name, p.Doc, len(p.Knobs))
	}
	return s
}

func printPreset(cmd *cobra.Command, out *outputFlags, p traces.Preset) error {
	s := &sheet{columns: []column{{Key: "knob"}, {Key: "default"}, {Key: "range"}, {Key: "unit"}, {Key: "about"}}}
	for _, k := range p.Knobs {
		s.add(k.Name, k.Default.String(), k.Range(), k.Unit, k.Doc)
	}
	if out.text() {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\nsource: %s\n\n", p.Name, p.Doc, p.Source); err != nil {
			return err
		}
	}
	return out.write(cmd.OutOrStdout(), s)
}

// presetParams reads knob=value pairs; ranges are the generator's to check.
func presetParams(p traces.Preset, sets []string) (traces.Params, error) {
	params := traces.Params{}
	for _, set := range sets {
		name, text, ok := strings.Cut(set, "=")
		if !ok {
			return nil, fmt.Errorf("--set %s: expected knob=value", set)
		}
		var names []string
		known := false
		for _, k := range p.Knobs {
			names = append(names, k.Name)
			if k.Name != name {
				continue
			}
			known = true
			v := traces.Value{Text: text}
			if k.Kind != traces.EnumKnob {
				x, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return nil, fmt.Errorf("--set %s: expected a number from %s", set, k.Range())
				}
				v = traces.Num(x)
			}
			if err := k.Check(v); err != nil {
				return nil, fmt.Errorf("--set %s: %w", set, err)
			}
			params[name] = v
		}
		if !known {
			near := nearest.Name(name, names)
			if near != "" {
				near = "; did you mean " + near + "?"
			}
			return nil, fmt.Errorf("--set %s: preset %s has no knob %q%s", set, p.Name, name, near)
		}
	}
	return params, nil
}
