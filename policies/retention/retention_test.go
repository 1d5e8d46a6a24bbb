package retention

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
)

func TestPriorTau(t *testing.T) {
	for _, x := range []struct {
		benefit float64
		want    policies.Time
	}{{0, 0}, {1, 0}, {2.718281828459045, policies.Second}, {10, 2302585092}} {
		if got := priorTau(x.benefit); got < x.want-1 || got > x.want+1 {
			t.Errorf("benefit %v: tau %d, expected %d", x.benefit, got, x.want)
		}
	}
}

// TestTau has three gaps of 1 s and one of 10 s: with a benefit of 4 s, 1 s gains 0.75 x 4 - 1 = 2 and 10 s gains 4 - 10 < 0;
// with 40 s, 1 s gains 29 and 10 s gains 30; with 1 s, 1 s gains less than nothing.
func TestTau(t *testing.T) {
	s := policies.Second
	gaps := []policies.Time{s, s, s, 10 * s}
	for benefit, want := range map[float64]policies.Time{1: 0, 4: s, 40: 10 * s, 4.0 / 3: 0} {
		if got := tau(gaps, benefit); got != want {
			t.Errorf("benefit %v: tau %d, expected %d", benefit, got, want)
		}
	}
}

func TestReload(t *testing.T) {
	c := policies.Capability{PrefillTokensPerSec: 10000}
	if got := reload(c, 20000); got != 2 {
		t.Errorf("20,000 tokens at 10,000 a second take %v s", got)
	}
	c.AttentionDoubling = 8192
	if got := reload(c, 8192); got < 0.8191 || got > 0.8193 {
		t.Errorf("a prompt of the length that the rate is for takes %v s", got)
	}
	if reload(policies.Capability{}, 100) != 0 || reload(c, 0) != 0 {
		t.Error("an unknown rate or no token must cost nothing")
	}
}

func TestGapsAreTheRecentOnes(t *testing.T) {
	c := &continuum{}
	for i := range 3 * recentGaps {
		c.note(policies.Time(i * 7919 % 10007))
	}
	if len(c.gaps) != recentGaps || len(c.recent) != recentGaps {
		t.Fatalf("%d gaps sorted, %d recent", len(c.gaps), len(c.recent))
	}
	sum, want := policies.Time(0), policies.Time(0)
	for i, g := range c.gaps {
		sum += g
		if i > 0 && g < c.gaps[i-1] {
			t.Fatal("gaps are not sorted")
		}
	}
	for i := 2 * recentGaps; i < 3*recentGaps; i++ {
		want += policies.Time(i * 7919 % 10007)
	}
	if sum != want {
		t.Errorf("the remembered gaps add up to %d, expected %d", sum, want)
	}
}
