package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/results"
)

// modeFlags choose how a run is carried out. None of them changes a result; they are for those who doubt it.
type modeFlags struct {
	check     bool
	walk      bool
	reference bool
	decisions bool      // write a decision log into the folder
	log       io.Writer // where it goes
}

func (m *modeFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&m.check, "check", false, "hold the run to its invariants at every moment, and its results to their accounts (slower)")
	f.BoolVar(&m.walk, "walk", false, "go through every decode step instead of jumping over them (slower, same results)")
	f.BoolVar(&m.reference, "reference-pool", false, "keep every KV block by itself, as vLLM does (much slower, same results)")
}

// given tells whether the run has to be carried out although its results may exist.
func (m *modeFlags) given() bool { return m.check || m.walk || m.reference || m.decisions }

// verdict is the error of a checked run whose results do not add up.
func (m *modeFlags) verdict(s *results.Summary) error {
	if !m.check {
		return nil
	}
	var errs []error
	for _, f := range s.Faults() {
		errs = append(errs, fmt.Errorf("check: %s", f))
	}
	return errors.Join(errs...)
}
