package sim

import (
	"context"
	"testing"

	"github.com/sluice-sim/sluice/prefetch"
)

// Of a run under load, nearly every moment is foreseen, and most of what it touches has been asked for when it comes.
func TestMomentsAreForeseen(t *testing.T) {
	if !prefetch.Works {
		t.Skip("this build cannot ask for memory")
	}
	c := world(t, crowd(1024, 6, 4096, 4096, 512, 128, .5), "none", "smetric")
	c.Replicas, c.Check, c.ahead = 64, false, true
	c.Arrivals = Arrivals{Process: Concurrent, Sessions: 512}
	r, err := begin(context.Background(), c, nothing{})
	if err != nil {
		t.Fatal(err)
	}
	moments, foreseen := 0, 0
	for r.turnsDone < r.survey.Turns {
		r.now = r.next()
		r.event = r.now
		moments++
		if h := &r.ahead.next; h.at == r.now && h.stage >= 4 {
			foreseen++
		}
		r.instant()
	}
	if foreseen < moments*9/10 {
		t.Errorf("%d of %d moments were foreseen", foreseen, moments)
	}
}
