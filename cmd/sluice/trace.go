package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/gateway/recorder"
	"github.com/sluice-sim/sluice/traces"
)

func traceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "trace",
		Short:   "Describe, convert, generate and check traces",
		Example: "  sluice trace stats traces/kv-cache-tester\n  sluice trace generate claude-code -o sessions.parquet",
	}
	cmd.AddCommand(traceStatsCommand(), traceConvertCommand(), traceGenerateCommand(), traceHeadCommand(), traceValidateCommand(), traceVerifyCommand())
	group(cmd)
	return cmd
}

func traceStatsCommand() *cobra.Command {
	var out outputFlags
	var format string
	cmd := &cobra.Command{
		Use:   "stats PATH",
		Short: "Print statistics of a trace as recorded",
		Long: "stats describes a trace as recorded, before anything is repaired, capped or dropped.\n\n" +
			"Formats: " + strings.Join(traces.Formats(), ", ") + ".",
		Example: "  sluice trace stats traces/kv-cache-tester\n  sluice trace stats conversation.jsonl --json",
		Args:    argsNamed("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			stats, err := interruptible(cmd.Context(), func() (*traces.Stats, error) { return traces.OpenStats(args[0], format, traces.Limits{}) })
			if err != nil {
				return err
			}
			if out.json {
				data, err := json.MarshalIndent(stats, "", "  ")
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(append(data, '\n'))
				return err
			}
			s := &sheet{columns: []column{{Key: "statistic"}, {Key: "value"}}}
			for _, row := range stats.Rows() {
				s.add(row[0], row[1])
			}
			return out.write(cmd.OutOrStdout(), s)
		},
	}
	out.registerAs(cmd, "print one JSON object: the statistics by name")
	formatFlag(cmd, &format)
	return cmd
}

func formatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "format", "auto", "format of the trace: "+strings.Join(traces.Formats(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(traces.Formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// importFlags say how a trace is read, with the names and defaults of workload.trace.
type importFlags struct {
	format, shared, reuse, models string
	idleCapS                      float64
	maxContext                    int32
}

func (f *importFlags) register(cmd *cobra.Command) {
	formatFlag(cmd, &f.format)
	cmd.Flags().StringVar(&f.shared, "shared-prefix", "auto", "content that sessions share: auto or none")
	cmd.Flags().StringVar(&f.reuse, "output-reuse", "full", "outputs are content of the next prompt: full or none")
	cmd.Flags().StringVar(&f.models, "models", "all", "calls to keep: all or main")
	cmd.Flags().Float64Var(&f.idleCapS, "idle-cap-s", 0, "longest tool gap in seconds; 0 for no cap")
	cmd.Flags().Int32Var(&f.maxContext, "max-context", 0, "drop turns with more tokens than this; 0 for no limit")
}

// open reads a trace that need not fit in memory.
func (f *importFlags) open(cmd *cobra.Command, path string) (traces.Source, error) {
	if !(f.idleCapS >= 0 && f.idleCapS < 1e9) {
		return nil, usage(cmd, fmt.Sprintf("--idle-cap-s %v: expected 0 or a positive number of seconds", f.idleCapS))
	}
	if f.maxContext < 0 {
		return nil, usage(cmd, fmt.Sprintf("--max-context %d: expected 0 or a positive number of tokens", f.maxContext))
	}
	return interruptible(cmd.Context(), func() (traces.Source, error) {
		src, err := traces.OpenSource(path, f.format, traces.Options{IdleCapNS: int64(math.Round(f.idleCapS * 1e9)),
			SharedPrefix: traces.SharedPrefix(f.shared), OutputReuse: traces.OutputReuse(f.reuse), Models: traces.ModelChoice(f.models)})
		if err == nil && f.maxContext > 0 {
			src, err = traces.DropOver(src, f.maxContext)
		}
		return src, err
	})
}

func traceConvertCommand() *cobra.Command {
	var in importFlags
	var file string
	cmd := &cobra.Command{
		Use:     "convert PATH -o FILE",
		Short:   "Import a trace and write it in the native format",
		Example: "  sluice trace convert traces/kv-cache-tester -o sessions.parquet --idle-cap-s 60",
		Args:    argsNamed("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := in.open(cmd, args[0])
			if err != nil {
				return err
			}
			return writeTrace(cmd, file, src)
		},
	}
	in.register(cmd)
	outputFileFlag(cmd, &file)
	return cmd
}

func outputFileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "output", "o", "", "`file` to write (- for standard output)")
	_ = cmd.MarkFlagRequired("output") // the flag exists
}

// writeTrace writes a trace and says on stderr what it holds.
func writeTrace(cmd *cobra.Command, file string, src traces.Source) error {
	if err := writeOutput(file, cmd.OutOrStdout(), func(w io.Writer) error { return traces.WriteNative(w, src) }); err != nil {
		return err
	}
	return reportTrace(cmd.ErrOrStderr(), src.About())
}

// reportTrace says what an import kept, dropped and repaired.
func reportTrace(w io.Writer, a *traces.About) error {
	_, err := fmt.Fprintf(w, "%s: %s sessions, %s turns\n", a.Name, thousands(int64(a.Sessions)), thousands(a.Turns))
	for _, d := range a.Report.Dropped {
		fmt.Fprintf(w, "  dropped %s turns: %s\n", thousands(d.Turns), d.Reason)
	}
	for _, n := range a.Report.Notes {
		fmt.Fprintf(w, "  %s times: %s\n", thousands(n.Count), n.Note)
	}
	return err
}

func traceHeadCommand() *cobra.Command {
	var in importFlags
	var out outputFlags
	var sessions int
	var file string
	cmd := &cobra.Command{
		Use:   "head PATH",
		Short: "Print the turns of the first sessions, or write these sessions to a file",
		Example: `  sluice trace head traces/kv-cache-tester
  sluice trace head sessions.parquet --sessions 50 -o small.parquet`,
		Args: argsNamed("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if sessions < 1 {
				return usage(cmd, fmt.Sprintf("--sessions %d: expected at least 1", sessions))
			}
			src, err := in.open(cmd, args[0])
			if err != nil {
				return err
			}
			if src, err = traces.HeadOf(src, sessions); err != nil {
				return err
			}
			if file != "" {
				return writeTrace(cmd, file, src)
			}
			s, err := turnSheet(src)
			if err != nil {
				return err
			}
			return out.write(cmd.OutOrStdout(), s)
		},
	}
	in.register(cmd)
	out.register(cmd)
	cmd.Flags().IntVarP(&sessions, "sessions", "n", 1, "number of sessions")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write these sessions to a native `file` instead")
	return cmd
}

