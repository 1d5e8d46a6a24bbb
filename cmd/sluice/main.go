// Command sluice replays agentic traces against a cluster of modelled vLLM replicas and says what each admission and
// routing policy does to it. Every subcommand has a file of its own: it parses flags, calls packages and prints.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { // a second Ctrl-C ends the program at once
		<-ctx.Done()
		stop()
	}()
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code. A panic, also of a library, becomes an error.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) (code int) {
	defer func() {
		if r := recover(); r != nil {
			code = report(ctx, errOut, panicError(r))
		}
	}()
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	started := noteStart(root)
	err := root.ExecuteContext(ctx)
	if !*started {
		err = badInput(err) // the command line itself was wrong
	}
	return report(ctx, errOut, err)
}

// noteStart makes every command say that it has started to work.
func noteStart(root *cobra.Command) *bool {
	started := new(bool)
	var wrap func(*cobra.Command)
	wrap = func(cmd *cobra.Command) {
		if work := cmd.RunE; work != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				*started = true
				return work(cmd, args)
			}
		}
		for _, c := range cmd.Commands() {
			wrap(c)
		}
	}
	wrap(root)
	return started
}

// panicError is a panic as one line. SLUICE_TRACEBACK=1 adds where it happened, for a bug report.
func panicError(r any) error {
	if os.Getenv("SLUICE_TRACEBACK") == "1" {
		return fmt.Errorf("internal fault: %v\n%s", r, debug.Stack())
	}
	return fmt.Errorf("internal fault: %v (a bug: please report it with the output of the same command under SLUICE_TRACEBACK=1)", r)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A wind tunnel for the schedulers in front of vLLM",
		Long: `sluice replays agentic traces (many sessions, growing prompts, tool calls between turns) against a cluster of
modelled vLLM replicas, through the same admission and routing code that runs in production, and says what each policy
does to throughput, prefix-cache hit rate and the latency of every turn.

Exit codes: 0 done, 1 failed while running, 2 wrong usage or bad input, 130 interrupted.`,
		Example: `  sluice compare demo --vary policy.router=round-robin,sticky,lmetric,smetric
  sluice scenarios demo > my.yaml
  sluice run my.yaml --set cluster.replicas=8`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, err.Error()) })
	root.AddCommand(runCommand(), compareCommand(), traceCommand(), verifyCommand(), stepCommand(), policiesCommand(), replayCommand(), explainCommand(),
		scenariosCommand(), validateCommand(), modelsCommand(), gpusCommand(), engineCommand(), gatewayCommand(), diffCommand(), plotCommand(), figuresCommand(), versionCommand())
	group(root)
	return root
}
