package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/nearest"
	"github.com/sluice-sim/sluice/scenarios"
)

// scenarioFlags are the flags that change a scenario.
type scenarioFlags struct {
	sets               []string
	modelCard, gpuCard string
}

func (f *scenarioFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.sets, "set", nil, "override a key of the scenario, `path=value`; repeatable")
	completeFlag(cmd, "set", completeSetting)
	cmd.Flags().StringVar(&f.modelCard, "model-card", "", "read the model card from this `file` (same as --set cluster.model=file)")
	cmd.Flags().StringVar(&f.gpuCard, "gpu-card", "", "read the GPU card from this `file` (same as --set cluster.gpu=file)")
}

// load reads a scenario by file name, by bundled name or from standard input ("-"), and applies the flags.
func (f *scenarioFlags) load(cmd *cobra.Command, name string) (*scenarios.Scenario, error) {
	sc, err := readScenario(cmd.InOrStdin(), name)
	if err != nil {
		return nil, badInput(err)
	}
	sets := f.sets
	if f.modelCard != "" {
		sets = append(sets, "cluster.model="+cardPath(f.modelCard))
	}
	if f.gpuCard != "" {
		sets = append(sets, "cluster.gpu="+cardPath(f.gpuCard))
	}
	sc, err = sc.Apply(sets)
	return sc, badInput(err)
}

// cardPath keeps the name of a card's file from being taken for the name of a card.
func cardPath(file string) string {
	if isFile(file) {
		return file
	}
	return "./" + file
}

func readScenario(stdin io.Reader, name string) (*scenarios.Scenario, error) {
	if name == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, 2<<20))
		if err != nil {
			return nil, err
		}
		return scenarios.Parse("stdin", data)
	}
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, "./\\") {
		source, err := scenarios.Source(name)
		if err != nil {
			return nil, unknownScenario(name)
		}
		return scenarios.Parse(name, source)
	}
	return scenarios.Load(name)
}

func unknownScenario(name string) error {
	all := scenarios.Bundled()
	text := fmt.Sprintf("no file and no bundled scenario %q", name)
	if near := nearest.Name(name, all); near != "" {
		return fmt.Errorf("%s; did you mean %s?", text, near)
	}
	return fmt.Errorf("%s; bundled are %s", text, strings.Join(all, ", "))
}

// completeScenario offers the bundled scenarios besides files.
func completeScenario(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return scenarios.Bundled(), cobra.ShellCompDirectiveDefault
}
