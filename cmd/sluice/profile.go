package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"

	"github.com/spf13/cobra"
)

// profileFlags are --cpuprofile and --memprofile.
type profileFlags struct{ cpu, mem string }

func (f *profileFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.cpu, "cpuprofile", "", "write a CPU profile to this `file`")
	cmd.Flags().StringVar(&f.mem, "memprofile", "", "write a heap profile to this `file` at the end")
}

// start begins profiling; stop ends it and writes the files.
func (f *profileFlags) start() (stop func() error, err error) {
	var cpu *os.File
	if f.cpu != "" {
		if cpu, err = os.Create(f.cpu); err != nil {
			return nil, badInput(err)
		}
		if err = pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(err, cpu.Close())
		}
	}
	return func() error {
		var err error
		if cpu != nil {
			pprof.StopCPUProfile()
			err = cpu.Close()
		}
		if f.mem == "" {
			return err
		}
		runtime.GC()
		return errors.Join(err, writeOutput(f.mem, nil, pprof.WriteHeapProfile))
	}, nil
}
