package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/scenarios"
)

func validateCommand() *cobra.Command {
	var flags scenarioFlags
	var out outputFlags
	var resolved bool
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a scenario",
		Long: `validate checks a scenario file (or a bundled scenario, or standard input as "-"): its keys, its values, its cards and
whether model and KV cache fit the GPUs, and whether the trace is there; it does not read the trace. --resolved prints the
canonical form, with every default written out, also without the trace.`,
		Example: `  sluice validate my.yaml
  sluice validate --resolved my.yaml --set cluster.replicas=2
  sluice scenarios demo | sluice validate -`,
		Args:              argsNamed("FILE"),
		ValidArgsFunction: completeScenario,
		RunE: func(cmd *cobra.Command, args []string) error {
			sc, err := flags.load(cmd, args[0])
			if err != nil {
				return err
			}
			r, err := resolveCluster(sc)
			if err != nil {
				return badInput(err)
			}
			if resolved {
				_, err := cmd.OutOrStdout().Write(sc.Resolved())
				return err
			}
			if err := checkTrace(sc); err != nil {
				return err
			}
			s := replicaSheet(sc, r)
			if !out.text() {
				return out.write(cmd.OutOrStdout(), s)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", args[0]); err != nil {
				return err
			}
			return s.writeVertical(cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	out.register(cmd)
	cmd.Flags().BoolVar(&resolved, "resolved", false, "print the scenario with every default written out")
	return cmd
}

// replicaSheet is what a scenario comes to, in one row.
func replicaSheet(sc *scenarios.Scenario, r *replica) *sheet {
	s := &sheet{columns: []column{{Key: "name"}, {Key: "digest"}, {Key: "workload"}, {Key: "arrivals"}, {Key: "replicas"}, {Key: "model"}, {Key: "gpu"},
		{Key: "tensor_parallel"}, {Key: "kv_blocks"}, {Key: "kv_tokens"}, {Key: "max_num_batched_tokens"}, {Key: "max_num_seqs"}, {Key: "gate"}, {Key: "router"}}}
	work := sc.Workload.Generate.Name
	if sc.Workload.Source == "trace" {
		work = sc.Workload.Trace.Path
	}
	var blocks, tokens any
	if !sc.Cluster.InfiniteCache {
		blocks, tokens = r.blocks, int64(r.blocks)*sc.Cluster.Engine.BlockSize
	}
	s.add(sc.Name, sc.Digest(), work, sc.Arrivals.Process, sc.Cluster.Replicas, r.setup.Model.Name, r.setup.GPU.Name, sc.Cluster.TensorParallel,
		blocks, tokens, r.engine.MaxBatchedTokens, r.engine.MaxNumSeqs, sc.Policy.Gate.Name, sc.Policy.Router.Name)
	return s
}
