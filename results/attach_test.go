package results

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// An attached file is complete when the folder is, and goes with it.
func TestAttach(t *testing.T) {
	for _, finish := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "run")
		w, err := Create(dir, Info{Run: "r", Arm: "a", Mode: "closed"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := w.Attach(DecisionsFile)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Attach(DecisionsFile); !errors.Is(err, os.ErrExist) {
			t.Errorf("attached twice: %v", err)
		}
		if _, err := out.WriteString("text\n"); err != nil {
			t.Fatal(err)
		}
		if !finish {
			w.Abort()
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			continue
		}
		if _, err := w.Finish(&Totals{ITL: NewHistogram()}); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, DecisionsFile)); string(text) != "text\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
}
