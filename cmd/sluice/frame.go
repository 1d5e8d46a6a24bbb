package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/nearest"
	"github.com/sluice-sim/sluice/scenarios"
	"github.com/sluice-sim/sluice/traces"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2 // wrong usage or bad input
	exitInterrupted = 130
)

// inputError is wrong usage or bad input: exit code 2.
type inputError struct{ err error }

func (e inputError) Error() string { return e.err.Error() }
func (e inputError) Unwrap() error { return e.err }

// badInput marks an error as one of the input. nil stays nil.
func badInput(err error) error {
	if err == nil {
		return nil
	}
	return inputError{err}
}

// usage is an error of the command line.
func usage(cmd *cobra.Command, message string) error {
	return inputError{fmt.Errorf("%s: %s (see %s --help)", cmd.CommandPath(), message, cmd.CommandPath())}
}

// report prints an error and returns the exit code. A reader that closed its end of a pipe is no error to speak of.
func report(ctx context.Context, w io.Writer, err error) int {
	var in inputError
	var input *traces.InputError
	var problems scenarios.Problems
	var problem *scenarios.Problem
	switch {
	case err == nil:
		return 0
	case errors.Is(err, syscall.EPIPE):
		return exitFailed
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(w, "sluice: interrupted")
		return exitInterrupted
	case errors.As(err, &problems), errors.As(err, &problem): // these begin with their place
		fmt.Fprintln(w, err)
		return exitUsage
	}
	text := err.Error()
	if !strings.HasPrefix(text, "sluice") {
		text = "sluice: " + text
	}
	fmt.Fprintln(w, text)
	if errors.As(err, &in) || errors.As(err, &input) {
		return exitUsage
	}
	return exitFailed
}

// argsNamed accepts exactly the named arguments; a name that ends in "..." stands for one or more, one in brackets is
// optional.
func argsNamed(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		least, most := len(names), len(names)
		for _, n := range names {
			if strings.HasSuffix(n, "...") {
				most = 1 << 20
			}
			if strings.HasPrefix(n, "[") {
				least--
			}
		}
		switch {
		case len(args) < least:
			return usage(cmd, "expected "+strings.Join(names, " "))
		case len(names) == 0 && len(args) > 0:
			return usage(cmd, fmt.Sprintf("expected no argument, found %q", args[0]))
		case len(args) > most:
			return usage(cmd, fmt.Sprintf("expected %s, found also %q", strings.Join(names, " "), args[most]))
		}
		return nil
	}
}

// group makes a command that only has subcommands answer an unknown one with an error.
func group(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		message := fmt.Sprintf("unknown command %q", args[0])
		if near := nearest.Name(args[0], names); near != "" {
			message += "; did you mean " + near + "?"
		}
		return usage(cmd, message)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}
