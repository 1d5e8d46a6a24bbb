package traces

import (
	"cmp"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// wholeFolder is the trace of all kv-cache-tester files with a shared prefix, read once; do not change it.
func wholeFolder(t testing.TB) *Trace {
	t.Helper()
	folder.once.Do(func() {
		folder.trace, folder.err = Open(sharedTraces(t, "kv-cache-tester/traces"), "", Options{SharedPrefix: SharedAuto})
	})
	if folder.err != nil {
		t.Fatal(folder.err)
	}
	if folder.trace == nil {
		t.Skip("the trace data is not here")
	}
	return folder.trace
}

var folder struct {
	once  sync.Once
	trace *Trace
	err   error
}

// sharedTraces finds the optional trace data beside the repository, or skips the test.
func sharedTraces(t testing.TB, path string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	full := filepath.Join(cmp.Or(os.Getenv("SLUICE_SHARED"), filepath.Join(dir, "..", "shared")), "traces", filepath.FromSlash(path))
	if _, err := os.Stat(full); err != nil {
		t.Skip("the trace data is not here: " + err.Error())
	}
	return full
}
