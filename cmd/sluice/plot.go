package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/plots"
)

func plotCommand() *cobra.Command {
	var out outputFlags
	var file string
	var opt plots.Options
	cmd := &cobra.Command{
		Use:   "plot [FIGURE RESULTS...] -o FILE",
		Short: "Draw a figure from results folders",
		Long: `plot draws a figure from one or more results folders to an .svg, .png or .pdf file. Without arguments it lists the
figures.`,
		Example: `  sluice plot
  sluice plot cdf-ttft results/demo-0123456789ab -o ttft.svg
  sluice plot heatmap results/sweep --metric slo.good_total_tps -o goodput.png`,
		ValidArgsFunction: completeFigure,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return usage(cmd, "expected FIGURE RESULTS... -o FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				s := &sheet{columns: []column{{Key: "figure"}, {Key: "about"}}}
				for _, f := range plots.Figures() {
					s.add(f.Name, f.Doc)
				}
				return out.write(cmd.OutOrStdout(), s)
			}
			if file == "" {
				return usage(cmd, "expected -o FILE")
			}
			_, err := interruptible(cmd.Context(), func() (struct{}, error) {
				return struct{}{}, badInput(plots.Draw(args[0], args[1:], file, opt))
			})
			if err == nil {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "figure: %s\n", file)
			}
			return err
		},
	}
	out.register(cmd)
	f := cmd.Flags()
	f.StringVarP(&file, "output", "o", "", "`file` to draw to: .svg, .png or .pdf")
	f.StringVar(&opt.Title, "title", "", "title of the figure")
	f.StringVar(&opt.Metric, "metric", "", "metric of summary.json to draw, such as hit_rate or ttft_s.p99")
	f.StringVar(&opt.X, "x", "", "varied key of the horizontal axis")
	f.StringVar(&opt.Y, "y", "", "varied key of the vertical axis")
	f.Float64Var(&opt.WidthCM, "width-cm", 0, "width in cm (0: the figure's own)")
	f.Float64Var(&opt.HeightCM, "height-cm", 0, "height in cm (0: the figure's own)")
	return cmd
}

func completeFigure(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	var names []string
	for _, f := range plots.Figures() {
		if strings.HasPrefix(f.Name, begun) {
			names = append(names, f.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
