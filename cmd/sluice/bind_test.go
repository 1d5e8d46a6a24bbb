package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/scenarios"
	"github.com/sluice-sim/sluice/traces"
)

// TestFoldersWithoutTheTraceInMemory runs scenarios with their sessions held, made as they start and read as they start,
// and expects results folders that agree in every byte.
func TestFoldersWithoutTheTraceInMemory(t *testing.T) {
	for name, sets := range map[string][]string{
		"demo":    {"workload.generate.sessions=30", "clients.timeout_s=20", "clients.retries=1", "cluster.engine.max_model_len=60000"},
		"cliff":   nil,
		"pinned":  {"workload.generate.sessions=20", "policy.retention=ttl", "policy.router=sticky", "cluster.cpu_tier.gib=10", "replay=open"},
		"shuffle": {"workload.generate.sessions=20", "arrivals.shuffle=true", "policy.router=chwbl"},
	} {
		t.Run(name, func(t *testing.T) {
			bundled := name
			if name == "pinned" || name == "shuffle" {
				bundled = "demo"
			}
			sc, err := readScenario(nil, bundled)
			if err != nil {
				t.Fatal(err)
			}
			if sc, err = sc.Apply(sets); err != nil {
				t.Fatal(err)
			}
			held, err := loadWorkload(context.Background(), sc)
			if err != nil {
				t.Fatal(err)
			}
			if held.large {
				t.Fatal("the workload is not held")
			}
			made, err := traces.GenerateSource(sc.Workload.Generate.Name, uint64(sc.Seed), sc.Workload.Generate.Generator())
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "trace.parquet")
			f, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := traces.WriteNative(f, made); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			read, err := traces.NativeSource(file, traces.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			want := folderOf(t, sc, held)
			for what, src := range map[string]traces.Source{"made": made, "read": read} {
				digest, err := traces.Digest(src)
				if err != nil {
					t.Fatal(err)
				}
				got := folderOf(t, sc, &workload{source: src, large: true, traceDigest: digest})
				if len(got) != len(want) {
					t.Errorf("%s: %d files, expected %d", what, len(got), len(want))
				}
				for file, content := range want {
					if got[file] != content {
						t.Errorf("sessions that are %s: %s differs", what, file)
					}
				}
			}
		})
	}
}

// folderOf is the files of a results folder, by name.
func folderOf(t *testing.T, sc *scenarios.Scenario, w *workload) map[string]string {
	t.Helper()
	arms, err := scenarios.Grid(sc, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "results")
	out, err := results.Create(dir, runInfo(sc, arms[0], "digest", w), results.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := simulate(context.Background(), sc, w, modeFlags{}, out, nil); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(content)
	}
	return files
}
