package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

func TestEveryCommandExplainsItself(t *testing.T) {
	n := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		n++
		if cmd.Short == "" || cmd.Example == "" || !strings.Contains(cmd.Example, "sluice "+strings.TrimPrefix(cmd.CommandPath(), "sluice ")) && cmd.HasParent() && !cmd.HasSubCommands() {
			t.Errorf("%s: short %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
		if cmd.RunE == nil || cmd.Args == nil {
			t.Errorf("%s does not check its arguments or does nothing", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot())
	if n < 18 {
		t.Fatalf("looked at %d commands only", n)
	}
}

func TestReportedExitCodes(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		code int
		text string
	}{
		{t.Context(), nil, 0, ""},
		{t.Context(), errors.New("disk full"), 1, "sluice: disk full\n"},
		{t.Context(), badInput(errors.New("no such trace")), 2, "sluice: no such trace\n"},
		{ended, fmt.Errorf("arm sticky: %w", context.Canceled), 130, "sluice: interrupted\n"},
		{t.Context(), fmt.Errorf("writing: %w", syscall.EPIPE), 1, ""},
	} {
		var b bytes.Buffer
		if code := report(c.ctx, &b, c.err); code != c.code || b.String() != c.text {
			t.Errorf("%v: exit code %d and %q, want %d and %q", c.err, code, b.String(), c.code, c.text)
		}
	}
	if badInput(nil) != nil {
		t.Error("no error has become one")
	}
}

func TestPanicsBecomeErrors(t *testing.T) {
	_, err := interruptible(t.Context(), func() (int, error) { panic("index out of range") })
	if err == nil || !strings.Contains(err.Error(), "internal fault: index out of range") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	var b bytes.Buffer
	if code := execute(t.Context(), []string{"version"}, nil, panicWriter{}, &b); code != 1 || !strings.Contains(b.String(), "internal fault: boom") {
		t.Errorf("exit code %d and %q", code, b.String())
	}
}

type panicWriter struct{}

func (panicWriter) Write([]byte) (int, error) { panic("boom") }

func TestInterruptedRunLeavesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"run", "demo"}, {"compare", "demo", "--vary", "policy.router=sticky,lmetric"}} {
		var out, errOut bytes.Buffer
		if code := execute(ctx, args, nil, &out, &errOut); code != 130 || errOut.String() != "sluice: interrupted\n" || out.Len() > 0 {
			t.Errorf("%v: exit code %d, stderr %q", args, code, errOut.String())
		}
	}
	if names := globAll(t); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestTableFormats(t *testing.T) {
	x := 0.1
	s := &sheet{columns: []column{{Key: "name"}, {Key: "time_s", Title: "time s"}, {Key: "n"}}}
	s.add(`a "b", c`, &x, int64(1234567))
	s.add("plain", math.NaN(), nil)
	for _, c := range []struct {
		flags outputFlags
		want  string
	}{
		{outputFlags{json: true}, "[\n  {\"name\": \"a \\\"b\\\", c\", \"time_s\": 0.1, \"n\": 1234567},\n  {\"name\": \"plain\", \"time_s\": null, \"n\": null}\n]\n"},
		{outputFlags{csv: true}, "name,time_s,n\n\"a \"\"b\"\", c\",0.1,1234567\nplain,,\n"},
		{outputFlags{}, " name      time s          n\n─────────────────────────────\n a \"b\", c  0.1000  1,234,567\n plain          -          -\n"},
	} {
		var b bytes.Buffer
		if err := c.flags.write(&b, s); err != nil || b.String() != c.want {
			t.Errorf("got %v\n%s\nwant\n%s", err, b.String(), c.want)
		}
	}
	for x, want := range map[float64]string{0: "0", 1: "1.000", 0.00012345: "0.0001234", 123456.7: "123,457", 1e-9: "1.000e-09", -1500: "-1,500", 99.999: "100.00"} {
		if got := shortFloat(x); got != want {
			t.Errorf("shortFloat(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestOutputFileIsWholeOrAbsent(t *testing.T) {
	t.Chdir(t.TempDir())
	boom := errors.New("boom")
	if err := writeOutput("x.txt", nil, func(w io.Writer) error { fmt.Fprint(w, "half"); return boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if names := globAll(t); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
	if err := writeOutput("no/such/folder/x.txt", nil, func(io.Writer) error { return nil }); report(t.Context(), io.Discard, err) != exitUsage {
		t.Errorf("got %v", err)
	}
	if err := writeOutput("x.txt", nil, func(w io.Writer) error { _, err := fmt.Fprint(w, "whole"); return err }); err != nil {
		t.Error(err)
	}
	if names := globAll(t); len(names) != 1 || names[0] != "x.txt" {
		t.Errorf("found %v", names)
	}
}

// globAll lists the current folder, hidden names included.
func globAll(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
