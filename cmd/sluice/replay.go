package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/policies/decisionlog"
)

func replayCommand() *cobra.Command {
	var settings, sets []string
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "replay-decisions FILE",
		Short: "Feed a decision log to the policies again",
		Long: `replay-decisions feeds the facts of a decision log (sluice run --decisions FILE, or a results folder that has one) to
newly built policies and requires the commands of the log; the first difference is printed and the exit code is 1.

With --policy it shows instead what other policies would have done on the same facts: gate=NAME, router=NAME, gate.KNOB=VALUE
or router.KNOB=VALUE. Arrivals, samples and KV events stay those of the log, and a turn takes as long after its dispatch as it
took there, so this says how decisions differ and not what they would be worth; sluice compare simulates that.`,
		Example: `  sluice replay-decisions d.jsonl
  sluice replay-decisions d.jsonl --policy router=lmetric
  sluice replay-decisions results/demo --policy gate=session --policy gate.high_watermark=0.7 --json`,
		Args: argsNamed("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, lines, closeFile, err := openDecisions(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = closeFile() }()
			if settings = append(settings, sets...); len(settings) > 0 {
				return replayOther(cmd, &out, name, lines, settings)
			}
			return replaySame(cmd, &out, name, lines)
		},
	}
	out.register(cmd)
	cmd.Flags().StringArrayVar(&settings, "policy", nil, "decide by another `gate=NAME, router=NAME, gate.KNOB=VALUE or router.KNOB=VALUE`; repeatable")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "the same with the path of a scenario, `policy.router=NAME`; repeatable")
	return cmd
}

func replaySame(cmd *cobra.Command, out *outputFlags, name string, lines decisionlog.Lines) error {
	o, err := interruptible(cmd.Context(), func() (decisionlog.Outcome, error) { return decisionlog.Replay(lines) })
	var diff *decisionlog.Difference
	if errors.As(err, &diff) {
		return fmt.Errorf("%s: %w", name, err)
	} else if err != nil {
		return logError(name, err)
	}
	s := &sheet{columns: []column{{Key: "gate"}, {Key: "router"}, {Key: "steps"}, {Key: "facts"}, {Key: "commands"}, {Key: "differences"}}}
	s.add(o.Header.Gate.Name, o.Header.Router.Name, o.Steps, o.Facts, o.Commands, 0)
	return out.write(cmd.OutOrStdout(), s)
}

func replayOther(cmd *cobra.Command, out *outputFlags, name string, lines decisionlog.Lines, settings []string) error {
	c, err := interruptible(cmd.Context(), func() (*decisionlog.Comparison, error) { return decisionlog.WhatIf(lines, settings) })
	if err != nil {
		return logError(name, err)
	}
	if err := out.write(cmd.OutOrStdout(), comparisonSheet(c, !out.text())); err != nil || !out.text() {
		return err
	}
	for _, note := range c.Notes() {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), note); err != nil {
			return err
		}
	}
	return nil
}

// logError is an error in a log, or in what is asked of it. Interruption stays itself.
func logError(name string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return badInput(fmt.Errorf("%s: %w", name, err))
}

// comparisonSheet has a row for each figure, with what the log has and what the other policies would have.
func comparisonSheet(c *decisionlog.Comparison, plain bool) *sheet {
	s := &sheet{columns: []column{{Key: "figure"}, {Key: "log"}, {Key: "other"}}, right: true}
	a, b := &c.Logged, &c.Would
	s.add("gate", a.Gate, b.Gate)
	s.add("router", a.Router, b.Router)
	row := func(name string, x, y int64) { s.add(name, x, y) }
	row("attempts", a.Arrived, b.Arrived)
	row("admitted", a.Admitted, b.Admitted)
	row("rejected", a.Rejected, b.Rejected)
	row("superseded at the gate", a.Aborted, b.Aborted)
	row("waiting at the end", a.Waiting, b.Waiting)
	row("attempts held", a.Held, b.Held)
	row("holds", a.Holds, b.Holds)
	row("probes", a.Probes, b.Probes)
	s.add("gate wait s, sum", float64(a.Wait)/1e9, float64(b.Wait)/1e9)
	s.add("gate wait s, longest", float64(a.MaxWait)/1e9, float64(b.MaxWait)/1e9)
	const most = 16 // replicas, for people
	for i := range a.ByReplica {
		if i == most && !plain {
			s.add(fmt.Sprintf("(%d more replicas)", len(a.ByReplica)-most), nil, nil)
			break
		}
		row(fmt.Sprintf("dispatches to replica %d", i), a.ByReplica[i], b.ByReplica[i])
	}
	s.add("dispatched by both", nil, c.Both)
	s.add("to another replica", nil, c.Moved)
	s.add("at another moment", nil, c.Later)
	s.add("probes answered from other facts", nil, c.Guessed)
	s.add("probes unanswered", nil, c.Unanswered)
	return s
}
