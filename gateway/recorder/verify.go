package recorder

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/sluice-sim/sluice/traces"
)

// maxVerifyBytes bounds a file that is verified.
const maxVerifyBytes = 1 << 30

// Verify proves that a file that a recorder wrote holds nothing but numbers: it is read as a trace, every text in that trace is
// a model's alias, a running number or one of a fixed list, and writing the trace again gives the file byte for byte, so that
// nothing else is in it. The error says what was found; it does not repeat it.
func Verify(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if info.Size() > maxVerifyBytes {
		return fmt.Errorf("verify: a file of %d bytes, at most %d are taken", info.Size(), maxVerifyBytes)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	tr, err := traces.ReadNative(path, traces.Limits{})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if err := verifyTexts(tr); err != nil {
		return err
	}
	var again bytes.Buffer
	if err := traces.WriteNative(&again, tr); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if !bytes.Equal(raw, again.Bytes()) {
		return fmt.Errorf("verify: the file holds something beside its trace, or was written by another version")
	}
	return nil
}

func verifyTexts(tr *traces.Trace) error {
	if tr.Name != traceName || tr.Report.Format != reportFormat {
		return fmt.Errorf("verify: the trace has a name or a format of its own; was it written by a recorder?")
	}
	if len(tr.Groups) > 0 {
		return fmt.Errorf("verify: the trace has names of groups")
	}
	for i, m := range tr.Models {
		if !aliasForm.MatchString(m) {
			return fmt.Errorf("verify: model %d has a name that is no alias", i)
		}
	}
	for i := range tr.Sessions {
		if tr.Sessions[i].Name != "s"+strconv.Itoa(i) {
			return fmt.Errorf("verify: session %d has a name of its own", i)
		}
	}
	for _, d := range tr.Report.Dropped {
		if !slices.Contains(allowedTexts, d.Reason) {
			return fmt.Errorf("verify: the report has a text of its own")
		}
	}
	for _, n := range tr.Report.Notes {
		if !slices.Contains(allowedTexts, n.Note) {
			return fmt.Errorf("verify: the report has a text of its own")
		}
	}
	return nil
}
