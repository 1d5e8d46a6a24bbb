package traces

import (
	"bytes"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
)

// replayed is when each turn of a session arrives when every turn takes its recorded service time.
func replayed(s *Session) []int64 {
	at := make([]int64, len(s.Turns))
	for i := range s.Turns {
		for _, d := range s.Deps[s.Turns[i].DepLo:s.Turns[i].DepHi] {
			from := at[d.Turn]
			if d.On == OnCompletion {
				from += s.Turns[d.Turn].DurationNS
			}
			at[i] = max(at[i], from+d.DelayNS)
		}
	}
	return at
}

// With recorded service times the dependencies give the recorded starts back: exactly, but for negative gaps (rounded
// start times, 4.3 s at most in this source), which can only delay.
func TestDependenciesGiveTheRecordedStartsBack(t *testing.T) {
	exact, sessions, subagents := 0, 0, 0
	for i := range wholeFolder(t).Sessions {
		s := &wholeFolder(t).Sessions[i]
		complete := true
		for j := range s.Turns {
			complete = complete && s.Turns[j].DurationNS != Unknown
		}
		if !complete {
			continue
		}
		sessions++
		if s.Threads > 1 {
			subagents++
		}
		same := true
		for j, at := range replayed(s) {
			late := at - s.Turns[j].StartNS
			same = same && late == 0
			if late < 0 || late > 10e9 {
				t.Errorf("%s: turn %d arrives %g s late", s.Name, j, float64(late)/1e9)
				break
			}
		}
		if same {
			exact++
		}
	}
	t.Logf("%d of %d sessions exact, %d with subagents", exact, sessions, subagents)
	if exact*10 < sessions*8 || subagents == 0 {
		t.Errorf("only %d of %d sessions exact, %d with subagents", exact, sessions, subagents)
	}
}

// Files are parsed in parallel and joined in order of name, whatever the number of processors.
func TestReadingDoesNotDependOnProcessors(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		text := fmt.Sprintf(`{"id":"s%d","tool_tokens":%d,"system_tokens":64,"requests":[%s,%s]}`, i, 64*(i%3),
			kvCallText(0, 1, 300, 5, "1,2,3,4"), kvCallText(9, -1, 300+i, 5, "1,2,3,4"))
		write(t, filepath.Join(dir, fmt.Sprintf("s%02d.json", i)), text)
	}
	var first []byte
	for _, n := range []int{1, 2, 8} {
		before := runtime.GOMAXPROCS(n)
		tr, err := Open(dir, "", Options{SharedPrefix: SharedAuto})
		runtime.GOMAXPROCS(before)
		if err != nil {
			t.Fatal(err)
		}
		b := roundTrip(t, tr)
		if first == nil {
			first = b
		}
		if !bytes.Equal(b, first) {
			t.Errorf("%d processors give another trace", n)
		}
	}
}
