package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/model/latency"
)

func modelsCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "models [NAME]",
		Short: "List the model cards, or print one to edit",
		Long: `models lists the embedded model cards. cluster.model takes a name or an alias (case and punctuation do not matter), or a
.json file. With a NAME it prints that card as such a file, to edit and to give to --model-card.`,
		Example:           "  sluice models\n  sluice models --csv\n  sluice models llama-3.1-8b > card.json",
		Args:              argsNamed("[NAME]"),
		ValidArgsFunction: completeModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return printCard(cmd, latency.ModelJSON, args[0])
			}
			s := &sheet{columns: []column{{Key: "name"}, {Key: "aliases"}, {Key: "kind"}, {Key: "params_total", Title: "parameters"},
				{Key: "params_active", Title: "active"}, {Key: "layers"}, {Key: "experts"}, {Key: "kv_bytes_per_token", Title: "KV bytes/token"},
				{Key: "source"}}}
			for _, m := range latency.Models() {
				kv, err := m.KVBytes("bf16", 1)
				if err != nil {
					return err
				}
				s.add(m.Name, strings.Join(m.Aliases, " "), m.Kind, m.ParamsTotal, m.ParamsActive, m.Layers, m.Experts, kv, m.HF)
			}
			if out.text() {
				s = s.without("source")
			}
			return out.write(cmd.OutOrStdout(), s)
		},
	}
	out.register(cmd)
	return cmd
}

func gpusCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "gpus [NAME]",
		Short: "List the GPU cards, or print one to edit",
		Long: `gpus lists the embedded GPU cards. cluster.gpu takes a name or an alias (case and punctuation do not matter), or a .json
file. With a NAME it prints that card as such a file, to edit and to give to --gpu-card. The status says whether the step-time
coefficients were fitted to measured kernels or derived.`,
		Example:           "  sluice gpus\n  sluice gpus --json\n  sluice gpus h100 > card.json",
		Args:              argsNamed("[NAME]"),
		ValidArgsFunction: completeGPU,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return printCard(cmd, latency.GPUJSON, args[0])
			}
			s := &sheet{columns: []column{{Key: "name"}, {Key: "aliases"}, {Key: "hbm_gb", Title: "HBM GB"},
				{Key: "hbm_tb_per_s", Title: "HBM TB/s"},
				{Key: "bf16_tflops", Title: "bf16 TFLOP/s"}, {Key: "attention_backend", Title: "attention"}, {Key: "status"}, {Key: "source"}}}
			for _, g := range latency.GPUs() {
				s.add(g.Name, strings.Join(g.Aliases, " "), g.Spec.HBMBytes/1e9, g.Spec.HBMRate/1e12, scaled(g.Spec.PeakBF16, 1e-12), g.Backend,
					g.Status, g.Source)
			}
			if out.text() {
				s = s.without("source")
			}
			return out.write(cmd.OutOrStdout(), s)
		},
	}
	out.register(cmd)
	return cmd
}

func printCard(cmd *cobra.Command, find func(string) ([]byte, error), name string) error {
	card, err := find(name)
	if err != nil {
		return usage(cmd, err.Error())
	}
	_, err = cmd.OutOrStdout().Write(card)
	return err
}

func scaled(x *float64, by float64) *float64 {
	if x == nil {
		return nil
	}
	y := *x * by
	return &y
}
