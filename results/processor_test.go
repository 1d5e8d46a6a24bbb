package results

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFilesOnOtherProcessors writes the same rows here and in a process that does without AVX2 and the like, and expects
// the same bytes. The rows hold groups of four equal reasons, where encoders of runs go different ways.
func TestFilesOnOtherProcessors(t *testing.T) {
	if dir := os.Getenv("SLUICE_TEST_FOLDER"); dir != "" {
		writeGroupsOfFour(t, dir)
		return
	}
	here, there := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "there")
	writeGroupsOfFour(t, here)
	child := exec.Command(os.Args[0], "-test.run", "^TestFilesOnOtherProcessors$")
	child.Env = append(os.Environ(), "GODEBUG=cpu.all=off", "SLUICE_TEST_FOLDER="+there)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"turns.parquet", "sessions.parquet", "replicas.parquet", "summary.json"} {
		a, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(there, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %d and %d bytes, which differ (%v)", name, len(a), len(b), err)
		}
	}
}

func writeGroupsOfFour(t *testing.T, dir string) {
	t.Helper()
	r := newSmallRun()
	w, err := Create(dir, smallInfo(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4000 {
		row := r.turns[i%len(r.turns)]
		row.Session = int32(i)
		row.RouteReason = []string{"balance", "cache", "affinity"}[i*i/4%3]
		row.AdmitReason = []string{"open", "ungated"}[i/4%2]
		if err := w.Turn(&row); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(&r.totals); err != nil {
		t.Fatal(err)
	}
}