// turnSheet lists turns; the gap is the longest wait of a turn's dependencies.
func turnSheet(src traces.Source) (*sheet, error) {
	s := &sheet{columns: []column{{Key: "session"}, {Key: "thread"}, {Key: "turn"}, {Key: "model"}, {Key: "start_s", Title: "start s"},
		{Key: "gap_s", Title: "gap s"}, {Key: "prompt_tokens", Title: "prompt"}, {Key: "output_tokens", Title: "output"}, {Key: "stream"}, {Key: "duration_s", Title: "duration s"}}}
	models := src.About().Models
	err := traces.Each(src, func(_ int32, session *traces.Session) error {
		for j := range session.Turns {
			t := &session.Turns[j]
			var gap, duration any
			for _, d := range session.Deps[t.DepLo:t.DepHi] {
				if g := float64(d.DelayNS) / 1e9; gap == nil || g > gap.(float64) {
					gap = g
				}
			}
			if t.DurationNS != traces.Unknown {
				duration = float64(t.DurationNS) / 1e9
			}
			s.add(session.Name, t.Thread, t.Number, models[t.Model], float64(t.StartNS)/1e9, gap, t.Prompt.Tokens, t.OutputTokens, int32(t.Prompt.Stream), duration)
		}
		return nil
	})
	return s, err
}

func traceValidateCommand() *cobra.Command {
	var in importFlags
	cmd := &cobra.Command{
		Use:   "validate PATH",
		Short: "Read a trace and check it",
		Long: `validate reads a trace completely, says what it holds and what was dropped or repaired, and checks all that a run relies
on. The exit code is 2 when something is wrong.`,
		Example: "  sluice trace validate traces/kv-cache-tester",
		Args:    argsNamed("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := in.open(cmd, args[0])
			if err != nil {
				return err
			}
			tr, err := interruptible(cmd.Context(), func() (*traces.Trace, error) { return traces.Hold(src) })
			if err != nil {
				return err
			}
			if problems := traces.Validate(tr); len(problems) > 0 {
				texts := make([]string, len(problems))
				for i, p := range problems {
					texts[i] = args[0] + ": " + p.String()
				}
				return badInput(fmt.Errorf("%s", strings.Join(texts, "\n")))
			}
			return reportTrace(cmd.OutOrStdout(), tr.About())
		},
	}
	in.register(cmd)
	return cmd
}

func traceVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE...",
		Short: "Prove that files a gateway recorded hold no text",
		Long: `verify proves of files that the recorder of sluice gateway wrote that they hold nothing but numbers and the aliases of models,
before they are given to others. What it finds is named and not repeated. The exit code is 2 for a file that holds anything else,
or that something else wrote.`,
		Example: "  sluice trace verify recorded/*.parquet",
		Args:    argsNamed("FILE..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []error
			for _, path := range args {
				_, err := interruptible(cmd.Context(), func() (struct{}, error) { return struct{}{}, recorder.Verify(path) })
				if err != nil {
					all = append(all, fmt.Errorf("%s: %w", path, err))
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: numbers and aliases of models only\n", path)
			}
			return badInput(errors.Join(all...))
		},
	}
}
