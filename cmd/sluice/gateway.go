package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/gateway"
)

func gatewayCommand() *cobra.Command {
	var config string
	var check, quiet bool
	cmd := &cobra.Command{
		Use:   "gateway --config FILE",
		Short: "Run a policy in front of vLLM servers",
		Long: `gateway is an OpenAI-compatible reverse proxy in front of vLLM servers. The gate and the router of its configuration are those
of a scenario, in the same words, and decide there as they do here: sluice replay-decisions repeats every decision from the log.

A first interrupt drains: nothing new is taken, and what runs may end. SIGHUP, or a changed file, has the configuration read again;
only knobs of policies may differ.`,
		Example: `  sluice engine --port 8001 --speed 20 &
  sluice gateway --config gateway.yaml
  sluice replay-decisions decisions.jsonl`,
		Args: argsNamed(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config == "" {
				return usage(cmd, "--config FILE is missing")
			}
			cfg, err := gateway.LoadConfig(config)
			if err != nil {
				return badInput(err)
			}
			if check {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %d replicas, gate %s, router %s\n", config, len(cfg.Replicas), cfg.Policy.Gate.Name, cfg.Policy.Router.Name)
				return nil
			}
			level := slog.LevelInfo
			if quiet {
				level = slog.LevelError
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			g, err := gateway.New(cfg, gateway.Options{Version: version, Log: log})
			if err != nil {
				return badInput(err)
			}
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			go g.WatchConfig(cmd.Context(), config, hangup)
			return g.Serve(cmd.Context(), func(api, operations net.Addr) {
				fmt.Fprintf(cmd.OutOrStdout(), "serving on http://%s, operations on http://%s\n", api, operations)
			})
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration `file`")
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration and stop")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "log errors only")
	return cmd
}
